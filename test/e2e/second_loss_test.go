package e2e

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/ledger"
	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/test/rig"
)

// withTail kills the master while it holds transactions that no slave has.
func withTail(t *testing.T, r *rig.Rig, master *mariadb.Server) {
	t.Helper()
	for _, s := range r.Servers {
		if s != master {
			s.MustExec(t, "STOP SLAVE IO_THREAD")
		}
	}
	mariadb.Eventually(t, patience, func() error {
		return waits(t, master)
	})
	if err := master.Kill(); err != nil {
		t.Fatal(err)
	}
}

var errNobodyWaits = errors.New("no commit waits for an acker")

// waits is nil once a commit waits on a server for an acker.
func waits(t *testing.T, s *mariadb.Server) error {
	row, err := s.Row(t.Context(), "SHOW STATUS LIKE 'Rpl_semi_sync_master_wait_sessions'")
	if err != nil {
		return err
	}
	if row["Value"] == "0" {
		return errNobodyWaits
	}
	return nil
}

// A master that was lost one failover before the last, and left the cluster's
// history with transactions of its own, is told by where its own era ended: what
// it has alone is saved, and undone by itself, for nobody was told OK.
func TestAMasterOfAnEarlierEraReturnsWithExtra(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 3, Repld: []string{"failover: {block_window: 0s}"}})
	l := write(t, r)
	first := r.Server("db1")
	withTail(t, r, first)
	ack := firstAck(t, l, 1)
	second := r.Server("db2")
	if ack.ServerID == 3 {
		second = r.Server("db3")
	}
	if _, err := r.WaitStatus(within(t), "the last slave following", func(st *api.Status) bool {
		return *st.Master == second.Name && len(st.Durability.Ackers) == 1
	}); err != nil {
		t.Fatal(err)
	}
	have := len(l.Acks())
	if err := l.WaitCount(within(t), have+50); err != nil {
		t.Fatal(err)
	}
	if err := second.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.WaitAck(within(t), func(a ledger.Ack) bool { return a.ServerID != 1 && a.ServerID != ack.ServerID }); err != nil {
		t.Fatal(err)
	}
	if err := first.StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	op := operation(t, r, "rejoin")
	if op.Result != "done" || !strings.Contains(strings.Join(op.Evidence, "\n"), "were saved in") || !strings.Contains(strings.Join(op.Evidence, "\n"), "nobody was told OK") {
		t.Errorf("history says %+v", op)
	}
	if err := second.StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
}

// A promotion starts the time that a master may be without an acker anew: it is
// not degraded for the time that it was a slave.
func TestAPromotedServerIsNotDegradedForItsTimeAsASlave(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 3, Repld: []string{"failover: {block_window: 0s}", "semi_sync: {ack_timeout: 3s}"}})
	l := write(t, r)
	time.Sleep(3500 * time.Millisecond) // longer than ack_timeout: the time as a slave
	for range 4 {
		if err := r.Ctl(within(t), "switchover", "--yes").Err(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
			t.Fatal(err)
		}
	}
	list, err := r.History(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range list {
		if op.Kind == "degrade" {
			t.Errorf("degraded: %+v", op)
		}
	}
	settle(t, r, l)
}

// A slave that was set up after a change of master has nothing older in its
// binary log. When it becomes the master, nobody else is diverged by that.
func TestASlaveMadeInALaterEraBecomesTheMaster(t *testing.T) {
	r := start(t, rig.Options{Servers: 3})
	if err := r.StartRepld(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := r.InitMaster(within(t), r.Server("db1")); err != nil {
		t.Fatal(err)
	}
	if err := r.InitSlave(within(t), r.Server("db2")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
		t.Fatal(err)
	}
	if err := r.Ctl(within(t), "switchover", "--yes").Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.InitSlave(within(t), r.Server("db3")); err != nil {
		t.Fatal(err)
	}
	l := write(t, r)
	if err := r.Ctl(within(t), "switchover", "--to", "db3", "--yes").Err(); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
}

// A master is lost with transactions that nobody was told OK for, while a server
// that could not acknowledge them is out of reach, and holds some. When the master
// returns, they are undone at once. The other one, whose thread was fed by it and
// goes on reading from it, has left the history and is given up by a person.
func TestWhoCouldNotAcknowledgeIsNoWitness(t *testing.T) {
	r := start(t, rig.Options{Servers: 3})
	if err := r.StartRepld(within(t)); err != nil {
		t.Fatal(err)
	}
	for i, args := range [][]string{nil, nil, {"--promotion", "never"}} {
		init := r.InitSlave
		if i == 0 {
			init = r.InitMaster
		}
		if err := init(within(t), r.Servers[i], args...); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
		t.Fatal(err)
	}
	l := write(t, r)
	db1, db3 := r.Server("db1"), r.Server("db3")
	if err := db3.Freeze(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitStatus(within(t), "db3 out of reach", func(st *api.Status) bool { return serverStatus(st, "db3").State == "unreachable" }); err != nil {
		t.Fatal(err)
	}
	r.Server("db2").MustExec(t, "STOP SLAVE IO_THREAD")
	mariadb.Eventually(t, patience, func() error { return waits(t, db1) })
	kill(t, r, "db1")
	firstAck(t, l, 1)
	if err := db1.StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	if op := operation(t, r, "rejoin"); op.Result != "done" || !strings.Contains(op.Detail, "nobody was told OK") {
		t.Errorf("history says %+v", op)
	}
	if err := db3.Thaw(); err != nil {
		t.Fatal(err)
	}
	st, err := r.WaitStatus(within(t), "db3 back", func(st *api.Status) bool {
		state := serverStatus(st, "db3").State
		return state == "diverged" || state == "streaming"
	})
	if err != nil {
		t.Fatal(err)
	}
	if serverStatus(st, "db3").State == "diverged" {
		wantFault(t, r.Ctl(within(t), "rejoin", "db3", "--yes", "-o", "json"), 5, "diverged", "--discard-errant")
		if err := r.Ctl(within(t), "rejoin", "db3", "--discard-errant", "--yes").Err(); err != nil {
			t.Fatal(err)
		}
	}
	settle(t, r, l)
}
