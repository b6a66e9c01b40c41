package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/test/rig"
)

// A switchover under load loses nothing, leaves the old master a read-only
// slave, and stops writes for a moment only.
func TestSwitchoverUnderLoad(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 3})
	l := write(t, r)
	if out := r.Ctl(within(t), "switchover"); out.Code != 8 {
		t.Errorf("unconfirmed: %v", out.Err())
	}
	if err := r.Ctl(within(t), "switchover", "--to", "db3", "--yes").Err(); err != nil {
		t.Fatal(err)
	}
	firstAck(t, l, 1)
	op := operation(t, r, "switchover")
	t.Logf("opened %v ms after the order, %v ms in all", *op.OpenedMS, *op.TotalMS)
	for _, s := range op.Steps {
		t.Logf("  %s %v ms %s", s.Name, s.MS, s.Result)
	}
	if st := status(t, r); *st.Master != "db3" || st.Epoch != 2 {
		t.Errorf("master %s, epoch %d", *st.Master, st.Epoch)
	}
	if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
		t.Fatal(err)
	}
	// And back again.
	if err := r.Ctl(within(t), "switchover", "--to", "db1", "--yes").Err(); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
}

// A switchover to a slave that cannot catch up is rolled back within its
// bound: the old master writes on.
func TestSwitchoverToAStuckSlaveIsRolledBack(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 3, Repld: []string{"failover: {switchover_timeout: 3s}"}})
	l := write(t, r)
	slave := r.Server("db2")
	conn, err := slave.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "LOCK TABLES ledger.rows READ"); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	out := r.Ctl(within(t), "switchover", "--to", "db2", "--yes")
	if out.Code != 1 {
		t.Errorf("exit %d: %s", out.Code, out.Stderr)
	}
	if took := time.Since(begun); took > 15*time.Second {
		t.Errorf("it took %v", took)
	}
	if op := operation(t, r, "switchover"); op.Result != "rolled_back" {
		t.Errorf("history says %+v", op)
	}
	have := len(l.Acks())
	if err := l.WaitCount(within(t), have+100); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
	if st := status(t, r); *st.Master != "db1" || st.Epoch != 1 {
		t.Errorf("master %s, epoch %d", *st.Master, st.Epoch)
	}
}

// A candidate that dies after the old master was closed leads back to it.
func TestSwitchoverWhoseCandidateDies(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 2, Repld: []string{"failover: {switchover_timeout: 5s}"}})
	l := write(t, r)
	slave := r.Server("db2")
	conn, err := slave.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	done := make(chan rig.Output, 1)
	// What the slave still has to apply holds the switchover up once the old
	// master is closed. If the order comes so late after the lock that the slave is
	// already too far behind, the master is not closed: then once more.
	mariadb.Eventually(t, patience, func() error {
		if _, err := conn.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
			return err
		}
		if err := slave.CatchUp(within(t), r.Server("db1")); err != nil {
			return err
		}
		if _, err := conn.ExecContext(t.Context(), "LOCK TABLES ledger.rows READ"); err != nil {
			return err
		}
		go func() { done <- r.Ctl(within(t), "switchover", "--yes") }()
		for {
			if r.Server("db1").MustValue(t, "SELECT @@read_only") == "1" {
				return nil
			}
			select {
			case out := <-done:
				return fmt.Errorf("the master was not closed: exit %d: %s", out.Code, out.Stderr)
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	if err := slave.Kill(); err != nil {
		t.Fatal(err)
	}
	if out := <-done; out.Code != 1 || operation(t, r, "switchover").Result != "rolled_back" {
		t.Errorf("exit %d: %s", out.Code, out.Stderr)
	}
	if err := slave.StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
	if st := status(t, r); *st.Master != "db1" {
		t.Errorf("master %s", *st.Master)
	}
}

// A long transaction and a table lock on the master do not hold a switchover up.
func TestSwitchoverWithABusyMaster(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 2})
	l := write(t, r)
	conn, err := r.Server("db1").Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, q := range []string{"CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY)", "BEGIN", "INSERT INTO app.t VALUES (1)"} {
		if _, err := conn.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	other, err := r.Server("db1").Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, q := range []string{"CREATE TABLE app.u (id INT PRIMARY KEY)", "LOCK TABLES app.u WRITE"} {
		if _, err := other.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Ctl(within(t), "switchover", "--yes").Err(); err != nil {
		t.Fatal(err)
	}
	if v := r.Server("db2").MustValue(t, "SELECT COUNT(*) FROM app.t"); v != "0" {
		t.Error("an uncommitted row is there")
	}
	settle(t, r, l)
}
