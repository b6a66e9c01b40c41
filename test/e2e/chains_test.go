package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/ledger"
	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/test/rig"
)

// startChain is a healthy cluster in which db1 is the master, db2 a slave of it,
// db3 a slave of db2, and every further server a slave of db1.
func startChain(t *testing.T, o rig.Options) *rig.Rig {
	t.Helper()
	r := start(t, o)
	ctx := within(t)
	if err := r.StartRepld(ctx); err != nil {
		t.Fatal(err)
	}
	if err := r.InitMaster(ctx, r.Servers[0]); err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Servers[1:] {
		var more []string
		if s.Name == "db3" {
			more = []string{"--source", "db2"}
		}
		if err := r.InitSlave(ctx, s, more...); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.WaitHealth(ctx, "healthy"); err != nil {
		t.Fatal(err)
	}
	return r
}

// reads waits until a slave streams from a server.
func reads(t *testing.T, r *rig.Rig, name, source string) *api.Status {
	t.Helper()
	st, err := r.WaitStatus(within(t), name+" streaming from "+source, func(st *api.Status) bool {
		s := serverStatus(st, name)
		return s.State == "streaming" && *s.Source == source
	})
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// follows checks the server itself: from whom it reads, encrypted, and whether
// it acknowledges.
func follows(t *testing.T, s, source *mariadb.Server, acker bool) {
	t.Helper()
	row, err := s.Row(t.Context(), "SHOW SLAVE STATUS")
	if err != nil {
		t.Fatal(err)
	}
	port, ssl := row["Master_Port"], row["Master_SSL_Verify_Server_Cert"]
	if !strings.HasSuffix(source.Addr(), ":"+port) || ssl != "Yes" {
		t.Errorf("%s reads from port %s (verified TLS: %s), want %s", s.Name, port, ssl, source.Addr())
	}
	if is := s.MustValue(t, "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'Rpl_semi_sync_slave_status'"); (is == "ON") != acker {
		t.Errorf("%s acknowledges: %s, want %v", s.Name, is, acker)
	}
}

// A chain is set up, re-pointed both ways under load, refused where it would
// lose something in silence, and taken apart.
func TestAChainIsSetUpRepointedAndTakenApart(t *testing.T) {
	r := startChain(t, rig.Options{Servers: 4})
	db1, db2, db3 := r.Server("db1"), r.Server("db2"), r.Server("db3")
	follows(t, db3, db2, false)
	follows(t, db2, db1, true)
	st := status(t, r)
	if s := serverStatus(st, "db3"); slices.Contains(st.Durability.Ackers, "db3") || *s.Source != "db2" || !s.Promotable || !*s.TLS {
		t.Errorf("ackers %v, db3 %+v", st.Durability.Ackers, s)
	}
	l := write(t, r)
	init := func(s *mariadb.Server, more ...string) rig.Output {
		return r.Ctl(within(t), append(append([]string{"init", "slave", s.Name, "--yes"}, r.InitFlags(s)...), more...)...)
	}
	if out := init(db3, "--source", "db2"); out.Code != 0 || !strings.Contains(out.Stdout+out.Stderr, "nothing to do") {
		t.Errorf("again: %v", out)
	}
	if out := r.Ctl(within(t), append([]string{"init", "slave", "db3", "--dry-run"}, r.InitFlags(db3)...)...); out.Code != 0 || !strings.Contains(out.Stdout, "from db1 instead of db2") {
		t.Errorf("the plan: %v", out)
	}
	for name, c := range map[string]struct {
		s      *mariadb.Server
		source string
		code   int
		word   string
	}{
		"itself":  {db3, "db3", 2, "same_server"},
		"a loop":  {db2, "db3", 2, "source_loop"},
		"nobody":  {db3, "db9", 2, "unknown_server"},
		"a child": {db2, "db3", 2, "source_loop"},
	} {
		out := r.Ctl(within(t), append(append([]string{"init", "slave", c.s.Name, "--yes", "-o", "json"}, r.InitFlags(c.s)...), "--source", c.source)...)
		if out.Code != c.code || !strings.Contains(out.Stderr, c.word) {
			t.Errorf("%s: %v", name, out)
		}
	}
	// To the master, where it acknowledges, and back.
	if err := init(db3).Err(); err != nil {
		t.Fatal(err)
	}
	reads(t, r, "db3", "db1")
	if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
		t.Fatal(err)
	}
	follows(t, db3, db1, true)
	if err := init(db3, "--source", "db2").Err(); err != nil {
		t.Fatal(err)
	}
	reads(t, r, "db3", "db2")
	follows(t, db3, db2, false)
	// Without the relay its slave is the master's.
	if out := r.Ctl(within(t), "remove", "db2", "--dry-run"); out.Code != 0 || !strings.Contains(out.Stdout, "let db3 replicate from db1") {
		t.Errorf("the plan: %v", out)
	}
	if err := r.Ctl(within(t), "remove", "db2", "--yes").Err(); err != nil {
		t.Fatal(err)
	}
	reads(t, r, "db3", "db1")
	follows(t, db3, db1, true)
	r.Servers = slices.DeleteFunc(r.Servers, func(s *mariadb.Server) bool { return s == db2 })
	settle(t, r, l)
}

// A slave below one that does not log what it receives would get nothing and
// report no lag: refused, and one that is there already is moved.
func TestASlaveBelowOneThatPassesNothingOn(t *testing.T) {
	r := startChain(t, rig.Options{Servers: 4})
	db2, db4 := r.Server("db2"), r.Server("db4")
	text, err := os.ReadFile(db2.DropInPath())
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, "log-slave-updates") && !strings.Contains(line, "log_slave_updates") {
			lines = append(lines, line)
		}
	}
	if err := os.WriteFile(db2.DropInPath(), []byte(strings.Join(lines, "")), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := db2.Restart(within(t)); err != nil {
		t.Fatal(err)
	}
	if v := db2.MustValue(t, "SELECT @@log_slave_updates"); v != "0" {
		t.Fatalf("log_slave_updates is %s", v)
	}
	st := reads(t, r, "db3", "db1")
	if s := serverStatus(st, "db3"); len(s.Problems) != 1 || s.Problems[0].Code != "source_unusable" || !strings.Contains(s.Problems[0].Text, "log_slave_updates") {
		t.Errorf("%+v", s.Problems)
	}
	out := r.Ctl(within(t), append(append([]string{"init", "slave", "db4", "--yes", "-o", "json"}, r.InitFlags(db4)...), "--source", "db2")...)
	if out.Code != 5 || !strings.Contains(out.Stderr, "source_unusable") || !strings.Contains(out.Stderr, "log_slave_updates") {
		t.Errorf("%v", out)
	}
	follows(t, db4, r.Server("db1"), true)
}

