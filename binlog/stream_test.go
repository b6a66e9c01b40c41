package binlog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/repld/repld/binlog"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/test/mariadb"
)

func TestCommitsAreSeenAtOnce(t *testing.T) {
	s := master(t)
	s.MustExec(t, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
	var r recorder
	run(t, options(s), binlog.Now(), &r)
	mariadb.Eventually(t, soon, r.connectedTimes(1))

	const n = 100
	returned := make([]time.Time, n)
	for i := range n {
		s.MustExec(t, fmt.Sprintf("INSERT INTO d.t VALUES (%d)", i))
		returned[i] = time.Now()
	}
	mariadb.Eventually(t, soon, r.has(now(t, s)))
	seen := r.transactions()
	if len(seen) != n {
		t.Fatalf("%d transactions seen, %d were committed since", len(seen), n)
	}
	late := make([]time.Duration, n)
	for i := range n {
		late[i] = seen[i].At.Sub(returned[i])
	}
	slices.Sort(late)
	t.Logf("commit returned to seen: median %v, max %v", late[n/2], late[n-1])
	if late[n/2] > 500*time.Millisecond {
		t.Errorf("median from commit to seen is %v", late[n/2])
	}
}

// every statement here makes one or more groups of a kind of its own.
var kinds = []string{
	"CREATE DATABASE d", "USE d",
	"CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(2000), b LONGBLOB)",
	"CREATE TABLE m (id INT PRIMARY KEY, v INT) ENGINE=MyISAM",
	"INSERT INTO t (v) VALUES ('a'),('b'),('c')",
	"SET @v='x'", "INSERT INTO t (v) SELECT CONCAT(@v, RAND())",
	"INSERT INTO m VALUES (1,1)", "UPDATE m SET v=2",
	"CREATE TABLE c SELECT * FROM t",
	"CREATE TEMPORARY TABLE tmp (i INT)", "INSERT INTO tmp VALUES (1)", "INSERT INTO t (v) SELECT i FROM tmp", "DROP TEMPORARY TABLE tmp",
	"BEGIN", "INSERT INTO t (v) VALUES ('in')", "SAVEPOINT s", "INSERT INTO t (v) VALUES ('out')", "ROLLBACK TO s", "COMMIT",
	"BEGIN", "INSERT INTO m VALUES (5,5)", "INSERT INTO t (v) VALUES ('never')", "ROLLBACK",
	"XA START 'x'", "INSERT INTO t (v) VALUES ('xa')", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'",
	"XA START 'y'", "INSERT INTO t (v) VALUES ('xb')", "XA END 'y'", "XA PREPARE 'y'", "XA ROLLBACK 'y'",
	"XA START 'z'", "INSERT INTO t (v) VALUES ('xc')", "XA END 'z'", "XA COMMIT 'z' ONE PHASE",
	"CREATE PROCEDURE p() BEGIN INSERT INTO t (v) VALUES ('p'); INSERT INTO t (v) VALUES ('q'); END", "CALL p()",
	"CREATE TRIGGER g AFTER INSERT ON t FOR EACH ROW UPDATE m SET v=v+1", "INSERT INTO t (v) VALUES ('trigger')", "DROP TRIGGER g",
	"ALTER TABLE t ADD COLUMN n INT", "TRUNCATE c", "ANALYZE TABLE t", "OPTIMIZE TABLE m",
	"FLUSH BINARY LOGS",
	"INSERT INTO t (v) VALUES (REPEAT('compress me ', 100))",
	"UPDATE t SET v=REPEAT('y', 1500)", "DELETE FROM t WHERE id<3",
	"INSERT INTO t (v) VALUES ('COMMIT')", "UPDATE t SET v='\\0COMMIT' WHERE id=4",
	"FLUSH BINARY LOGS", "FLUSH TABLES", "CREATE USER u@localhost", "DROP USER u@localhost",
	"INSERT INTO t (b) VALUES (REPEAT('z', 20*1024*1024))",
	"INSERT INTO t (b) VALUES (REPEAT('z', 16777215-200))",
	"DROP TABLE t, m, c", "DROP DATABASE d",
}

func TestTransactionsAreBoundedAsTheServerListsThem(t *testing.T) {
	for _, c := range []struct {
		name   string
		config []string
	}{
		{"row", []string{"binlog-format=ROW"}},
		{"statement", []string{"binlog-format=STATEMENT"}},
		{"mixed", []string{"binlog-format=MIXED", "binlog-annotate-row-events=0"}},
		{"compressed", []string{"binlog-format=ROW", "log-bin-compress=ON", "log-bin-compress-min-len=10"}},
		{"compressed statement", []string{"binlog-format=STATEMENT", "log-bin-compress=ON", "log-bin-compress-min-len=10"}},
		{"minimal row image", []string{"binlog-format=ROW", "binlog-row-image=MINIMAL"}},
		{"no checksum", []string{"binlog-format=MIXED", "binlog-checksum=NONE"}},
		{"two-phase alter", []string{"binlog-alter-two-phase=ON"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := master(t, append(c.config, "max-allowed-packet=64M")...)
			var r recorder
			run(t, options(s), binlog.Now(), &r)
			mariadb.Eventually(t, soon, r.connectedTimes(1))
			s.MustExec(t, kinds...)
			if !strings.Contains(c.name, "statement") {
				s.MustExec(t, "CREATE DATABASE e", "CREATE SEQUENCE e.q", "SELECT NEXTVAL(e.q)", "DROP DATABASE e")
			}
			mariadb.Eventually(t, soon, r.has(now(t, s)))
			compare(t, r.transactions(), listed(t, s))
			var files []string
			for _, x := range r.rotated {
				files = append(files, fmt.Sprint(x.File, " ", x.Restarted))
			}
			// The log was empty: the server was started at its very position.
			want := []string{"binlog.000001 true", "binlog.000002 false", "binlog.000003 false"}
			if !slices.Equal(files, want) {
				t.Errorf("told of files %q, want %q", files, want)
			}
			// Once more, from the beginning, and from the middle.
			seen := r.transactions()
			middle := len(seen) / 2
			for _, from := range []struct {
				after gtid.Position
				want  []binlog.Transaction
			}{{gtid.Position{}, seen}, {gtid.At(seen[middle].GTID), seen[middle+1:]}} {
				var again recorder
				o := options(s)
				o.ServerID++
				run(t, o, binlog.After(from.after), &again)
				mariadb.Eventually(t, soon, again.has(now(t, s)))
				got := again.transactions()
				if len(got) != len(from.want) {
					t.Fatalf("after %q: %d transactions, want %d", from.after, len(got), len(from.want))
				}
				for i := range got {
					got[i].At = from.want[i].At
					if got[i] != from.want[i] {
						t.Fatalf("after %q: transaction %+v, want %+v", from.after, got[i], from.want[i])
					}
				}
			}
		})
	}
}

func TestGroupCommitsOfManyWritersAreSeenOnceAndInOrder(t *testing.T) {
	s := master(t, "binlog-commit-wait-count=4", "binlog-commit-wait-usec=2000")
	s.MustExec(t, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, w INT)")
	var r recorder
	run(t, options(s), binlog.After(gtid.Position{}), &r)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for range 50 {
				if err := s.Exec(context.Background(), fmt.Sprintf("INSERT INTO d.t (w) VALUES (%d)", w)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	mariadb.Eventually(t, soon, r.has(now(t, s)))
	compare(t, r.transactions(), listed(t, s))
	groups := 0
	for _, tx := range r.transactions() {
		if tx.CommitID != 0 && tx.Flags.Has(binlog.FlagGroupCommit) {
			groups++
		}
	}
	if groups == 0 {
		t.Error("no transaction was committed in a group: the test did not test it")
	}
}

func TestAKilledMasterIsNoticedAtOnceAndFollowedAgainWithoutGap(t *testing.T) {
	s := master(t)
	s.MustExec(t, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, v TEXT)")
	var r recorder
	stream := run(t, options(s), binlog.After(gtid.Position{}), &r)
	for round := range 3 {
		mariadb.Eventually(t, soon, r.connectedTimes(round+1))
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
					_ = s.Exec(context.Background(), "INSERT INTO d.t (v) VALUES (REPEAT('v', 3000))") // fails when it dies
				}
			}
		}()
		before := len(r.transactions())
		mariadb.Eventually(t, soon, r.look(func(r *recorder) error {
			if len(r.txs) < before+30 {
				return errors.New("no load")
			}
			return nil
		}))
		killed := time.Now()
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
		close(stop)
		mariadb.Eventually(t, soon, r.look(func(r *recorder) error {
			for _, d := range r.lost {
				if d.Attempt == 0 && d.At.After(killed) {
					t.Logf("noticed after %v: %v", d.At.Sub(killed), errors.Unwrap(d.Err))
					if !errors.Is(d.Err, binlog.ErrBroken) {
						t.Errorf("the first symptom is %v", d.Err)
					}
					// Far below Silence: it was the break that told, on however busy a machine.
					if late := d.At.Sub(killed); late > 3*time.Second {
						t.Errorf("noticed only after %v", late)
					}
					return nil
				}
			}
			return errors.New("not noticed")
		}))
		<-stopped
		if err := s.StartAgain(t.Context()); err != nil {
			t.Fatal(err)
		}
		started := time.Now()
		mariadb.Eventually(t, soon, r.connectedTimes(round+2))
		t.Logf("connected again %v after it answered", time.Since(started))
		s.MustExec(t, "INSERT INTO d.t (v) VALUES ('after the restart')")
		mariadb.Eventually(t, soon, r.has(now(t, s)))
	}
	compare(t, r.transactions(), listed(t, s))
	restarts := 0
	for _, x := range r.rotated {
		if x.Restarted {
			restarts++
		}
	}
	if restarts != 1+3 {
		t.Errorf("told of %d starts, there were 4: %+v", restarts, r.rotated)
	}
	if p, ok := stream.Position(); !ok || p.Of(0) != now(t, s) {
		t.Errorf("position %s, %v", p, ok)
	}
}

