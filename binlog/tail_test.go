package binlog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/repld/repld/binlog"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/test/mariadb"
)

// readTail reads a tail into a file and lets mariadb-binlog read it.
func readTail(t *testing.T, o binlog.Options, after gtid.Position) (*binlog.Tail, []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tail.000001")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	tail, err := binlog.ReadTail(t.Context(), o, after, f)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(file); err != nil || st.Size() != tail.Written {
		t.Errorf("%d bytes said to be written, there are %v, %v", tail.Written, st.Size(), err)
	}
	out, err := exec.Command("mariadb-binlog", "--verify-binlog-checksum", "--verbose", file).CombinedOutput()
	if err != nil {
		t.Fatalf("mariadb-binlog: %v\n%s", err, out)
	}
	if bytes.Contains(out, []byte("ERROR")) || bytes.Contains(out, []byte("WARNING")) {
		t.Errorf("mariadb-binlog says:\n%s", out)
	}
	var ids []string
	for _, m := range regexp.MustCompile(`(?m)GTID (\d+-\d+-\d+)`).FindAllSubmatch(out, -1) {
		ids = append(ids, string(m[1]))
	}
	return tail, ids
}

func checkTail(t *testing.T, s *mariadb.Server, tail *binlog.Tail, ids []string, after uint64) {
	t.Helper()
	var want []group
	for _, g := range listed(t, s) {
		if id, err := gtid.Parse(g.id); err != nil {
			t.Fatal(err)
		} else if id.Seq > after {
			want = append(want, g)
		}
	}
	compare(t, tail.Transactions, want)
	if len(ids) != len(want) {
		t.Fatalf("mariadb-binlog shows %d transactions, want %d", len(ids), len(want))
	}
	for i := range ids {
		if ids[i] != want[i].id {
			t.Fatalf("mariadb-binlog shows %s, want %s", ids[i], want[i].id)
		}
	}
}

func TestATailIsCopiedByteByByte(t *testing.T) {
	for _, format := range []string{"ROW", "STATEMENT"} {
		for _, more := range []string{"binlog-checksum=CRC32", "binlog-checksum=NONE", "log-bin-compress=ON"} {
			t.Run(format+" "+more, func(t *testing.T) {
				s := master(t, "binlog-format="+format, more, "max-allowed-packet=64M")
				s.MustExec(t, kinds...)
				for _, after := range []string{"", "0-1-1", "0-1-7", "0-1-" + fmt.Sprint(now(t, s).Seq)} {
					p := position(t, after)
					tail, ids := readTail(t, options(s), p)
					checkTail(t, s, tail, ids, p.Of(0).Seq)
					if after != "" && len(tail.Restarts) > 0 {
						t.Errorf("after %q: restarts %v, there was none", after, tail.Restarts)
					}
				}
			})
		}
	}
}

func TestATailTellsWhereTheServerWasRestarted(t *testing.T) {
	for _, how := range []struct {
		name    string
		restart func(*mariadb.Server) error
	}{
		{"killed", func(s *mariadb.Server) error { return errors.Join(s.Kill(), s.StartAgain(context.Background())) }},
		{"stopped in order", func(s *mariadb.Server) error { return s.Restart(context.Background()) }},
	} {
		t.Run(how.name, func(t *testing.T) {
			s := master(t, "binlog-format=ROW")
			s.MustExec(t, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1)", // 0-1-3
				"INSERT INTO d.t VALUES (2)", "FLUSH BINARY LOGS", "INSERT INTO d.t VALUES (3)") // 4, 5
			if err := how.restart(s); err != nil {
				t.Fatal(err)
			}
			s.MustExec(t, "INSERT INTO d.t VALUES (4)", "FLUSH BINARY LOGS", "INSERT INTO d.t VALUES (5)") // 6, 7
			if err := how.restart(s); err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				after  uint64
				before []int
			}{
				{3, []int{2, 4}}, // in the middle of the first file
				{4, []int{1, 3}}, // at the end of a file that was rotated
				{5, []int{0, 2}}, // at the end of a file that the first restart ended
				{6, []int{1}},    // after the first restart
				{7, []int{0}},    // at the very end: only the second restart follows
			} {
				tail, ids := readTail(t, options(s), position(t, fmt.Sprint("0-1-", c.after)))
				checkTail(t, s, tail, ids, c.after)
				var got []int
				for _, r := range tail.Restarts {
					got = append(got, r.Before)
				}
				if fmt.Sprint(got) != fmt.Sprint(c.before) {
					t.Errorf("after 0-1-%d: restarts before %v, want %v (%+v)", c.after, got, c.before, tail.Restarts)
				}
				if len(got) > 0 && len(tail.BeforeRestart()) != got[0] {
					t.Errorf("after 0-1-%d: %d transactions before the restart", c.after, len(tail.BeforeRestart()))
				}
			}
		})
	}
}

