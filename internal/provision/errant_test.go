package provision

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/internal/gtid"
	kit "github.com/repld/repld/test/mariadb"
)

func parseGTID(t *testing.T, s string) gtid.GTID {
	t.Helper()
	g, err := gtid.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func parseState(t *testing.T, s string) gtid.State {
	t.Helper()
	st, err := gtid.ParseState(s)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func saveFrom(t *testing.T, m *kit.Server, fork string, has gtid.State) (ErrantIndex, error) {
	t.Helper()
	return SaveErrant(t.Context(), ErrantRequest{Cluster: "main", Server: "m", From: endpoint(m), Fork: parseGTID(t, fork), Has: has,
		DataDir: t.TempDir(), Now: time.Now()})
}

// The tail is written across a rotation, then the server crashes: all of it
// stands before the restart. What is written after the restart does not.
func TestErrantTransactionsAreSavedAndPlacedBeforeOrAfterTheRestart(t *testing.T) {
	m := kit.Start(t, kit.Options{Name: "m", Config: kit.Replicating(1)})
	m.MustExec(t, "CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY, v VARCHAR(20))", "INSERT INTO app.t VALUES (1,'common')")
	fork := m.MustValue(t, "SELECT @@gtid_binlog_pos")
	has := parseState(t, fork+",0-2-90")
	if x, err := saveFrom(t, m, fork, has); err != nil || len(x.Transactions) != 0 || x.Dir != "" {
		t.Fatalf("nothing extra: %+v, %v", x, err)
	}
	m.MustExec(t, "INSERT INTO app.t VALUES (100,'lonely')", "FLUSH BINARY LOGS", "INSERT INTO app.t VALUES (101,'lonely too')")
	if x, err := saveFrom(t, m, fork, has); err != nil || len(x.Transactions) != 2 || AllBeforeRestart(x.Transactions) {
		t.Fatalf("without a restart nothing is proved: %+v, %v", x, err)
	}
	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := m.StartAgain(t.Context()); err != nil {
		t.Fatal(err)
	}
	x, err := saveFrom(t, m, fork, has)
	if err != nil {
		t.Fatal(err)
	}
	if !AllBeforeRestart(x.Transactions) || len(x.Transactions) != 2 || len(x.Restarts) != 1 {
		t.Fatalf("got %+v", x)
	}
	checkSaved(t, x, m)
	m.MustExec(t, "INSERT INTO app.t VALUES (102,'later')")
	x, err = saveFrom(t, m, fork, has)
	if err != nil || len(x.Transactions) != 3 || AllBeforeRestart(x.Transactions) {
		t.Fatalf("a transaction after the restart counts as one before it: %+v, %v", x, err)
	}
	if !x.Transactions[1].BeforeRestart || x.Transactions[2].BeforeRestart {
		t.Fatalf("got %+v", x.Transactions)
	}
	// A transaction that the cluster has is not extra.
	if x, err := saveFrom(t, m, fork, has.Union(parseState(t, m.MustValue(t, "SELECT @@gtid_binlog_pos")))); err != nil || len(x.Transactions) != 0 {
		t.Fatalf("%+v, %v", x, err)
	}
	// A fork that this server never had is an error, not "nothing extra".
	if x, err := saveFrom(t, m, "0-1-9999", has); err == nil {
		t.Fatalf("got %+v", x)
	}
	if v := m.MustValue(t, "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME='RPL_SEMI_SYNC_MASTER_CLIENTS'"); v != "0" {
		t.Error("the reader counts as an acker")
	}
}

func checkSaved(t *testing.T, x ErrantIndex, m *kit.Server) {
	t.Helper()
	again, err := LoadErrant(x.Dir)
	if err != nil || !slices.Equal(again.GTIDs(), x.GTIDs()) {
		t.Fatalf("index: %+v, %v", again, err)
	}
	for _, name := range append([]string{errantIndexFile, x.SQL}, x.Files...) {
		st, err := os.Stat(filepath.Join(x.Dir, name))
		if err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
	if st, err := os.Stat(x.Dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("folder: %v, %v", st, err)
	}
	text, err := os.ReadFile(filepath.Join(x.Dir, x.SQL))
	if err != nil || !strings.Contains(string(text), "lonely") || strings.Contains(string(text), "common") {
		t.Errorf("readable form: %v\n%s", err, text)
	}
	// Of a file that a crash cut, the server sends the header without its flag "in
	// use"; one that was closed in order comes byte by byte.
	for _, f := range x.Files[:1] {
		want, _ := os.ReadFile(filepath.Join(m.DataDir, f))
		got, _ := os.ReadFile(filepath.Join(x.Dir, f))
		if len(want) == 0 || string(want) != string(got) {
			t.Errorf("%s: %d bytes saved of %d", f, len(got), len(want))
		}
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(x.Dir), ".saving-*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left over: %v %v", left, err)
	}
}

func TestErrantIsEverythingWhenTheForkWasPurged(t *testing.T) {
	m := kit.Start(t, kit.Options{Name: "m", Config: kit.Replicating(1)})
	m.MustExec(t, "CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY)")
	fork := m.MustValue(t, "SELECT @@gtid_binlog_pos")
	m.MustExec(t, "INSERT INTO app.t VALUES (1)", "FLUSH BINARY LOGS", "INSERT INTO app.t VALUES (2)", "FLUSH BINARY LOGS")
	kit.Eventually(t, 10*time.Second, func() error {
		last, err := m.Value(context.Background(), "SELECT @@gtid_binlog_pos")
		if err != nil {
			return err
		}
		_ = last
		return m.Exec(context.Background(), "PURGE BINARY LOGS TO '"+m.MustValue(t, "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME='BINLOG_SNAPSHOT_FILE'")+"'")
	})
	x, err := saveFrom(t, m, fork, parseState(t, fork))
	if err != nil || x.Incomplete == "" {
		t.Fatalf("got %+v, %v", x, err)
	}
	if AllBeforeRestart(x.Transactions) {
		t.Error("an incomplete list proves something")
	}
}
