package app

import (
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/internal/config"
	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/topology"
)

// serviceOn is a service with a state file of its own.
func serviceOn(t *testing.T) (*service, *topology.Store) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	store, err := openStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return &service{memory: store, mode: config.ModeManual, durability: topology.SemiSync}, store
}

func TestHistoryIsNewestFirstAndUnknownStaysNull(t *testing.T) {
	s, store := serviceOn(t)
	for _, op := range []topology.Operation{
		{Cluster: "main", Kind: topology.OpInit, Result: topology.ResultDone, Server: "db1", StartedAt: now},
		{Cluster: "main", Kind: topology.OpFailover, Result: topology.ResultBlocked, OldMaster: "db1", Epoch: 2, StartedAt: now,
			DetectedMS: ptr(31.5), Steps: []topology.Step{{Name: "stop_io", Server: "db2", MS: 1.5, Result: "ok"}, {Name: "announce"}}, Evidence: []string{"e"}},
	} {
		if _, err := store.NewOperation(op); err != nil {
			t.Fatal(err)
		}
	}
	list, err := s.History(t.Context(), "main", 10)
	if err != nil {
		t.Fatal(err)
	}
	const at = "2026-11-30T23:00:00.000Z"
	want := []api.Operation{
		{ID: "2", Kind: "failover", Result: "blocked", OldMaster: ptr("db1"), Epoch: ptr(uint64(2)), StartedAt: at, DetectedMS: ptr(31.5),
			Steps: []api.Step{{Name: "stop_io", Server: ptr("db2"), MS: 1.5, Result: "ok"}, {Name: "announce"}}, Evidence: []string{"e"}},
		{ID: "1", Kind: "init", Result: "done", Server: ptr("db1"), StartedAt: at, Steps: []api.Step{}, Evidence: []string{}},
	}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if list, err = s.History(t.Context(), "main", 1); err != nil || len(list) != 1 || list[0].ID != "2" {
		t.Errorf("limit 1: %v, %v", list, err)
	}
	op, err := s.Operation(t.Context(), "main", "1")
	if err != nil || op.Kind != "init" {
		t.Errorf("operation 1: %v, %v", op, err)
	}
	if _, err := s.Operation(t.Context(), "main", "3"); fault.As(err).Code != "unknown_operation" {
		t.Errorf("operation 3: %v", err)
	}
}

func TestStatusOfAnUnwatchedClusterClaimsNothing(t *testing.T) {
	s, store := serviceOn(t)
	st, err := s.Status(t.Context(), "main")
	if err != nil || len(st.Servers) != 0 || st.Health != "no_master" || st.Master != nil || st.Mode != "manual" {
		t.Errorf("before init: %+v, %v", st, err)
	}
	if _, err := s.Status(t.Context(), "other"); fault.As(err).Code != "unknown_cluster" {
		t.Errorf("unknown cluster: %v", err)
	}
	if err := store.Apply(topology.CreateCluster{Name: "other", ID: "x", Durability: topology.SemiSync},
		topology.PutServer{Cluster: "other", Server: topology.Server{Name: "db1", Address: "h:1", Role: topology.RoleMaster, Promotion: topology.PromotionNeutral, Identity: topology.Identity{ServerID: 1, UID: "u"}}}); err != nil {
		t.Fatal(err)
	}
	st, err = s.Status(t.Context(), "other")
	if err != nil || len(st.Servers) != 1 || st.Writable() || st.Servers[0].GTID != nil || st.Servers[0].State != "unreachable" {
		t.Errorf("not watched: %+v, %v", st, err)
	}
}