func TestATailDisturbsNobody(t *testing.T) {
	s := master(t)
	s.MustExec(t, "CREATE DATABASE d")
	var r recorder
	run(t, options(s), binlog.Now(), &r)
	mariadb.Eventually(t, soon, r.connectedTimes(1))
	for range 5 {
		readTail(t, options(s), gtid.Position{}) // the same server_id is given, and not used
	}
	if n := s.MustValue(t, "SELECT COUNT(*) FROM information_schema.processlist WHERE command='Binlog Dump'"); n != "1" {
		t.Errorf("%s dumps", n)
	}
	s.MustExec(t, "DROP DATABASE d")
	mariadb.Eventually(t, soon, r.has(now(t, s)))
	if len(r.lost) > 0 {
		t.Errorf("the stream was disturbed: %v", r.lost)
	}
}

// TestATailDoesNotAcknowledge: a commit that waits for an acker goes on waiting
// while its transaction is read, by a tail and by a stream.
func TestATailAndAStreamDoNotAcknowledge(t *testing.T) {
	s := master(t, "rpl-semi-sync-master-wait-point=AFTER_SYNC", "rpl-semi-sync-master-timeout=3600000")
	s.MustExec(t, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "SET GLOBAL rpl_semi_sync_master_enabled=1")
	var r recorder
	run(t, options(s), binlog.Now(), &r)
	mariadb.Eventually(t, soon, r.connectedTimes(1))
	before := now(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	told := make(chan error, 1)
	conn, err := s.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, err := conn.ExecContext(ctx, "INSERT INTO d.t VALUES (1)")
		told <- err
	}()
	waiting := gtid.GTID{Domain: 0, Server: 1, Seq: before.Seq + 1}
	mariadb.Eventually(t, soon, r.has(waiting))
	tail, _ := readTail(t, options(s), gtid.At(before))
	if len(tail.Transactions) != 1 || tail.Transactions[0].GTID != waiting {
		t.Fatalf("the waiting transaction is not in the tail: %+v", tail.Transactions)
	}
	select {
	case err := <-told:
		t.Errorf("the commit was answered: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	if n := s.MustValue(t, "SELECT variable_value FROM information_schema.global_status WHERE variable_name='Rpl_semi_sync_master_clients'"); n != "0" {
		t.Errorf("%s ackers", n)
	}
	cancel()
	<-told
	_ = conn.Close()
}

func TestATailOfAnUnknownPositionIsAnError(t *testing.T) {
	s := master(t)
	s.MustExec(t, "CREATE DATABASE d")
	var b bytes.Buffer
	if _, err := binlog.ReadTail(t.Context(), options(s), position(t, "0-1-9"), &b); !errors.Is(err, binlog.ErrNotInBinlog) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := binlog.ReadTail(ctx, options(s), gtid.Position{}, &b); !errors.Is(err, binlog.ErrClosed) {
		t.Error(err)
	}
	if b.Len() > 0 {
		t.Errorf("%d bytes were written", b.Len())
	}
}

func TestAWitnessSeesWhatIsWritten(t *testing.T) {
	s := master(t)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	w, err := binlog.NewWitness(ctx, options(s))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	s.MustExec(t, "CREATE DATABASE d", "CREATE DATABASE e")
	for _, seq := range []uint64{2, 1} { // in any order, also afterwards
		tx, err := w.Wait(ctx, gtid.GTID{Server: 1, Seq: seq})
		if err != nil || tx.GTID.Seq != seq || !tx.Flags.Has(binlog.FlagDDL) {
			t.Errorf("%+v, %v", tx, err)
		}
	}
	short, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer end()
	if _, err := w.Wait(short, gtid.GTID{Server: 1, Seq: 3}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a transaction that does not exist: %v", err)
	}
	nobody := options(s)
	nobody.Address = "127.0.0.1:1"
	if _, err := binlog.NewWitness(ctx, nobody); !errors.Is(err, binlog.ErrRefused) {
		t.Error(err)
	}
}
