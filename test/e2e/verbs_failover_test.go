package e2e

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/rig"
)

// failover by hand: refused on a live master, done on a dead one, to the server
// that was asked for. In manual mode nothing happens before.
func TestFailoverByHand(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 3, Repld: []string{"failover: {mode: manual}"}})
	l := write(t, r)
	wantFaultBoth(t, r, 5, "live_master", []string{"failover", "--yes"}, "db1", "alive")
	// A refusal comes before the question, a mistake before both.
	wantFault(t, r.Ctl(within(t), "failover", "-o", "json"), 5, "live_master")
	wantFault(t, r.Ctl(within(t), "failover", "--to", "db1", "--yes", "-o", "json"), 2, "unknown_server")
	if out := r.Ctl(within(t), "status"); out.Code != 0 {
		t.Errorf("status exits %d", out.Code)
	}
	if err := r.Server("db1").Kill(); err != nil {
		t.Fatal(err)
	}
	st, err := r.WaitHealth(within(t), "no_master")
	if err != nil {
		t.Fatal(err)
	}
	if out := r.Ctl(within(t), "status"); out.Code != 4 {
		t.Errorf("status exits %d without a master", out.Code)
	}
	if st.Mode != "manual" || st.Forecast.Candidate == nil {
		t.Errorf("%+v", st)
	}
	wantFault(t, r.Ctl(within(t), "failover", "--to", "db3", "-o", "json"), 8, "not_confirmed")
	out := r.Ctl(within(t), "failover", "--to", "db3", "--dry-run")
	if out.Code != 0 || !strings.Contains(out.Stdout, "db3") {
		t.Errorf("the plan: %v\n%s", out.Err(), out.Stdout)
	}
	if st := status(t, r); st.Epoch != 1 || st.Writable() {
		t.Errorf("a plan or a question changed something: %+v", st)
	}
	if out = r.Ctl(within(t), "failover", "--to", "db3", "--yes"); out.Code != 0 || !strings.Contains(out.Stdout, "db3 is the master") {
		t.Fatalf("failover: %v\n%s", out.Err(), out.Stdout)
	}
	if st = status(t, r); *st.Master != "db3" || st.Epoch != 2 {
		t.Errorf("master %s, epoch %d", *st.Master, st.Epoch)
	}
	if _, err := r.WaitStatus(within(t), "degraded without the old master", func(st *api.Status) bool { return st.Health == "degraded" }); err != nil {
		t.Fatal(err)
	}
	if out := r.Ctl(within(t), "status"); out.Code != 3 {
		t.Errorf("status exits %d while degraded", out.Code)
	}
	wantFault(t, r.Ctl(within(t), "remove", "db1", "--purge-config", "--yes", "-o", "json"), 1, "unreachable", "db1")
	if err := r.Server("db1").StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
	if op := operation(t, r, "failover"); op.OldMaster != nil && *op.OldMaster != "db1" || op.NewMaster == nil || *op.NewMaster != "db3" {
		t.Errorf("%+v", op)
	}
	everyField(t, r)
	purged(t, r)
}

// everyField wants all that the contract names in the two JSON documents.
func everyField(t *testing.T, r *rig.Rig) {
	t.Helper()
	var st map[string]any
	if err := json.Unmarshal([]byte(r.Ctl(within(t), "status", "-o", "json").Stdout), &st); err != nil {
		t.Fatal(err)
	}
	has := func(what string, in any, names string) {
		m, ok := in.(map[string]any)
		for name := range strings.FieldsSeq(names) {
			if _, there := m[name]; !ok || !there {
				t.Errorf("%s has no %s: %v", what, name, in)
			}
		}
	}
	has("status", st, "cluster health epoch master mode paused durability servers if_master_died_now problems")
	has("durability", st["durability"], "configured state ackers")
	has("if_master_died_now", st["if_master_died_now"], "candidate transactions_at_risk blocked_because")
	servers, _ := st["servers"].([]any)
	if len(servers) != len(r.Servers) {
		t.Errorf("%d servers", len(servers))
	}
	for _, s := range servers {
		has("a server", s, "name address role source state flavor version server_id read_only gtid gtid_received lag_ms lag_transactions lag_bytes "+
			"io_thread sql_thread tls last_error promotable not_promotable_because clock_offset_ms problems observed_ms_ago")
	}
	var history []any
	if err := json.Unmarshal([]byte(r.Ctl(within(t), "history", "-o", "json").Stdout), &history); err != nil || len(history) == 0 {
		t.Fatalf("%v, %d entries", err, len(history))
	}
	for _, op := range history {
		has("an operation", op, "id kind result old_master new_master started_at detected_ms opened_ms total_ms write_outage_ms steps lost_transactions rescued_transactions evidence")
	}
}

// purged removes a slave with all that repld did to it; a restart shows an
// ordinary server.
func purged(t *testing.T, r *rig.Rig) {
	t.Helper()
	db1 := r.Server("db1")
	wantFaultBoth(t, r, 5, "has_slaves", []string{"remove", "db3", "--yes"}, "db1")
	if out := r.Ctl(within(t), "remove", "db1", "--purge-config", "--yes"); out.Code != 0 {
		t.Fatal(out.Err())
	}
	if err := db1.Restart(within(t)); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		"SELECT @@read_only": "0", "SELECT @@log_bin": "0", "SELECT @@event_scheduler": "OFF",
		"SELECT COUNT(*) FROM mysql.user WHERE User LIKE 'repld%'":                   "0",
		"SELECT COUNT(*) FROM information_schema.SCHEMATA WHERE SCHEMA_NAME='repld'": "0",
	} {
		if v := db1.MustValue(t, query); v != want {
			t.Errorf("%s is %q, want %q", query, v, want)
		}
	}
	if rows, err := db1.Rows(t.Context(), "SHOW ALL SLAVES STATUS"); err != nil || len(rows) != 0 {
		t.Errorf("it is still a slave: %v %v", err, rows)
	}
	err := filepath.WalkDir(db1.Dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.Contains(d.Name(), "repld") {
			t.Errorf("%s is left", path)
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Error(err)
	}
	db1.MustExec(t, "CREATE DATABASE mine")
	st, err := r.WaitHealth(within(t), "healthy")
	if err != nil {
		t.Fatal(err)
	}
	if serverStatus(st, "db1") != nil {
		t.Errorf("it is still listed: %+v", st)
	}
}
