package binlog_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/repld/repld/binlog"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/test/mariadb"
)

// shelf is a Recorder that keeps transactions in memory.
type shelf struct {
	mu     sync.Mutex
	start  gtid.Position // after which it begins while it has nothing
	kept   []kept
	part   []byte
	format []byte
	peer   binlog.Peer
	begun  int
	closed int
	notAck bool                 // no acker
	hold   bool                 // what is asked for is not acknowledged
	owed   []binlog.Transaction // was to be acknowledged while hold
	fail   error                // of the next Commit
}

type kept struct {
	tx    binlog.Transaction
	bytes []byte
}

// Begin asks again for the last transaction that is there.
func (s *shelf) Begin(p binlog.Peer) (binlog.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.peer = p
	s.begun++
	r := binlog.Record{Sink: s, After: s.start, Acker: !s.notAck}
	if n := len(s.kept); n > 0 {
		r.Have = s.kept[n-1].tx.GTID
	}
	if n := len(s.kept); n > 1 {
		r.After = gtid.At(s.kept[n-2].tx.GTID)
	}
	return r, nil
}

func (s *shelf) Format(raw []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.format = bytes.Clone(raw)
	return nil
}

func (s *shelf) Append(p []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.part = append(s.part, p...)
	return nil
}

func (s *shelf) Commit(tx binlog.Transaction, ack bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return s.fail
	}
	s.kept = append(s.kept, kept{tx, s.part})
	s.part = nil
	if !ack || s.hold {
		if ack {
			s.owed = append(s.owed, tx)
		}
		return nil
	}
	return s.peer.Acknowledge(tx)
}

func (s *shelf) Abandon() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.part = nil
	return nil
}

func (s *shelf) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed++
	return nil
}

// change changes a setting under the lock.
func (s *shelf) change(f func(*shelf)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

func (s *shelf) has(g gtid.GTID) func() error {
	return func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := len(s.kept); n == 0 || s.kept[n-1].tx.GTID != g {
			return fmt.Errorf("%s is not the last of %d kept", g, n)
		}
		return nil
	}
}

// compare fails unless what is kept is what stands in the server's own files.
func (s *shelf) compare(t *testing.T, sv *mariadb.Server) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var txs []binlog.Transaction
	files := map[string][]byte{}
	for _, k := range s.kept {
		txs = append(txs, k.tx)
		if files[k.tx.File] == nil {
			b, err := os.ReadFile(filepath.Join(sv.DataDir, k.tx.File))
			if err != nil {
				t.Fatal(err)
			}
			files[k.tx.File] = b
		}
		if !bytes.Equal(k.bytes, files[k.tx.File][k.tx.Start:k.tx.Pos]) {
			t.Fatalf("%s: %d bytes kept are not those in %s from %d to %d", k.tx.GTID, len(k.bytes), k.tx.File, k.tx.Start, k.tx.Pos)
		}
	}
	compare(t, txs, listed(t, sv))
}

// record starts a stream that is recorded.
func record(t *testing.T, o binlog.Options, start binlog.Start, h binlog.Handler, s *shelf) *binlog.Stream {
	t.Helper()
	stream, err := binlog.NewStream(o, start, h)
	if err != nil {
		t.Fatal(err)
	}
	stream.Record(s)
	go stream.Run(context.Background())
	t.Cleanup(stream.Close)
	return stream
}

// waiting are the settings of a master that waits for an acker.
var waiting = []string{"rpl-semi-sync-master-wait-point=AFTER_SYNC", "rpl-semi-sync-master-timeout=3600000",
	"rpl-semi-sync-master-enabled=1", "max-allowed-packet=64M"}