func TestAFrozenMasterStopsItsHeartbeatsAndNothingElse(t *testing.T) {
	s := master(t)
	s.MustExec(t, "CREATE DATABASE d")
	var r recorder
	run(t, options(s), binlog.Now(), &r)
	mariadb.Eventually(t, soon, r.connectedTimes(1))
	time.Sleep(time.Second) // a period is measured
	if n := r.beats(); n < 5 || n > 12 {
		t.Errorf("%d heartbeats within a second, want about 10", n)
	}
	if err := s.Freeze(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond) // what was on its way
	before := r.beats()
	time.Sleep(700 * time.Millisecond)
	if n := r.beats() - before; n > 0 {
		t.Errorf("%d heartbeats from a frozen server", n)
	}
	if err := s.Thaw(); err != nil {
		t.Fatal(err)
	}
	s.MustExec(t, "CREATE DATABASE e")
	mariadb.Eventually(t, soon, r.has(now(t, s)))
	if err := r.look(func(r *recorder) error {
		if len(r.lost) > 0 || len(r.connected) != 1 {
			return fmt.Errorf("connected %d times, lost %v", len(r.connected), r.lost)
		}
		h := r.heartbeats[0]
		if h.File == "" || h.Pos < 4 || h.At.IsZero() {
			return fmt.Errorf("heartbeat %+v", h)
		}
		return nil
	})(); err != nil {
		t.Error(err)
	}
}

