package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/test/rig"
)

// A23: an old master comes back with transactions that the cluster does not
// have and that somebody may have been told OK for. It is kept out and
// read-only, what it has is saved where a person can read it, and only the
// explicit word gives it up.
func TestCaseA23_DivergedOldMasterIsKeptOutUntilAPersonDecides(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 3})
	db1 := r.Server("db1")
	db1.MustExec(t, "CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY, text VARCHAR(40))", "INSERT INTO app.t VALUES (1,'one'),(2,'two'),(3,'three'),(4,'four')")
	for _, name := range []string{"db2", "db3"} {
		if err := r.Server(name).CatchUp(within(t), db1); err != nil {
			t.Fatal(err)
		}
	}
	// repld is gone; the old master is restarted, opened and written to by hand.
	if err := db1.Kill(); err != nil {
		t.Fatal(err)
	}
	st, err := r.WaitStatus(within(t), "a new master", func(st *api.Status) bool { return *st.Master != "db1" && st.Writable() })
	if err != nil {
		t.Fatal(err)
	}
	master := r.Server(*st.Master)
	master.MustExec(t, "INSERT INTO app.t VALUES (5,'five')")
	if err := r.Repld.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := db1.StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	if v := db1.MustValue(t, "SELECT @@read_only"); v != "1" {
		t.Errorf("the old master started with read_only=%s", v)
	}
	db1.MustExec(t, "SET GLOBAL read_only=0", "INSERT INTO app.t VALUES (100,'a hundred, told OK')", "UPDATE app.t SET text='changed, told OK' WHERE id=1")
	extra := db1.MustValue(t, "SELECT @@gtid_binlog_pos")
	if err := r.StartRepld(within(t)); err != nil {
		t.Fatal(err)
	}
	if st, err = r.WaitStatus(within(t), "db1 diverged", func(st *api.Status) bool {
		s := serverStatus(st, "db1")
		return s.State == "diverged" && s.ReadOnly != nil && *s.ReadOnly && !strings.Contains(problemCodes(s.Problems), "must_fence")
	}); err != nil {
		t.Fatal(err)
	}
	s := serverStatus(st, "db1")
	if st.Health != "degraded" || s.Promotable || s.ReadOnly == nil || !*s.ReadOnly || *st.Master != master.Name {
		t.Errorf("health %s, db1 %+v", st.Health, s)
	}
	if op := operation(t, r, "rejoin"); op.Result != "blocked" {
		t.Errorf("%+v", op)
	}
	st = status(t, r)
	s = serverStatus(st, "db1")
	told := fmt.Sprint(s.Problems, st.Problems)
	if !strings.Contains(told, extra) || !strings.Contains(told, "rejoin db1 --discard-errant") {
		t.Errorf("status does not name %s and what to do: %s", extra, told)
	}
	wantFaultBoth(t, r, 5, "diverged", []string{"rejoin", "db1", "--yes"}, "db1", extra, "--discard-errant", "errant")
	wantFault(t, r.Ctl(within(t), "rejoin", "db1", "--discard-errant", "-o", "json"), 8, "not_confirmed", "db1")
	// It stays as it is, also over a restart of repld and of the server.
	if err := r.Repld.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := db1.Restart(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := r.StartRepld(within(t)); err != nil {
		t.Fatal(err)
	}
	if _, err = r.WaitStatus(within(t), "db1 still diverged", func(st *api.Status) bool {
		s := serverStatus(st, "db1")
		return s.State == "diverged" && s.ReadOnly != nil && *s.ReadOnly && st.Health == "degraded"
	}); err != nil {
		t.Fatal(err)
	}
	savedSQL(t, r, "a hundred, told OK", "changed, told OK")
	if out := r.Ctl(within(t), "rejoin", "db1", "--discard-errant", "--yes"); out.Code != 0 {
		t.Fatal(out.Err())
	}
	if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
		t.Fatal(err)
	}
	master.MustExec(t, "INSERT INTO app.t VALUES (6,'six')")
	for _, s := range r.Servers {
		if s != master {
			sameTable(t, "app.t", master, s)
		}
	}
	if v := db1.MustValue(t, "SELECT GROUP_CONCAT(id ORDER BY id) FROM app.t"); v != "1,2,3,4,5,6" {
		t.Errorf("db1 holds %s", v)
	}
	savedSQL(t, r, "a hundred, told OK", "changed, told OK")
	if out := r.Ctl(within(t), "rejoin", "db1", "--yes"); out.Code != 0 || !strings.Contains(out.Stdout, "nothing to do") {
		t.Errorf("once more: %v", out.Err())
	}
}

// savedSQL wants these words in the readable files of what db1 alone had.
func savedSQL(t *testing.T, r *rig.Rig, words ...string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(r.DataDir, "errant", "main", "db1", "*", "*.sql"))
	if err != nil || len(paths) == 0 {
		t.Errorf("nothing readable was saved: %v %v", err, paths)
		return
	}
	var all strings.Builder
	for _, path := range paths {
		all.Write(readFile(t, path))
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s can be read by others: %v %v", path, info.Mode(), err)
		}
	}
	for _, word := range words {
		if !strings.Contains(all.String(), word) {
			t.Errorf("%q is not in %v:\n%s", word, paths, all.String())
		}
	}
}

// A copy that fails in its middle, here because the server that is made a copy
// dies, is made again by itself until it is whole.
func TestASeedingAnewThatFailsIsTriedAgain(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 3})
	l := write(t, r)
	l.Stop()
	db1, db2 := r.Server("db1"), r.Server("db2")
	db1.MustExec(t, "CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY)", "CREATE TABLE app.big (id INT PRIMARY KEY, a INT, b INT, c CHAR(40), KEY (a, b), KEY (b, c), KEY (c, a))")
	// What takes long to load: the copy is to be in its middle for a while.
	db1.MustExec(t, "INSERT INTO app.big SELECT seq, seq * 7919 % 100003, seq * 104729 % 100019, SHA1(seq) FROM app.seq_1_to_60000")
	caughtUp(t, r, "db2", "db3")
	db2.MustExec(t, "SET sql_log_bin=0", "INSERT INTO app.t VALUES (1)")
	db1.MustExec(t, "INSERT INTO app.t VALUES (1)", "INSERT INTO app.t VALUES (2)")
	if _, err := r.WaitStatus(within(t), "db2 broken", func(st *api.Status) bool { return serverStatus(st, "db2").State == "broken" }); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- r.Ctl(within(t), "rejoin", "db2", "--yes").Err() }()
	if _, err := r.WaitStatus(within(t), "db2 being seeded", func(st *api.Status) bool { return serverStatus(st, "db2").State == "joining" }); err != nil {
		t.Fatal(err)
	}
	// The copy has begun: nothing was dropped before.
	mariadb.Eventually(t, patience, func() error {
		n, err := db2.Value(t.Context(), "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA='app' AND TABLE_NAME='t'")
		if err == nil && n != "0" {
			err = fmt.Errorf("the old data is still there")
		}
		return err
	})
	kill(t, r, "db2")
	if err := db2.StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	settle(t, r, l)
	sameTable(t, "app.t", db1, db2)
	sameTable(t, "app.big", db1, db2)
	results := map[string]int{}
	list, err := r.History(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range list {
		if op.Kind == "rejoin" && op.Server != nil && *op.Server == "db2" {
			results[op.Result]++
		}
	}
	if results["failed"] == 0 || results["done"] == 0 {
		t.Errorf("history of db2's rejoin: %v", results)
	}
}
