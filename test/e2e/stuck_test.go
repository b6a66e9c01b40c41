package e2e

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/ledger"
	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/test/rig"
)

// startStuck makes a cluster in which db2 has received everything and applies nothing,
// and db3 lacks something; the master is dead.
func startStuck(t *testing.T) (r *rig.Rig, l *ledger.Ledger, release func(), lacks uint64) {
	t.Helper()
	r = startAll(t, rig.Options{Servers: 3})
	l = write(t, r)
	r.Server("db3").MustExec(t, "STOP SLAVE IO_THREAD")
	release = lockTable(t, r.Server("db2"))
	have := len(l.Acks())
	if err := l.WaitCount(within(t), have+250); err != nil {
		t.Fatal(err)
	}
	l.Stop()
	old := r.Server("db1")
	mariadb.Eventually(t, patience, func() error {
		row, err := r.Server("db2").Row(t.Context(), "SHOW SLAVE STATUS")
		if err != nil {
			return err
		}
		if at := old.MustValue(t, "SELECT @@gtid_binlog_pos"); row["Gtid_IO_Pos"] != at {
			return fmt.Errorf("received %s, the master stands at %s", row["Gtid_IO_Pos"], at)
		}
		return nil
	})
	lacks = sequence(t, old) - sequence(t, r.Server("db3"))
	if err := old.Kill(); err != nil {
		t.Fatal(err)
	}
	return r, l, release, lacks
}

// stuckProblem waits for the failover to be held back, and gives the count.
func stuckProblem(t *testing.T, r *rig.Rig, want uint64) {
	t.Helper()
	st, err := r.WaitHealth(within(t), "blocked")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range st.Problems {
		if p.Code == "sql_stuck" && strings.Contains(p.Text, fmt.Sprintf("%d transactions are at stake", want)) &&
			strings.Contains(p.Do, "--accept-loss "+strconv.FormatUint(want, 10)) {
			closed(t, r, "db2")
			closed(t, r, "db3")
			return
		}
	}
	t.Fatalf("no sql_stuck with %d at stake: %+v", want, st.Problems)
}

// The best slave's SQL thread is held up: the failover waits, says what is at
// stake, and goes on by itself once that is over.
func TestAStuckSQLThreadIsWaitedForAndNamed(t *testing.T) {
	t.Parallel()
	r, l, release, lacks := startStuck(t)
	stuckProblem(t, r, lacks)
	release()
	if _, err := r.WaitStatus(within(t), "a master", func(st *api.Status) bool {
		return st.Master != nil && *st.Master != "db1" && serverStatus(st, *st.Master).State == "writable"
	}); err != nil {
		t.Fatal(err)
	}
	if op := operation(t, r, "failover"); op.LostTransactions == nil || *op.LostTransactions != 0 {
		t.Errorf("history says %+v", op)
	}
	backAndEqual(t, r, l)
}

// A person gives up what a stuck slave holds: not with too small a number, and
// history says exactly how many are lost. The slave is kept out when it applies
// them after all.
func TestAPersonGivesUpWhatAStuckSlaveHolds(t *testing.T) {
	t.Parallel()
	r, l, release, lacks := startStuck(t)
	stuckProblem(t, r, lacks)
	if out := r.Ctl(within(t), "failover", "--accept-loss", strconv.FormatUint(lacks-1, 10), "--yes"); out.Code != 5 {
		t.Errorf("one too few: %v", out.Err())
	}
	stuckProblem(t, r, lacks)
	if err := r.Ctl(within(t), "failover", "--accept-loss", strconv.FormatUint(lacks, 10), "--yes").Err(); err != nil {
		t.Fatal(err)
	}
	opened(t, r, "db3")
	op := operation(t, r, "failover")
	if op.Result != "done" || op.LostTransactions == nil || *op.LostTransactions != lacks {
		t.Errorf("want %d lost, history says %+v", lacks, op)
	}
	release()
	if err := r.Server("db1").StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	discard(t, r, "db2", "db1")
	if n := lostRows(t, r, l); n > lacks || n+repldsOwn < lacks {
		t.Errorf("%d transactions were given up, %d rows are lost", lacks, n)
	}
}

// The SQL thread of one slave is held up, and another one has everything: it is
// promoted at once.
func TestAStuckSlaveIsLeftForOneThatHasEverything(t *testing.T) {
	t.Parallel()
	r := startAll(t, rig.Options{Servers: 3})
	l := write(t, r)
	release := lockTable(t, r.Server("db2"))
	have := len(l.Acks())
	if err := l.WaitCount(within(t), have+250); err != nil {
		t.Fatal(err)
	}
	killMaster(t, r, l, "db3", "db2")
	begun := time.Now()
	opened(t, r, "db3")
	if took := time.Since(begun); took > 8*time.Second {
		t.Errorf("it took %v", took)
	}
	release()
	backAndEqual(t, r, l)
}

// Both slaves crash with relay logs that they have not applied, the master is
// dead: what they received is learned by applying it by file and position, and
// nothing is lost.
func TestSlavesThatRestartedApplyTheirRelayLogsByFileAndPosition(t *testing.T) {
	t.Parallel()
	r := startAll(t, rig.Options{Servers: 3})
	l := write(t, r)
	for _, name := range []string{"db2", "db3"} {
		lockTable(t, r.Server(name))
	}
	have := len(l.Acks())
	if err := l.WaitCount(within(t), have+250); err != nil {
		t.Fatal(err)
	}
	// One of them has less.
	r.Server("db2").MustExec(t, "STOP SLAVE IO_THREAD")
	if err := l.WaitCount(within(t), have+400); err != nil {
		t.Fatal(err)
	}
	var err error
	for _, name := range []string{"db1", "db2", "db3"} {
		err = errors.Join(err, r.Server(name).Kill())
	}
	for _, name := range []string{"db2", "db3"} {
		err = errors.Join(err, r.Server(name).StartAgain(within(t)))
	}
	if err != nil {
		t.Fatal(err)
	}
	firstAck(t, l, 1)
	op := operation(t, r, "failover")
	drained := map[string]bool{}
	for _, s := range op.Steps {
		if s.Server != nil && s.Name == "drain_relay_log" && s.Result == "ok" {
			drained[*s.Server] = true
		}
	}
	if !drained["db2"] || !drained["db3"] || op.LostTransactions == nil || *op.LostTransactions != 0 {
		t.Errorf("history says %+v", op)
	}
	backAndEqual(t, r, l)
}
