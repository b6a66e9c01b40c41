package app

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/internal/config"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

var now = time.Date(2026, 11, 30, 23, 0, 0, 0, time.UTC)

func pos(t *testing.T, s string) gtid.Position {
	t.Helper()
	p, err := gtid.ParsePosition(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// view is a cluster of db1, the open master, and db2, its slave, in which all
// is well.
func view(t *testing.T) *health.View {
	t.Helper()
	c := &topology.Cluster{
		Name: "main", ID: "id", Epoch: 1, Master: "db1", Durability: topology.SemiSync, DurabilityState: topology.DurabilityArmed,
		Lineage: gtid.Lineage{{Epoch: 1, Domain: 0, Server: 1, First: 1}},
		Servers: map[string]*topology.Server{
			"db1": {Name: "db1", Address: "10.0.0.1:3306", Role: topology.RoleMaster, Flavor: topology.FlavorMariaDB, Version: "10.11.18", Promotion: topology.PromotionNeutral, Identity: topology.Identity{ServerID: 1}},
			"db2": {Name: "db2", Address: "10.0.0.2:3306", Role: topology.RoleSlave, Source: "db1", Flavor: topology.FlavorMariaDB, Version: "10.11.18", Promotion: topology.PromotionNeutral, Identity: topology.Identity{ServerID: 2}},
		},
	}
	seen := now.Add(-80 * time.Millisecond)
	base := health.Observation{Sent: seen.Add(-time.Millisecond), At: seen, Reach: health.ReachOK, Version: "10.11.19", LogBin: true, LogSlaveUpdates: true, SkipSlaveStart: true, SkipErrors: "OFF"}
	master, slave := base, base
	master.Server, master.Identity.ServerID, master.BinlogPos = "db1", 1, pos(t, "0-1-100")
	master.SemiSync = health.SemiSync{MasterEnabled: true, MasterOn: true, Clients: 1, AfterSync: true}
	slave.Server, slave.Identity.ServerID, slave.ReadOnly = "db2", 2, true
	slave.SlavePos, slave.BinlogPos = pos(t, "0-1-98"), pos(t, "0-1-98")
	slave.SemiSync = health.SemiSync{SlaveEnabled: true, SlaveOn: true, AfterSync: true}
	slave.ClockOffset = -1500 * time.Microsecond
	slave.Slave = &health.SlaveStatus{SourceHost: "10.0.0.1", SourcePort: 3306, SourceServerID: 1, IO: health.ThreadYes, SQL: health.ThreadYes,
		UsingGTID: "Slave_Pos", Received: pos(t, "0-1-100"), SourceLogFile: "bin.000001", ReadPos: 5000, ExecLogFile: "bin.000001", ExecPos: 4200, TLS: true, HeartbeatPeriod: time.Second}
	lag, bytes := 12*time.Millisecond, uint64(800)
	return &health.View{
		Now: now, Cluster: c, Started: now.Add(-time.Hour), AwakeSince: now.Add(-time.Hour),
		Servers: map[string]*health.ServerView{
			"db1": {Last: master, LastOK: master, ArmedAt: seen},
			"db2": {Last: slave, LastOK: slave, Advanced: seen, Applied: seen, StreamingAt: seen, LagApplied: &lag, LagReceived: new(time.Duration), LagBytes: &bytes},
		},
		Stream: health.StreamView{Server: "db1", Connected: true, LastEvent: seen, Last: gtid.GTID{Server: 1, Seq: 100}, File: "bin.000001", Pos: 5000, LastTx: seen},
	}
}

// status builds as the service does, by the shipped rules.
func status(v *health.View) *api.Status {
	p := policy(config.Default())
	verdict := health.Detect(v, health.DetectPolicy{HangTimeout: p.HangTimeout})
	return buildStatus(v, failover.Assess(failover.Input{View: v, Verdict: verdict, Policy: p}), config.ModeAutomatic)
}

func server(t *testing.T, s *api.Status, name string) api.ServerStatus {
	t.Helper()
	for _, server := range s.Servers {
		if server.Name == name {
			return server
		}
	}
	t.Fatalf("no server %s in %+v", name, s)
	return api.ServerStatus{}
}

func ptr[T any](v T) *T { return &v }

func TestStatusOfAHealthyClusterShowsWhatWasMeasured(t *testing.T) {
	s := status(view(t))
	if s.Master == nil || *s.Master != "db1" || s.Epoch != 1 || s.Mode != "automatic" || !s.Writable() {
		t.Errorf("%+v", s)
	}
	want := api.ServerStatus{
		Name: "db1", Address: "10.0.0.1:3306", Role: "master", State: "writable", Flavor: "mariadb", Version: "10.11.19", ServerID: 1,
		ReadOnly: ptr(false), GTID: ptr("0-1-100"), LagMS: ptr(int64(0)), LagTransactions: ptr(uint64(0)), LagBytes: ptr(uint64(0)),
		ClockOffsetMS: ptr(int64(0)), NotPromotableBecause: []api.Problem{}, Problems: []api.Problem{}, ObservedMSAgo: ptr(int64(80)),
	}
	if diff := cmp.Diff(want, server(t, s, "db1")); diff != "" {
		t.Errorf("db1 (-want +got):\n%s", diff)
	}
	got := server(t, s, "db2")
	want = api.ServerStatus{
		Name: "db2", Address: "10.0.0.2:3306", Role: "slave", Source: ptr("db1"), State: "streaming", Flavor: "mariadb", Version: "10.11.19", ServerID: 2,
		ReadOnly: ptr(true), GTID: ptr("0-1-98"), GTIDReceived: ptr("0-1-100"), LagMS: ptr(int64(12)), LagTransactions: ptr(uint64(2)), LagBytes: ptr(uint64(800)),
		IOThread: ptr("yes"), SQLThread: ptr("yes"), TLS: ptr(true), ClockOffsetMS: ptr(int64(-1)), ObservedMSAgo: ptr(int64(80)),
		Promotable: got.Promotable, NotPromotableBecause: got.NotPromotableBecause, Problems: got.Problems,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("db2 (-want +got):\n%s", diff)
	}
}

func TestStatusOfAServerThatDoesNotAnswerIsNullNotZero(t *testing.T) {
	for name, spoil := range map[string]func(sv *health.ServerView){
		"never observed": func(sv *health.ServerView) { *sv = health.ServerView{} },
		"went away":      func(sv *health.ServerView) { sv.Last = health.Observation{Reach: health.ReachRefused, At: now} },
		"refuses repld": func(sv *health.ServerView) {
			sv.Last = health.Observation{Reach: health.ReachUnkind, Errno: 1040, Err: "Too many connections", At: now}
		},
	} {
		for _, who := range []string{"db1", "db2"} {
			v := view(t)
			spoil(v.Servers[who])
			got := server(t, status(v), who)
			if got.ReadOnly != nil || got.GTID != nil || got.GTIDReceived != nil || got.LagMS != nil || got.LagTransactions != nil || got.LagBytes != nil ||
				got.IOThread != nil || got.SQLThread != nil || got.TLS != nil || got.ClockOffsetMS != nil {
				t.Errorf("%s %s shows what it cannot know: %+v", who, name, got)
			}
			if got.State != "unreachable" {
				t.Errorf("%s %s: state %q", who, name, got.State)
			}
			if (got.ObservedMSAgo == nil) != (name == "never observed") {
				t.Errorf("%s %s: observed_ms_ago %v", who, name, got.ObservedMSAgo)
			}
			if (got.LastError != nil) != (name == "refuses repld") {
				t.Errorf("%s %s: last_error %v", who, name, got.LastError)
			}
		}
	}
}

func TestStatusShowsNoNumberThatWasNotMeasured(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(v *health.View)
		null  func(s api.ServerStatus) bool
	}{
		"received is unknown after a restart": {
			func(v *health.View) { v.Servers["db2"].Last.Slave.Received = gtid.Position{} },
			func(s api.ServerStatus) bool { return s.GTIDReceived == nil }},
		"lag is unknown while the master is silent": {
			func(v *health.View) { v.Servers["db2"].LagApplied = nil },
			func(s api.ServerStatus) bool { return s.LagMS == nil }},
		"bytes are unknown without the stream": {
			func(v *health.View) { v.Servers["db2"].LagBytes = nil },
			func(s api.ServerStatus) bool { return s.LagBytes == nil }},
		"nobody's slave has no TLS": {
			func(v *health.View) { v.Servers["db2"].Last.Slave = nil },
			func(s api.ServerStatus) bool { return s.TLS == nil && s.LagBytes == nil && *s.IOThread == "no" }},
	} {
		v := view(t)
		c.spoil(v)
		if got := server(t, status(v), "db2"); !c.null(got) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestStatusShowsTheThreadsError(t *testing.T) {
	v := view(t)
	st := v.Servers["db2"].Last.Slave
	st.SQL, st.SQLErrno, st.SQLError = health.ThreadNo, 1062, "Duplicate entry"
	st.IO, st.IOErrno, st.IOError = health.ThreadConnecting, 2003, "cannot connect"
	got := server(t, status(v), "db2")
	if got.LastError == nil || got.LastError.Code != 1062 || got.State != "broken" || *got.IOThread != "connecting" || *got.SQLThread != "no" {
		t.Errorf("%+v", got)
	}
}

func TestPauseEndsByItself(t *testing.T) {
	v := view(t)
	v.Cluster.Paused, v.Cluster.PausedUntil = true, now.Add(-time.Second)
	if status(v).Paused {
		t.Error("still paused after its end")
	}
	v.Cluster.PausedUntil = time.Time{}
	if !status(v).Paused {
		t.Error("a pause without an end has ended")
	}
}

func TestStatusHasTheFieldsThatScriptsReadAndNoNullList(t *testing.T) {
	for name, v := range map[string]*health.View{"healthy": view(t), "empty": {Now: now, Cluster: &topology.Cluster{Name: "main"}}} {
		raw, err := json.Marshal(status(v))
		if err != nil {
			t.Fatal(err)
		}
		var doc map[string]any
		if err := json.Unmarshal(raw, &doc); err != nil {
			t.Fatal(err)
		}
		keys := func(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
		if diff := cmp.Diff([]string{"cluster", "durability", "epoch", "health", "if_master_died_now", "master", "mode", "paused", "problems", "servers"}, keys(doc)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		for _, list := range []any{doc["servers"], doc["problems"], doc["durability"].(map[string]any)["ackers"], doc["if_master_died_now"].(map[string]any)["blocked_because"]} {
			if list == nil {
				t.Errorf("%s: a list is null: %s", name, raw)
			}
		}
		if name == "empty" {
			if doc["master"] != nil || doc["health"] != "no_master" || len(doc["servers"].([]any)) != 0 {
				t.Errorf("before init: %s", raw)
			}
			continue
		}
		one := doc["servers"].([]any)[0].(map[string]any)
		want := []string{"address", "clock_offset_ms", "flavor", "gtid", "gtid_received", "io_thread", "lag_bytes", "lag_ms", "lag_transactions", "last_error",
			"name", "not_promotable_because", "observed_ms_ago", "problems", "promotable", "read_only", "role", "server_id", "source", "sql_thread", "state", "tls", "version"}
		if diff := cmp.Diff(want, keys(one)); diff != "" {
			t.Errorf("server: %s", diff)
		}
		if one["problems"] == nil || one["not_promotable_because"] == nil {
			t.Errorf("a list is null: %s", raw)
		}
	}
}
