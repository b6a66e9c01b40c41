package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/test/ledger"
	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/test/rig"
)

// startBehind makes a cluster of the master db1, the slave db2 and the slave db3
// with the given promotion preference, in which db2 has stopped receiving and
// lacks at least n transactions that db3 has.
func startBehind(t *testing.T, n int, preference string, config ...string) (*rig.Rig, *ledger.Ledger) {
	t.Helper()
	r := start(t, rig.Options{Servers: 3, Repld: config})
	if err := r.StartRepld(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := r.InitMaster(within(t), r.Server("db1")); err != nil {
		t.Fatal(err)
	}
	if err := r.InitSlave(within(t), r.Server("db2")); err != nil {
		t.Fatal(err)
	}
	if err := r.InitSlave(within(t), r.Server("db3"), "--promotion", preference); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
		t.Fatal(err)
	}
	l := write(t, r)
	r.Server("db2").MustExec(t, "STOP SLAVE IO_THREAD")
	have := len(l.Acks())
	if err := l.WaitCount(within(t), have+n); err != nil {
		t.Fatal(err)
	}
	return r, l
}

// lockTable holds up whoever applies something to the ledger's table on a
// server, until release is called.
func lockTable(t *testing.T, s *mariadb.Server) (release func()) {
	t.Helper()
	conn, err := s.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := conn.ExecContext(t.Context(), "LOCK TABLES ledger.rows READ"); err != nil {
		t.Fatal(err)
	}
	return func() {
		if _, err := conn.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
			t.Error(err)
		}
	}
}

// sequence is the sequence number at which a server stands.
func sequence(t *testing.T, s *mariadb.Server) uint64 {
	t.Helper()
	p, err := gtid.ParsePosition(s.MustValue(t, "SELECT @@gtid_current_pos"))
	if err != nil {
		t.Fatal(err)
	}
	return p.Of(0).Seq
}

// killMaster kills a master whose writers have stopped, once the given slave has
// all that it has, and gives how many of these transactions another slave lacks.
func killMaster(t *testing.T, r *rig.Rig, l *ledger.Ledger, holder, behind string) uint64 {
	t.Helper()
	l.Stop()
	old := r.Server("db1")
	if err := r.Server(holder).CatchUp(within(t), old); err != nil {
		t.Fatal(err)
	}
	lacks := sequence(t, old) - sequence(t, r.Server(behind))
	if err := old.Kill(); err != nil {
		t.Fatal(err)
	}
	return lacks
}

// opened waits until a server is the master and accepts writes.
func opened(t *testing.T, r *rig.Rig, name string) {
	t.Helper()
	if _, err := r.WaitStatus(within(t), name+" open", func(st *api.Status) bool {
		return st.Master != nil && *st.Master == name && serverStatus(st, name).State == "writable"
	}); err != nil {
		t.Fatal(err)
	}
}

// fetching waits until a server reads by the rescue connection.
func fetching(t *testing.T, s *mariadb.Server) {
	t.Helper()
	mariadb.Eventually(t, patience, func() error {
		row, err := s.Row(t.Context(), "SHOW SLAVE 'repld_rescue' STATUS")
		if err != nil {
			return err
		}
		if row["Slave_IO_Running"] != "Yes" {
			return fmt.Errorf("the rescue connection: %v", row)
		}
		return nil
	})
}

// noConnection wants that a master reads from nobody.
func noConnection(t *testing.T, s *mariadb.Server) {
	t.Helper()
	if rows, err := s.Rows(t.Context(), "SHOW ALL SLAVES STATUS"); err != nil || len(rows) != 0 {
		t.Errorf("%s still reads: %v, %v", s.Name, rows, err)
	}
}

// rescued checks what history says of the failover that has ended.
func rescued(t *testing.T, r *rig.Rig, want uint64) {
	t.Helper()
	op := operation(t, r, "failover")
	if op.Result != "done" || op.RescuedTransactions != want || op.LostTransactions != nil && *op.LostTransactions != 0 {
		t.Errorf("want %d rescued and none lost, history says %+v", want, op)
	}
}

// backAndEqual starts the old master again and compares everything.
func backAndEqual(t *testing.T, r *rig.Rig, l *ledger.Ledger) {
	t.Helper()
	if err := r.Server("db1").StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
}

// early makes the master go on soon without an acker.
const early = "semi_sync: {ack_timeout: 1s}"

// A slave that shall never be promoted holds more than the one that is: what the
// latter lacks is fetched before it is opened.
func TestTheCandidateFetchesWhatAServerThatIsNeverPromotedHas(t *testing.T) {
	t.Parallel()
	r, l := startBehind(t, 1500, "never", early)
	lacks := killMaster(t, r, l, "db3", "db2")
	opened(t, r, "db2")
	noConnection(t, r.Server("db2"))
	rescued(t, r, lacks)
	backAndEqual(t, r, l)
}

// An acker that had better not be promoted holds what clients were told OK for:
// the other one fetches it, under load.
func TestTheCandidateFetchesWhatAnAckerToBeAvoidedHas(t *testing.T) {
	t.Parallel()
	r, l := startBehind(t, 300, "avoid")
	if err := r.Server("db1").Kill(); err != nil {
		t.Fatal(err)
	}
	if a := firstAck(t, l, 1); a.ServerID != 2 {
		t.Errorf("acknowledged by %d", a.ServerID)
	}
	noConnection(t, r.Server("db2"))
	if op := operation(t, r, "failover"); op.RescuedTransactions < 300 || op.LostTransactions == nil || *op.LostTransactions != 0 {
		t.Errorf("history says %+v", op)
	}
	backAndEqual(t, r, l)
}

