package e2e

import (
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/ledger"
	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/test/rig"
)

// behind is a cluster of three in which db2 is preferred and lacks what db3,
// which is to be avoided, has received and applied: its IO thread was stopped for
// a while. gap is how many transactions it lacks.
func behind(t *testing.T, writes int) (r *rig.Rig, l *ledger.Ledger, gap uint64) {
	t.Helper()
	r = start(t, rig.Options{Servers: 3})
	if err := r.StartRepld(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := r.InitMaster(within(t), r.Server("db1")); err != nil {
		t.Fatal(err)
	}
	for name, wish := range map[string]string{"db2": "prefer", "db3": "avoid"} {
		if err := r.InitSlave(within(t), r.Server(name), "--promotion", wish); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
		t.Fatal(err)
	}
	l = write(t, r)
	l.Stop()
	db1, db2, db3 := r.Server("db1"), r.Server("db2"), r.Server("db3")
	db1.MustExec(t, "CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY)")
	for _, s := range []*mariadb.Server{db2, db3} {
		if err := s.CatchUp(within(t), db1); err != nil {
			t.Fatal(err)
		}
	}
	db2.MustExec(t, "STOP SLAVE IO_THREAD")
	statements := make([]string, writes)
	for i := range statements {
		statements[i] = fmt.Sprintf("INSERT INTO app.t VALUES (%d)", i)
	}
	db1.MustExec(t, statements...)
	if err := db3.CatchUp(within(t), db1); err != nil {
		t.Fatal(err)
	}
	return r, l, sequence(t, db3) - sequence(t, db2)
}

func sequence(t *testing.T, s *mariadb.Server) uint64 {
	t.Helper()
	pos := s.MustValue(t, "SELECT @@gtid_binlog_pos")
	n, err := strconv.ParseUint(pos[strings.LastIndexByte(pos, '-')+1:], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// whole waits for the new master and wants all rows on it and on everybody, no
// rescue connection, and the right numbers in history.
func whole(t *testing.T, r *rig.Rig, l *ledger.Ledger, master string, rows int, rescued uint64) {
	t.Helper()
	st, err := r.WaitStatus(within(t), "a new master", func(st *api.Status) bool { return *st.Master != "db1" && st.Writable() })
	if err != nil {
		t.Fatal(err)
	}
	if *st.Master != master {
		t.Errorf("%s was promoted, want %s", *st.Master, master)
	}
	if n := r.Server(master).MustValue(t, "SELECT COUNT(*) FROM app.t"); n != strconv.Itoa(rows) {
		t.Errorf("the new master has %s rows of %d", n, rows)
	}
	for _, name := range []string{"db1", "db2", "db3"} {
		s := r.Server(name)
		if s.Running() {
			continue
		}
		if err := s.StartAgain(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	settle(t, r, l)
	for _, s := range r.Servers {
		rows, err := s.Rows(t.Context(), "SHOW ALL SLAVES STATUS")
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			if row["Connection_name"] != "" {
				t.Errorf("%s still has the connection %s", s.Name, row["Connection_name"])
			}
		}
		if s.Name != master {
			sameTable(t, "app.t", r.Server(master), s)
		}
	}
	op := operation(t, r, "failover")
	if op.Result != "done" || op.RescuedTransactions != rescued || op.LostTransactions == nil || *op.LostTransactions != 0 {
		t.Errorf("history: %s, rescued %d of %d, lost %v: %s", op.Result, op.RescuedTransactions, rescued, op.LostTransactions, op.Detail)
	}
}

// What the preferred server lacks it fetches from who has it, and is promoted;
// nothing is lost.
func TestAPreferredServerFetchesWhatItLacks(t *testing.T) {
	r, l, gap := behind(t, 250)
	if gap < 250 {
		t.Fatalf("it lacks only %d", gap)
	}
	if err := r.Server("db1").Kill(); err != nil {
		t.Fatal(err)
	}
	whole(t, r, l, "db2", 250, gap)
}

// In the middle of fetching, whoever takes part dies or freezes: nothing is
// promoted without what is known to be there, and nothing is lost.
func TestFaultsInTheMiddleOfFetching(t *testing.T) {
	const rows = 40
	for name, c := range map[string]struct {
		fault  func(t *testing.T, r *rig.Rig)
		master string
		fetch  bool
	}{
		"the holder is killed": {func(t *testing.T, r *rig.Rig) {
			kill(t, r, "db3")
			if _, err := r.WaitStatus(within(t), "the holder awaited", func(st *api.Status) bool {
				return st.Health == "blocked" && strings.Contains(problemCodes(st.Problems), "acker_unreachable")
			}); err != nil {
				t.Error(err)
			}
			if err := r.Server("db3").StartAgain(within(t)); err != nil {
				t.Fatal(err)
			}
		}, "db2", true},
		"the candidate is killed": {func(t *testing.T, r *rig.Rig) { kill(t, r, "db2") }, "db3", false},
		"the candidate freezes": {func(t *testing.T, r *rig.Rig) {
			if err := r.Server("db2").Freeze(); err != nil {
				t.Fatal(err)
			}
			if _, err := r.WaitStatus(within(t), "the holder promoted", func(st *api.Status) bool { return *st.Master == "db3" && st.Writable() }); err != nil {
				t.Error(err)
			}
			if err := r.Server("db2").Thaw(); err != nil {
				t.Fatal(err)
			}
		}, "db3", false},
		"repld is killed": {func(t *testing.T, r *rig.Rig) {
			if err := errors.Join(r.Repld.Kill(), r.StartRepld(within(t))); err != nil {
				t.Fatal(err)
			}
		}, "db2", true},
	} {
		t.Run(name, func(t *testing.T) {
			r, l, gap := behind(t, rows)
			lock := lockTable(t, r.Server("db2"))
			kill(t, r, "db1")
			if _, err := r.WaitStatus(within(t), "fetching shown", func(st *api.Status) bool {
				return st.Health == "failing_over" && strings.Contains(problemCodes(st.Problems), "candidate_fetches")
			}); err != nil {
				t.Fatal(err)
			}
			c.fault(t, r)
			_, _ = lock.ExecContext(t.Context(), "UNLOCK TABLES") // gone with the server, if that was killed
			if !c.fetch {
				gap = 0
			}
			whole(t, r, l, c.master, rows, gap)
		})
	}
}

func kill(t *testing.T, r *rig.Rig, name string) {
	t.Helper()
	if err := r.Server(name).Kill(); err != nil {
		t.Fatal(err)
	}
}

// lockTable lets no replicated change of app.t through until it is unlocked.
func lockTable(t *testing.T, s *mariadb.Server) *sql.Conn {
	t.Helper()
	conn, err := s.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := conn.ExecContext(t.Context(), "LOCK TABLES app.t READ"); err != nil {
		t.Fatal(err)
	}
	return conn
}
