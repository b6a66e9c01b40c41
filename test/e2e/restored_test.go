package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/test/rig"
)

// A former master is restored from an older copy. Written to by hand it has given
// the cluster's numbers out again: by names alone it looks like a clean part of
// the history. It is recognised and never attached, what it has is saved, and only
// a person gives it up. A copy that nobody wrote to follows by itself.
func TestAFormerMasterIsRestoredFromAnOlderCopy(t *testing.T) {
	for name, c := range map[string]struct {
		writes   int // by hand, on the restored server; the copy lacks 20
		restart  bool
		diverged bool
	}{
		"and not written to":                {0, false, false},
		"and reuses some numbers":           {7, false, true},
		"and reuses all numbers":            {20, false, true},
		"and goes beyond, and is restarted": {45, true, true},
	} {
		t.Run(name, func(t *testing.T) { restored(t, c.writes, c.restart, c.diverged) })
	}
}

func restored(t *testing.T, writes int, restart, diverged bool) {
	r, l := three(t)
	db1 := r.Server("db1")
	copied := coldCopy(t, r, db1)
	insert(t, db1, 0, 20)
	caughtUp(t, r, "db2", "db3")
	kill(t, r, "db1")
	st, err := r.WaitStatus(within(t), "a new master", func(st *api.Status) bool { return *st.Master != "db1" && st.Writable() })
	if err != nil {
		t.Fatal(err)
	}
	master := r.Server(*st.Master)
	insert(t, master, 100, 110)
	if err := r.Repld.Stop(); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", `rm -rf "$1" && cp -a "$2" "$1"`, "sh", dataDir(db1), copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := db1.StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	if writes > 0 {
		db1.MustExec(t, "SET GLOBAL read_only=0")
		insert(t, db1, 1000, 1000+writes)
	}
	if restart {
		if err := db1.Restart(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.StartRepld(within(t)); err != nil {
		t.Fatal(err)
	}
	if diverged {
		keptOut(t, r, db1, writes)
	}
	settle(t, r, l)
	for _, s := range r.Servers {
		if s != master {
			sameTable(t, "app.t", master, s)
		}
	}
	if n := db1.MustValue(t, "SELECT COUNT(*) FROM app.t"); n != "30" {
		t.Errorf("db1 has %s rows of 30", n)
	}
}

func keptOut(t *testing.T, r *rig.Rig, db1 *mariadb.Server, writes int) {
	t.Helper()
	if _, err := r.WaitStatus(within(t), "db1 kept out", func(st *api.Status) bool {
		s := serverStatus(st, "db1")
		return s.State == "diverged" && s.ReadOnly != nil && *s.ReadOnly && !strings.Contains(problemCodes(s.Problems), "must_fence")
	}); err != nil {
		t.Fatal(err)
	}
	op := operation(t, r, "rejoin")
	if op.Result != "blocked" || !strings.Contains(op.Detail, "restored from an older copy") {
		t.Errorf("history says %s: %s %v", op.Result, op.Detail, op.Evidence)
	}
	if rows, err := db1.Rows(t.Context(), "SHOW ALL SLAVES STATUS"); err != nil || len(rows) > 0 {
		t.Errorf("it was attached: %v %v", rows, err)
	}
	saved(t, r, "db1", writes)
	if err := r.Ctl(within(t), "rejoin", "db1", "--discard-errant", "--yes").Err(); err != nil {
		t.Fatal(err)
	}
}

func insert(t *testing.T, s *mariadb.Server, from, to int) {
	t.Helper()
	var list []string
	for i := from; i < to; i++ {
		list = append(list, "INSERT INTO app.t VALUES ("+strconv.Itoa(i)+")")
	}
	s.MustExec(t, list...)
}

func dataDir(s *mariadb.Server) string { return filepath.Join(s.Dir, "data") }

// coldCopy copies the master's data directory while it is stopped for planned work.
func coldCopy(t *testing.T, r *rig.Rig, s *mariadb.Server) string {
	t.Helper()
	if err := r.Ctl(within(t), "pause").Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(within(t)); err != nil {
		t.Fatal(err)
	}
	into := filepath.Join(t.TempDir(), "copy")
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", dataDir(s), into).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(into, "ibdata1")); err != nil {
		t.Fatal(err)
	}
	if err := s.StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := r.Ctl(within(t), "resume").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
		t.Fatal(fmt.Errorf("after the copy: %w", err))
	}
	return into
}