// A relay that is killed under load: what is below it goes on from the master,
// and returns when the relay has been back for a while. Then relay and master
// are killed together: the acker is promoted, and the chained slave follows it.
func TestRelayKilledUnderLoadThenRelayAndMaster(t *testing.T) {
	r := startChain(t, rig.Options{Servers: 4})
	l := write(t, r)
	db1, db2, db3 := r.Server("db1"), r.Server("db2"), r.Server("db3")
	if err := db2.Kill(); err != nil {
		t.Fatal(err)
	}
	st := reads(t, r, "db3", "db1")
	follows(t, db3, db1, false)
	if s := serverStatus(st, "db3"); len(s.Problems) != 1 || s.Problems[0].Code != "source_unusable" {
		t.Errorf("%+v", s.Problems)
	}
	if st.Durability.State != "armed" {
		t.Errorf("durability is %s", st.Durability.State)
	}
	if err := db2.StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	reads(t, r, "db3", "db2")
	follows(t, db3, db2, false)
	if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*mariadb.Server{db2, db1} {
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	// The relay could have acknowledged what db4 lacks: only the relay itself, or
	// a person, can say. If db4 provably has all, it is promoted at once.
	blocked := func(st *api.Status) bool { return st.Health == "blocked" && *st.Master == "db1" }
	st, err := r.WaitStatus(within(t), "the promotion, or its refusal", func(st *api.Status) bool { return *st.Master == "db4" || blocked(st) })
	if err != nil {
		t.Fatal(err)
	}
	if blocked(st) {
		if !strings.Contains(problemCodes(st.Problems), "acker_unreachable") {
			t.Errorf("%+v", st.Problems)
		}
		if err := db2.StartAgain(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	ack := firstAck(t, l, 1)
	if out := operation(t, r, "failover"); out.LostTransactions == nil || *out.LostTransactions != 0 {
		t.Errorf("%+v", out)
	}
	for _, s := range []*mariadb.Server{db1, db2} {
		if s.Running() {
			continue
		}
		if err := s.StartAgain(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	settle(t, r, l, ledger.OldMaster{ServerID: 1, Opened: ack.After})
}

// A relay whose SQL thread fails passes nothing on: those below it leave it, also
// before it is seeded anew, and come back.
func TestABrokenRelayIsSeededAnew(t *testing.T) {
	r := startChain(t, rig.Options{Servers: 4})
	l := write(t, r)
	db1, db2, db3 := r.Server("db1"), r.Server("db2"), r.Server("db3")
	db1.MustExec(t, "CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY)")
	for _, s := range []*mariadb.Server{db2, db3} {
		mariadb.Eventually(t, patience, func() error { _, err := s.Value(t.Context(), "SELECT COUNT(*) FROM app.t"); return err })
	}
	db2.MustExec(t, "SET sql_log_bin=0", "INSERT INTO app.t VALUES (1)", "SET sql_log_bin=1")
	db1.MustExec(t, "INSERT INTO app.t VALUES (1)")
	if _, err := r.WaitStatus(within(t), "the chain shown as broken", func(st *api.Status) bool {
		s := serverStatus(st, "db3")
		return s.State == "broken" && (s.LagMS == nil || *s.LagMS > 0) && problemCodes(s.Problems) == "source_unusable"
	}); err != nil {
		t.Fatal(err)
	}
	reads(t, r, "db3", "db1")
	if err := r.Ctl(within(t), "rejoin", "db2", "--yes").Err(); err != nil {
		t.Fatal(err)
	}
	reads(t, r, "db3", "db2")
	settle(t, r, l)
	follows(t, db3, db2, false)
}

// A relay that freezes is left, although the IO thread below it looks connected.
func TestAFrozenRelayIsLeft(t *testing.T) {
	r := startChain(t, rig.Options{Servers: 4})
	l := write(t, r)
	if err := r.Server("db2").Freeze(); err != nil {
		t.Fatal(err)
	}
	reads(t, r, "db3", "db1")
	if err := r.Server("db2").Thaw(); err != nil {
		t.Fatal(err)
	}
	reads(t, r, "db3", "db2")
	settle(t, r, l)
}

// With the relay as the only acker, nobody but it can say what was acknowledged.
func TestMasterAndTheOnlyAckerKilledTogether(t *testing.T) {
	for _, accept := range []bool{false, true} {
		t.Run(fmt.Sprintf("accept loss %v", accept), func(t *testing.T) {
			r := startChain(t, rig.Options{Servers: 3})
			l := write(t, r)
			db1, db2, db3 := r.Server("db1"), r.Server("db2"), r.Server("db3")
			for _, s := range []*mariadb.Server{db2, db1} {
				if err := s.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			st, err := r.WaitHealth(within(t), "blocked")
			if err != nil {
				t.Fatal(err)
			}
			if st.Problems[0].Code != "acker_unreachable" || st.Problems[0].Server != "db2" {
				t.Fatalf("%+v", st.Problems)
			}
			if v := db3.MustValue(t, "SELECT @@read_only"); v != "1" {
				t.Error("it was promoted")
			}
			if !accept {
				// Back, it is promoted; the slave below it follows it as an acker.
				if err := db2.StartAgain(within(t)); err != nil {
					t.Fatal(err)
				}
				ack := firstAck(t, l, 1)
				reads(t, r, "db3", "db2")
				if err := db1.StartAgain(within(t)); err != nil {
					t.Fatal(err)
				}
				settle(t, r, l, ledger.OldMaster{ServerID: 1, Opened: ack.After})
				follows(t, db3, db2, true)
				return
			}
			l.Stop()
			if err := r.Ctl(within(t), "failover", "--accept-loss", "1000", "--yes").Err(); err != nil {
				t.Fatal(err)
			}
			if st := status(t, r); *st.Master != "db3" {
				t.Errorf("the master is %s", *st.Master)
			}
			if v := db3.MustValue(t, "SELECT @@read_only"); v != "0" {
				t.Error("db3 is not open")
			}
			report, err := l.Compare(t.Context(), []*mariadb.Server{db3})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("given up: %v", report)
		})
	}
}