// semisync reads the server's counters.
func semisync(t *testing.T, s *mariadb.Server, name string) int {
	t.Helper()
	v := s.MustValue(t, "SELECT variable_value FROM information_schema.global_status WHERE variable_name='Rpl_semi_sync_master_"+name+"'")
	if v == "ON" || v == "OFF" {
		return map[string]int{"ON": 1}[v]
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func clients(t *testing.T, s *mariadb.Server, want int) func() error {
	return func() error {
		if n := semisync(t, s, "clients"); n != want {
			return fmt.Errorf("%d ackers, want %d", n, want)
		}
		return nil
	}
}

// TestAnAckerKeepsEverythingAsItStandsInTheLog: every commit waits for the
// stream; what it is given are the bytes of the server's own files.
func TestAnAckerKeepsEverythingAsItStandsInTheLog(t *testing.T) {
	for _, config := range [][]string{
		{"binlog-format=ROW"}, {"binlog-format=STATEMENT", "binlog-checksum=NONE"},
		{"binlog-format=ROW", "log-bin-compress=ON", "log-bin-compress-min-len=10"}, {"binlog-alter-two-phase=ON"},
	} {
		t.Run(strings.Join(config, " "), func(t *testing.T) {
			s := master(t, append(config, waiting...)...)
			var r recorder
			var kept shelf
			record(t, options(s), binlog.Now(), &r, &kept)
			mariadb.Eventually(t, soon, clients(t, s, 1))
			s.MustExec(t, kinds...)
			mariadb.Eventually(t, soon, kept.has(now(t, s)))
			mariadb.Eventually(t, soon, r.has(now(t, s)))
			kept.compare(t, s)
			compare(t, r.transactions(), listed(t, s))
			if no := semisync(t, s, "no_tx"); no != 0 {
				t.Errorf("%d commits were not acknowledged", no)
			}
			if want := !strings.Contains(strings.Join(config, " "), "NONE"); kept.peer.Checksums != want {
				t.Errorf("checksums %v", kept.peer.Checksums)
			}
		})
	}
}

// TestManyCommitsAreAcknowledgedTogether: over TLS, with many writers, for
// longer than packets are counted before the count begins anew.
func TestManyCommitsAreAcknowledgedTogether(t *testing.T) {
	pool, files := certificate(t, t.TempDir(), "good", "127.0.0.1", time.Now().Add(time.Hour))
	s := master(t, append(files, waiting...)...)
	o := options(s)
	o.TLS = &tls.Config{RootCAs: pool}
	var kept shelf
	record(t, o, binlog.Now(), &recorder{}, &kept)
	mariadb.Eventually(t, soon, clients(t, s, 1))
	s.MustExec(t, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, w INT)")
	var g sync.WaitGroup
	const writers, each = 8, 100
	for w := range writers {
		g.Go(func() {
			for range each {
				if err := s.Exec(t.Context(), fmt.Sprintf("INSERT INTO d.t (w) VALUES (%d)", w)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	g.Wait()
	mariadb.Eventually(t, soon, kept.has(now(t, s)))
	kept.compare(t, s)
	if yes, no := semisync(t, s, "yes_tx"), semisync(t, s, "no_tx"); yes < writers*each || no != 0 {
		t.Errorf("%d commits were acknowledged, %d were not", yes, no)
	}
}

// TestAnAckerAcknowledgesAgainAfterABreak: a transaction that was kept, and
// whose acknowledgement never left, would hang for ever.
func TestAnAckerAcknowledgesAgainAfterABreak(t *testing.T) {
	s := master(t, waiting...)
	var r recorder
	var kept shelf
	record(t, options(s), binlog.Now(), &r, &kept)
	mariadb.Eventually(t, soon, clients(t, s, 1))
	s.MustExec(t, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1)")
	for n := 2; n < 6; n++ {
		kept.change(func(k *shelf) { k.hold = true })
		told := make(chan error, 1)
		go func() { told <- s.Exec(t.Context(), fmt.Sprintf("INSERT INTO d.t VALUES (%d)", n)) }()
		mariadb.Eventually(t, soon, func() error {
			kept.mu.Lock()
			defer kept.mu.Unlock()
			if len(kept.owed) < 1 {
				return errors.New("nothing is waited for")
			}
			return nil
		})
		select {
		case err := <-told:
			t.Fatalf("a commit was answered that nobody acknowledged: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
		kept.change(func(k *shelf) { k.hold, k.owed = false, nil })
		kill(t, s)
		select {
		case err := <-told:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(soon):
			t.Fatal("a commit is not answered after the stream came back")
		}
	}
	mariadb.Eventually(t, soon, r.has(now(t, s)))
	kept.compare(t, s)
	compare(t, r.transactions(), listed(t, s))
	kept.change(func(k *shelf) {
		if k.begun != 5 || k.closed != 4 {
			t.Errorf("begun %d times, closed %d times", k.begun, k.closed)
		}
	})
}

// kill ends the dump's session on the server.
func kill(t *testing.T, s *mariadb.Server) {
	t.Helper()
	id := s.MustValue(t, "SELECT id FROM information_schema.processlist WHERE command='Binlog Dump'")
	s.MustExec(t, "KILL CONNECTION "+id)
}

// TestAMasterThatWaitsNoMoreIsCaughtUp: a server that gave up waiting asks for
// an acknowledgement of every event, and waits again when the last one is in.
func TestAMasterThatWaitsNoMoreIsCaughtUp(t *testing.T) {
	s := master(t, append(waiting, "rpl-semi-sync-master-timeout=50")...)
	s.MustExec(t, kinds...) // one wait runs into the timeout
	if semisync(t, s, "status") != 0 {
		t.Fatal("the master did not give up waiting")
	}
	var kept shelf
	record(t, options(s), binlog.After(gtid.Position{}), &recorder{}, &kept)
	mariadb.Eventually(t, soon, func() error {
		if semisync(t, s, "status") == 0 {
			return errors.New("the master does not wait again")
		}
		return nil
	})
	kept.compare(t, s)
}

// TestWhatCannotBeKeptIsNotLost: the stream goes on from what was kept as soon
// as that is possible again, and its handler hears of nothing twice.
func TestWhatCannotBeKeptIsNotLost(t *testing.T) {
	s := master(t)
	s.MustExec(t, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
	var r recorder
	kept := shelf{notAck: true}
	record(t, options(s), binlog.Now(), &r, &kept)
	mariadb.Eventually(t, soon, r.connectedTimes(1))
	full := errors.New("no space left")
	kept.change(func(k *shelf) { k.fail = full })
	s.MustExec(t, "INSERT INTO d.t VALUES (1)", "INSERT INTO d.t VALUES (2)")
	mariadb.Eventually(t, soon, r.look(func(r *recorder) error {
		for _, d := range r.lost {
			if errors.Is(d.Err, binlog.ErrKeep) && errors.Is(d.Err, full) {
				return nil
			}
		}
		return fmt.Errorf("not told of: %v", r.lost)
	}))
	kept.change(func(k *shelf) { k.fail = nil })
	s.MustExec(t, "INSERT INTO d.t VALUES (3)")
	mariadb.Eventually(t, soon, kept.has(now(t, s)))
	mariadb.Eventually(t, soon, r.has(now(t, s)))
	kept.compare(t, s)
	seen := map[gtid.GTID]bool{}
	for _, tx := range r.transactions() {
		if seen[tx.GTID] {
			t.Errorf("%s is told of twice", tx.GTID)
		}
		seen[tx.GTID] = true
	}
	if len(seen) != 3 {
		t.Errorf("%d transactions told of, want 3", len(seen))
	}
	if n := semisync(t, s, "clients"); n != 0 {
		t.Errorf("%d ackers, though the record is none", n)
	}
}
