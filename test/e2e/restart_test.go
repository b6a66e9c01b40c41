package e2e

import (
	"testing"
	"time"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/rig"
)

// A slave that is killed and started again follows by itself, and keeps what
// its relay log held.
func TestSlaveKilledAndRestarted(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 3})
	l := write(t, r)
	if err := r.Server("db2").Kill(); err != nil {
		t.Fatal(err)
	}
	st, err := r.WaitStatus(within(t), "the dead slave in status", func(st *api.Status) bool {
		return serverStatus(st, "db2").State == "unreachable" && st.Health == "degraded"
	})
	if err != nil {
		t.Fatal(err)
	}
	if *st.Master != "db1" {
		t.Errorf("the master is %s", *st.Master)
	}
	if err := r.Server("db2").StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
}

// With all slaves dead the master goes on after ack_timeout, degraded and loud,
// and is armed again when one is back.
func TestAllSlavesDead(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 3, Repld: []string{"semi_sync: {ack_timeout: 2s}"}})
	l := write(t, r)
	for _, name := range []string{"db2", "db3"} {
		if err := r.Server(name).Kill(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.WaitStatus(within(t), "degraded durability", func(st *api.Status) bool {
		return st.Durability.State == "degraded" && st.Health == "degraded" && *st.Master == "db1"
	}); err != nil {
		t.Fatal(err)
	}
	have := len(l.Acks())
	if err := l.WaitCount(within(t), have+50); err != nil {
		t.Fatal(err)
	}
	if op := operation(t, r, "degrade"); op.Result != "done" {
		t.Errorf("%+v", op)
	}
	for _, name := range []string{"db2", "db3"} {
		if err := r.Server(name).StartAgain(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	settle(t, r, l)
	operation(t, r, "rearm")
	if st := status(t, r); st.Durability.State != "armed" || *st.Master != "db1" {
		t.Errorf("%+v", st)
	}
}

// A master that restarts while nobody could be promoted is opened again.
func TestMasterRestartedWithNothingPromoted(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 2, Repld: []string{"failover: {mode: manual}"}})
	l := write(t, r)
	if err := r.Server("db1").Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitHealth(within(t), "no_master"); err != nil {
		t.Fatal(err)
	}
	if err := r.Server("db1").StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitStatus(within(t), "the master open", func(st *api.Status) bool {
		return *st.Master == "db1" && serverStatus(st, "db1").State == "writable" && st.Epoch == 1
	}); err != nil {
		t.Fatal(err)
	}
	have := len(l.Acks())
	if err := l.WaitCount(within(t), have+50); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
}

// repld may be killed at any time: while it is gone nothing happens to the
// servers, and when it is back it goes on.
func TestRepldKilledAndTheMasterDies(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 3})
	l := write(t, r)
	if err := r.Repld.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := r.Server("db1").Kill(); err != nil {
		t.Fatal(err)
	}
	if err := r.StartRepld(within(t)); err != nil {
		t.Fatal(err)
	}
	firstAck(t, l, 1)
	if err := r.Server("db1").StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
}

// repld killed at a random moment of a failover goes on where it was.
func TestRepldKilledDuringAFailover(t *testing.T) {
	for _, after := range []time.Duration{15 * time.Millisecond, 40 * time.Millisecond, 80 * time.Millisecond, 140 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			r := startAll(t, rig.Options{Servers: 3})
			l := write(t, r)
			if err := r.Server("db1").Kill(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(after) // the moment is the point of the test, not a wait
			if err := r.Repld.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := r.StartRepld(within(t)); err != nil {
				t.Fatal(err)
			}
			firstAck(t, l, 1)
			if err := r.Server("db1").StartAgain(within(t)); err != nil {
				t.Fatal(err)
			}
			settle(t, r, l)
		})
	}
}

// Both slaves crash with relay logs that they have not applied, and the master
// is dead: what they received is learned by applying it by file and position,
// and nothing is lost.
func TestSlavesThatRestartedApplyTheirRelayLogsByFileAndPosition(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 3})
	l := write(t, r)
	for _, name := range []string{"db2", "db3"} {
		conn, err := r.Server(name).Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.ExecContext(t.Context(), "LOCK TABLES ledger.rows READ"); err != nil {
			t.Fatal(err)
		}
	}
	have := len(l.Acks())
	if err := l.WaitCount(within(t), have+250); err != nil {
		t.Fatal(err)
	}
	r.Server("db2").MustExec(t, "STOP SLAVE IO_THREAD") // one of them has less
	if err := l.WaitCount(within(t), have+400); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"db1", "db2", "db3"} {
		if err := r.Server(name).Kill(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"db2", "db3"} {
		if err := r.Server(name).StartAgain(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	firstAck(t, l, 1)
	drained := map[string]bool{}
	op := operation(t, r, "failover")
	for _, s := range op.Steps {
		if s.Server != nil && s.Name == "drain_relay_log" && s.Result == "ok" {
			drained[*s.Server] = true
		}
	}
	if !drained["db2"] || !drained["db3"] || op.LostTransactions == nil || *op.LostTransactions != 0 {
		t.Errorf("history says %+v", op)
	}
	if err := r.Server("db1").StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
}
