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

// Slaves are restarted with a relay log that they have not applied, and the
// master is dead by then: what they received shows nowhere until they have applied
// it, by file and position. Whoever has more of it is promoted, with all of it.
func TestRestartedSlavesAndADeadMaster(t *testing.T) {
	for name, c := range map[string]struct {
		restarted []string // with something in the relay log
		behind    string   // received less than the other one
		most      string   // who has most
	}{
		"both, with the same":          {[]string{"db2", "db3"}, "", ""},
		"both, one with more":          {[]string{"db2", "db3"}, "db2", "db3"},
		"the one with less":            {[]string{"db2"}, "db2", "db3"},
		"the one with more":            {[]string{"db3"}, "db2", "db3"},
		"the one with more, the other": {[]string{"db2"}, "db3", "db2"},
	} {
		t.Run(name, func(t *testing.T) {
			r, l := three(t)
			db1 := r.Server("db1")
			for _, name := range c.restarted {
				lockTable(t, r.Server(name)) // until it is killed
			}
			insert(t, db1, 0, 10)
			for _, name := range []string{"db2", "db3"} {
				received(t, r.Server(name), db1)
			}
			if c.behind != "" {
				r.Server(c.behind).MustExec(t, "STOP SLAVE IO_THREAD")
			}
			insert(t, db1, 10, 20)
			if c.most != "" {
				received(t, r.Server(c.most), db1)
			} else {
				received(t, r.Server("db2"), db1)
				received(t, r.Server("db3"), db1)
			}
			if err := r.Repld.Kill(); err != nil {
				t.Fatal(err)
			}
			kill(t, r, "db1")
			for _, name := range c.restarted {
				kill(t, r, name)
				if err := r.Server(name).StartAgain(within(t)); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.StartRepld(within(t)); err != nil {
				t.Fatal(err)
			}
			st, err := r.WaitStatus(within(t), "a new master", func(st *api.Status) bool { return *st.Master != "db1" && st.Writable() })
			if err != nil {
				t.Fatal(err)
			}
			if n := r.Server(*st.Master).MustValue(t, "SELECT COUNT(*) FROM app.t"); n != "20" {
				t.Errorf("%s has %s rows of 20", *st.Master, n)
			}
			if err := db1.StartAgain(within(t)); err != nil {
				t.Fatal(err)
			}
			settle(t, r, l)
			for _, s := range r.Servers {
				if s.Name != *st.Master {
					sameTable(t, "app.t", r.Server(*st.Master), s)
				}
			}
		})
	}
}
