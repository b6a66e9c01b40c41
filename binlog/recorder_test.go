package binlog_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/repld/repld/binlog"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/test/mariadb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// recorder keeps all that a stream told.
type recorder struct {
	mu         sync.Mutex
	connected  []binlog.Connected
	txs        []binlog.Transaction
	heartbeats []binlog.Heartbeat
	rotated    []binlog.Rotated
	lost       []binlog.Disconnected
}

func (r *recorder) Connected(c binlog.Connected) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.connected = append(r.connected, c)
}

func (r *recorder) Transaction(tx binlog.Transaction) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.txs = append(r.txs, tx)
}

func (r *recorder) Heartbeat(h binlog.Heartbeat) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heartbeats = append(r.heartbeats, h)
}

func (r *recorder) Rotated(x binlog.Rotated) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rotated = append(r.rotated, x)
}

func (r *recorder) Disconnected(d binlog.Disconnected) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost = append(r.lost, d)
}

// look reads the recorder under its lock.
func (r *recorder) look(f func(*recorder) error) func() error {
	return func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		return f(r)
	}
}

func (r *recorder) transactions() []binlog.Transaction {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]binlog.Transaction(nil), r.txs...)
}

func (r *recorder) has(g gtid.GTID) func() error {
	return r.look(func(r *recorder) error {
		for i := range r.txs {
			if r.txs[i].GTID == g {
				return nil
			}
		}
		return fmt.Errorf("%s is not among %d transactions seen", g, len(r.txs))
	})
}

func (r *recorder) connectedTimes(n int) func() error {
	return r.look(func(r *recorder) error {
		if len(r.connected) < n {
			return fmt.Errorf("connected %d times, want %d; lost: %v", len(r.connected), n, r.lost)
		}
		return nil
	})
}

func (r *recorder) beats() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.heartbeats)
}

// run starts a stream that ends with the test.
func run(t *testing.T, o binlog.Options, start binlog.Start, h binlog.Handler) *binlog.Stream {
	t.Helper()
	s, err := binlog.NewStream(o, start, h)
	if err != nil {
		t.Fatal(err)
	}
	go s.Run(context.Background())
	t.Cleanup(s.Close)
	return s
}

const replAccount = "CREATE USER repl@'%' IDENTIFIED BY 'secret'"
const replGrant = "GRANT REPLICATION SLAVE ON *.* TO repl@'%'"

// master starts a server with a replication account. The account is not in its
// binary log, so that the log begins with what a test writes.
func master(t *testing.T, config ...string) *mariadb.Server {
	t.Helper()
	s := mariadb.Start(t, mariadb.Options{Config: append(mariadb.Replicating(1), config...)})
	s.MustExec(t, "SET sql_log_bin=0", replAccount, replGrant, "SET sql_log_bin=1")
	return s
}

func options(s *mariadb.Server) binlog.Options {
	return binlog.Options{Address: s.Addr(), User: "repl", Password: "secret", ServerID: 900}
}

// now is the last transaction of the server's log.
func now(t *testing.T, s *mariadb.Server) gtid.GTID {
	t.Helper()
	p, err := gtid.ParsePosition(s.MustValue(t, "SELECT @@gtid_binlog_pos"))
	if err != nil {
		t.Fatal(err)
	}
	return p.Of(0)
}

// group is a transaction as the server itself lists it.
type group struct {
	id         string
	file       string
	start, end uint64
	events     int
}

// listed reads all groups of the server's binary logs from SHOW BINLOG EVENTS.
func listed(t *testing.T, s *mariadb.Server) []group {
	t.Helper()
	logs, err := s.Rows(t.Context(), "SHOW BINARY LOGS")
	if err != nil {
		t.Fatal(err)
	}
	var out []group
	for _, log := range logs {
		file := log["Log_name"]
		rows, err := s.Rows(t.Context(), "SHOW BINLOG EVENTS IN '"+file+"'")
		if err != nil {
			t.Fatal(err)
		}
		in := false
		for _, row := range rows {
			switch row["Event_type"] {
			case "Gtid":
				words := strings.Fields(row["Info"])
				in = true
				for i, w := range words {
					if w == "GTID" {
						out = append(out, group{id: words[i+1], file: file, start: number(t, row["Pos"])})
					}
				}
			case "Format_desc", "Gtid_list", "Binlog_checkpoint", "Rotate", "Stop":
				in = false
			}
			if in {
				g := &out[len(out)-1]
				g.end = number(t, row["End_log_pos"])
				g.events++
			}
		}
	}
	return out
}

func number(t *testing.T, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// compare fails unless the transactions seen are those that the server lists,
// each once, in order, with the same bounds.
func compare(t *testing.T, seen []binlog.Transaction, want []group) {
	t.Helper()
	for i := range min(len(seen), len(want)) {
		tx := seen[i]
		got := group{tx.GTID.String(), tx.File, tx.Start, tx.Pos, tx.Events}
		if got != want[i] {
			t.Fatalf("transaction %d: seen %+v, the server lists %+v", i, got, want[i])
		}
		if tx.Bytes != tx.Pos-tx.Start {
			t.Fatalf("transaction %s: %d bytes, lies between %d and %d", tx.GTID, tx.Bytes, tx.Start, tx.Pos)
		}
	}
	if len(seen) != len(want) {
		t.Fatalf("%d transactions seen, the server lists %d", len(seen), len(want))
	}
}

const soon = 10 * time.Second