func TestSilenceEndsAConnectionInTheEnd(t *testing.T) {
	s := master(t)
	var r recorder
	o := options(s)
	o.Silence, o.DialTimeout = 500*time.Millisecond, 300*time.Millisecond
	run(t, o, binlog.Now(), &r)
	mariadb.Eventually(t, soon, r.connectedTimes(1))
	if err := s.Freeze(); err != nil {
		t.Fatal(err)
	}
	mariadb.Eventually(t, soon, r.look(func(r *recorder) error {
		if len(r.lost) < 3 {
			return errors.New("no silence told")
		}
		for _, d := range r.lost {
			if !errors.Is(d.Err, binlog.ErrSilent) {
				t.Errorf("attempt %d: %v", d.Attempt, d.Err)
			}
		}
		return nil
	}))
	if err := s.Thaw(); err != nil {
		t.Fatal(err)
	}
	mariadb.Eventually(t, soon, r.connectedTimes(2))
}

func TestCloseIsPromptWhateverTheStreamDoes(t *testing.T) {
	s := master(t)
	closeIn := func(o binlog.Options, ready func(*recorder) func() error) {
		t.Helper()
		var r recorder
		stream := run(t, o, binlog.Now(), &r)
		mariadb.Eventually(t, soon, ready(&r))
		began := time.Now()
		stream.Close()
		if d := time.Since(began); d > 3*time.Second {
			t.Errorf("Close took %v", d)
		}
		n := len(r.lost)
		if len(r.connected) > 0 && (n == 0 || !errors.Is(r.lost[n-1].Err, binlog.ErrClosed)) {
			t.Errorf("the end of an open stream was told as %v", r.lost)
		}
	}
	closeIn(options(s), func(r *recorder) func() error { return r.connectedTimes(1) })
	nobody := options(s)
	nobody.Address = "127.0.0.1:1"
	closeIn(nobody, func(r *recorder) func() error {
		return r.look(func(r *recorder) error {
			if len(r.lost) < 5 {
				return errors.New("not yet in its longest pause")
			}
			return nil
		})
	})
	if err := s.Freeze(); err != nil {
		t.Fatal(err)
	}
	closeIn(options(s), func(r *recorder) func() error { // inside the handshake
		began := time.Now()
		return func() error {
			if time.Since(began) < 100*time.Millisecond {
				return errors.New("dialling")
			}
			return nil
		}
	})
	if err := s.Thaw(); err != nil {
		t.Fatal(err)
	}
}