// The holder dies while the candidate fetches, after it has acknowledged what
// nobody else has: nobody is promoted until it is back.
func TestTheAckerDiesWhileTheCandidateFetchesFromIt(t *testing.T) {
	t.Parallel()
	r, l := startBehind(t, 300, "avoid")
	release := lockTable(t, r.Server("db2"))
	lacks := killMaster(t, r, l, "db3", "db2")
	fetching(t, r.Server("db2"))
	if err := r.Server("db3").Kill(); err != nil {
		t.Fatal(err)
	}
	release()
	st, err := r.WaitHealth(within(t), "blocked")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(problemCodes(st.Problems), "acker_unreachable") {
		t.Errorf("problems: %+v", st.Problems)
	}
	closed(t, r, "db2")
	if err := r.Server("db3").StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	opened(t, r, "db2")
	noConnection(t, r.Server("db2"))
	rescued(t, r, lacks)
	backAndEqual(t, r, l)
}

func closed(t *testing.T, r *rig.Rig, name string) {
	t.Helper()
	if v := r.Server(name).MustValue(t, "SELECT @@read_only"); v != "1" {
		t.Errorf("%s was opened", name)
	}
}

// The holder dies while the candidate fetches, and nobody was promised what it
// has, since the master did not wait for an acker: the candidate goes on with what
// it has got, history counts what is lost, and the holder is kept out as diverged
// when it is back.
func TestAHolderThatIsNoAckerDiesWhileTheCandidateFetchesFromIt(t *testing.T) {
	t.Parallel()
	r, l := startBehind(t, 300, "never", early)
	release := lockTable(t, r.Server("db2"))
	lacks := killMaster(t, r, l, "db3", "db2")
	fetching(t, r.Server("db2"))
	if err := r.Server("db3").Kill(); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(2*time.Second, release)
	opened(t, r, "db2")
	noConnection(t, r.Server("db2"))
	op := operation(t, r, "failover")
	lost := uint64(0)
	if op.LostTransactions != nil {
		lost = *op.LostTransactions
	}
	if op.Result != "done" || op.RescuedTransactions+lost != lacks {
		t.Errorf("%d were lacking, history says %+v", lacks, op)
	}
	t.Logf("%d lacking, %d rescued, %d lost", lacks, op.RescuedTransactions, lost)
	for _, s := range []string{"db3", "db1"} {
		if err := r.Server(s).StartAgain(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	if lost == 0 {
		settle(t, r, l)
		return
	}
	discard(t, r, "db3", "db1")
	if n := lostRows(t, r, l); n > lost || n+repldsOwn < lost {
		t.Errorf("history says that %d transactions are lost, and %d rows are", lost, n)
	}
}

// The candidate is killed, or frozen for a while, or repld is killed, while the
// candidate fetches: it fetches the rest afterwards.
func TestTheFetchIsInterrupted(t *testing.T) {
	for name, interrupt := range map[string]func(t *testing.T, r *rig.Rig, release func()) error{
		"candidate killed": func(t *testing.T, r *rig.Rig, release func()) error {
			if err := r.Server("db2").Kill(); err != nil {
				return err
			}
			if _, err := r.WaitHealth(within(t), "blocked"); err != nil {
				return err
			}
			return r.Server("db2").StartAgain(within(t))
		},
		"candidate frozen": func(t *testing.T, r *rig.Rig, release func()) error {
			if err := r.Server("db2").Freeze(); err != nil {
				return err
			}
			time.Sleep(4 * time.Second)
			defer release()
			return r.Server("db2").Thaw()
		},
		"repld killed": func(t *testing.T, r *rig.Rig, release func()) error {
			if err := r.Repld.Kill(); err != nil {
				return err
			}
			defer release()
			return r.StartRepld(within(t))
		},
		"repld killed, fetched meanwhile": func(t *testing.T, r *rig.Rig, release func()) error {
			if err := r.Repld.Kill(); err != nil {
				return err
			}
			release()
			if err := r.Server("db2").CatchUp(within(t), r.Server("db3")); err != nil {
				return err
			}
			return r.StartRepld(within(t))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, l := startBehind(t, 300, "never", early)
			release := lockTable(t, r.Server("db2"))
			lacks := killMaster(t, r, l, "db3", "db2")
			fetching(t, r.Server("db2"))
			if err := interrupt(t, r, release); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			opened(t, r, "db2")
			if took := time.Since(begun); took > 9*time.Second {
				t.Errorf("it took %v to go on", took)
			}
			noConnection(t, r.Server("db2"))
			rescued(t, r, lacks)
			backAndEqual(t, r, l)
		})
	}
}

// discard waits until servers are kept out as diverged, and gives up what they
// alone have.
func discard(t *testing.T, r *rig.Rig, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := r.WaitStatus(within(t), name+" diverged", func(st *api.Status) bool { return serverStatus(st, name).State == "diverged" }); err != nil {
			t.Fatal(err)
		}
		if err := r.Ctl(within(t), "rejoin", name, "--discard-errant", "--yes").Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// repldsOwn bounds how many transactions among those that are missing may be
// repld's own, which announces changes of the cluster's state.
const repldsOwn = 3

// lostRows counts the acknowledged rows that are lost, once the cluster is
// healthy and all its servers are equal.
func lostRows(t *testing.T, r *rig.Rig, l *ledger.Ledger) uint64 {
	t.Helper()
	st, err := r.WaitHealth(within(t), "healthy")
	if err != nil {
		t.Fatal(err)
	}
	report, err := l.Compare(within(t), r.Servers)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Differences) != 0 || len(report.Extra) != 0 {
		t.Errorf("%v, extra %v", report.Differences, report.Extra)
	}
	return uint64(len(report.Lost[*st.Master]))
}
