package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/ledger"
	"github.com/repld/repld/test/rig"
)

// The main job: a master that is killed under load is replaced by itself, no
// acknowledged row is lost, the other slave follows, and the old master comes
// back as a read-only slave.
func TestMasterKilledUnderLoad(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 3})
	l := write(t, r)
	old := r.Server("db1")
	killed := time.Now()
	if err := old.Kill(); err != nil {
		t.Fatal(err)
	}
	ack := firstAck(t, l, 1)
	t.Logf("first write acknowledged %v after the kill", ack.After.Sub(killed))
	op := operation(t, r, "failover")
	if op.Result != "done" || op.OpenedMS == nil || op.LostTransactions == nil || *op.LostTransactions != 0 {
		t.Errorf("history says %+v", op)
	}
	if _, err := r.WaitStatus(within(t), "the other slave following", func(st *api.Status) bool {
		other := "db2"
		if *st.Master == "db2" {
			other = "db3"
		}
		s := serverStatus(st, other)
		return *st.Master != "db1" && s.State == "streaming" && *s.Source == *st.Master
	}); err != nil {
		t.Fatal(err)
	}
	if err := old.StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	st, err := r.WaitHealth(within(t), "healthy")
	if err != nil {
		t.Fatal(err)
	}
	back := serverStatus(st, "db1")
	if back.Role != "slave" || back.ReadOnly == nil || !*back.ReadOnly || back.TLS == nil || !*back.TLS {
		t.Errorf("the old master came back as %+v", back)
	}
	settle(t, r, l, ledger.OldMaster{ServerID: 1, Opened: ack.After})
}

// A21: what a slave has received and not applied is applied before its
// promotion, never dropped.
func TestCaseA21_ReceivedTransactionsAreAppliedBeforePromotion(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 2})
	l := write(t, r)
	slave := r.Server("db2")
	// A table lock holds the SQL thread up while the IO thread goes on.
	conn, err := slave.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "LOCK TABLES ledger.rows READ"); err != nil {
		t.Fatal(err)
	}
	have := len(l.Acks())
	if err := l.WaitCount(within(t), have+200); err != nil {
		t.Fatal(err)
	}
	if err := r.Server("db1").Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitHealth(within(t), "failing_over"); err != nil {
		t.Fatal(err)
	}
	if st := serverStatus(status(t, r), "db2"); st.ReadOnly == nil || !*st.ReadOnly {
		t.Fatalf("promoted with a full relay log: %+v", st)
	}
	if _, err := conn.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
		t.Fatal(err)
	}
	firstAck(t, l, 1)
	if err := r.Server("db1").StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
}

// A21: a slave whose SQL thread has failed is not promoted; the failover is
// held back with the count at stake.
func TestCaseA21_BrokenSQLThreadHoldsTheFailoverBack(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 2})
	master, slave := r.Server("db1"), r.Server("db2")
	master.MustExec(t, "CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY)")
	if err := slave.CatchUp(within(t), master); err != nil {
		t.Fatal(err)
	}
	slave.MustExec(t, "SET sql_log_bin=0", "INSERT INTO app.t VALUES (1)", "SET sql_log_bin=1")
	master.MustExec(t, "INSERT INTO app.t VALUES (1)", "INSERT INTO app.t VALUES (2)")
	if _, err := r.WaitStatus(within(t), "the error in status", func(st *api.Status) bool {
		s := serverStatus(st, "db2")
		return st.Health == "degraded" && s.State == "broken" && s.LastError != nil && s.LastError.Code == 1062 && !s.Promotable
	}); err != nil {
		t.Fatal(err)
	}
	if err := master.Kill(); err != nil {
		t.Fatal(err)
	}
	st, err := r.WaitHealth(within(t), "blocked")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(problemCodes(st.Problems), "no_candidate") {
		t.Errorf("problems: %+v", st.Problems)
	}
	if v := slave.MustValue(t, "SELECT @@read_only"); v != "1" {
		t.Error("a broken slave was promoted")
	}
	if err := master.StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitStatus(within(t), "the master open again", func(st *api.Status) bool {
		s := serverStatus(st, "db1")
		return s.State == "writable"
	}); err != nil {
		t.Fatal(err)
	}
	// The way out: the slave is seeded anew.
	if out := r.Ctl(within(t), "rejoin", "db2"); out.Code != 8 {
		t.Errorf("unconfirmed: %v", out.Err())
	}
	if err := r.Ctl(within(t), "rejoin", "db2", "--yes").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
		t.Fatal(err)
	}
	if v := slave.MustValue(t, "SELECT GROUP_CONCAT(id) FROM app.t"); v != "1,2" {
		t.Errorf("the slave has %s", v)
	}
}

func problemCodes(list []api.Problem) string {
	words := make([]string, len(list))
	for i, p := range list {
		words[i] = p.Code
	}
	return strings.Join(words, " ")
}
