package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/ledger"
	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/test/rig"
)

// three is a cluster of three with an empty table app.t; db2 is set up with the
// given flags.
func three(t *testing.T, db2 ...string) (*rig.Rig, *ledger.Ledger) {
	t.Helper()
	r := start(t, rig.Options{Servers: 3})
	if err := errors.Join(r.StartRepld(within(t)), r.InitMaster(within(t), r.Server("db1")),
		r.InitSlave(within(t), r.Server("db2"), db2...), r.InitSlave(within(t), r.Server("db3"))); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
		t.Fatal(err)
	}
	l := write(t, r)
	l.Stop()
	r.Server("db1").MustExec(t, "CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY)")
	caughtUp(t, r, "db2", "db3")
	return r, l
}

func caughtUp(t *testing.T, r *rig.Rig, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := r.Server(name).CatchUp(within(t), r.Server("db1")); err != nil {
			t.Fatal(err)
		}
	}
}

// received waits until a slave has in its relay log what the master has.
func received(t *testing.T, slave, master *mariadb.Server) {
	t.Helper()
	mariadb.Eventually(t, patience, func() error {
		row, err := slave.Row(t.Context(), "SHOW ALL SLAVES STATUS")
		if err != nil || row["Gtid_IO_Pos"] == master.MustValue(t, "SELECT @@gtid_binlog_pos") {
			return err
		}
		return errNobodyWaits
	})
}

// A candidate that is preferred and stands still is waited for, and given up only
// for one that has all it received.
func TestAStuckCandidateMakesWayForOneThatHasAll(t *testing.T) {
	r, l := three(t, "--promotion", "prefer")
	db1 := r.Server("db1")
	lock := lockTable(t, r.Server("db2"))
	db1.MustExec(t, "INSERT INTO app.t VALUES (1),(2)", "INSERT INTO app.t VALUES (3)")
	received(t, r.Server("db2"), db1)
	caughtUp(t, r, "db3")
	kill(t, r, "db1")
	if _, err := r.WaitStatus(within(t), "db2 waited for", func(st *api.Status) bool {
		return st.Health == "failing_over" && strings.Contains(problemCodes(st.Problems), "candidate_applies")
	}); err != nil {
		t.Fatal(err)
	}
	st, err := r.WaitStatus(within(t), "a new master", func(st *api.Status) bool { return *st.Master != "db1" && st.Writable() })
	if err != nil {
		t.Fatal(err)
	}
	if *st.Master != "db3" {
		t.Errorf("%s was promoted", *st.Master)
	}
	if _, err := lock.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
		t.Fatal(err)
	}
	if err := db1.StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
	if n := r.Server("db2").MustValue(t, "SELECT COUNT(*) FROM app.t"); n != "3" {
		t.Errorf("db2 has %s rows of 3", n)
	}
}

// What only a stuck server has received is never dropped in silence: the failover
// is held back with the number, until a person gives exactly that up. History
// says what was lost, and what the server had is saved before it is given up.
func TestWhatOnlyAStuckServerHasIsGivenUpByAPersonOnly(t *testing.T) {
	r, l := three(t)
	db1, db2 := r.Server("db1"), r.Server("db2")
	r.Server("db3").MustExec(t, "STOP SLAVE IO_THREAD")
	lock := lockTable(t, db2)
	for i := range 7 {
		db1.MustExec(t, "INSERT INTO app.t VALUES ("+strconv.Itoa(i)+")")
	}
	received(t, db2, db1)
	kill(t, r, "db1")
	st, err := r.WaitStatus(within(t), "the stuck thread named", func(st *api.Status) bool {
		return st.Health == "blocked" && strings.Contains(problemCodes(st.Problems), "sql_stuck")
	})
	if err != nil {
		t.Fatal(err)
	}
	if p := st.Problems[0]; p.Code != "sql_stuck" || p.Server != "db2" || !strings.Contains(p.Text, "7 transactions are at stake") || !strings.Contains(p.Do, "--accept-loss 7") {
		t.Errorf("problem %+v", p)
	}
	if out := r.Ctl(within(t), "failover", "--accept-loss", "6", "--yes"); out.Code == 0 {
		t.Fatal("seven were lost although six were accepted")
	}
	if err := r.Ctl(within(t), "failover", "--accept-loss", "7", "--yes").Err(); err != nil {
		t.Fatal(err)
	}
	op := operation(t, r, "failover")
	if op.NewMaster == nil || *op.NewMaster != "db3" || op.LostTransactions == nil || *op.LostTransactions != 7 || !strings.Contains(op.Detail, "a person accepted the loss") {
		t.Errorf("history says %+v", op)
	}
	if _, err := lock.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitStatus(within(t), "db2 diverged", func(st *api.Status) bool { return serverStatus(st, "db2").State == "diverged" }); err != nil {
		t.Fatal(err)
	}
	mariadb.Eventually(t, patience, func() error {
		if n := db2.MustValue(t, "SELECT COUNT(*) FROM app.t"); n != "7" {
			return fmt.Errorf("db2 has applied %s rows", n)
		}
		return nil
	})
	if out := r.Ctl(within(t), "rejoin", "db2", "--yes"); out.Code != 5 {
		t.Errorf("without the word: %v", out.Err())
	}
	if err := r.Ctl(within(t), "rejoin", "db2", "--discard-errant", "--yes").Err(); err != nil {
		t.Fatal(err)
	}
	saved(t, r, "db2", 7)
	if err := db1.StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitStatus(within(t), "db1 judged", func(st *api.Status) bool { return serverStatus(st, "db1").State == "diverged" }); err != nil {
		t.Fatal(err)
	}
	mariadb.Eventually(t, patience, func() error { return r.Ctl(t.Context(), "rejoin", "db1", "--discard-errant", "--yes").Err() })
	settle(t, r, l)
	if n := db2.MustValue(t, "SELECT COUNT(*) FROM app.t"); n != "0" {
		t.Errorf("db2 has %s rows", n)
	}
}

// A SQL thread that failed is tried again by repld, by file and position, once
// its cause may have been put right: a person who started it would drop the
// relay log.
func TestAFailedSQLThreadIsTriedAgainDuringAFailover(t *testing.T) {
	r, l := three(t)
	db1, db2 := r.Server("db1"), r.Server("db2")
	r.Server("db3").MustExec(t, "STOP SLAVE IO_THREAD")
	db2.MustExec(t, "SET sql_log_bin=0", "INSERT INTO app.t VALUES (1)")
	for i := range 5 {
		db1.MustExec(t, "INSERT INTO app.t VALUES ("+strconv.Itoa(i)+")")
	}
	received(t, db2, db1)
	kill(t, r, "db1")
	st, err := r.WaitStatus(within(t), "the failed thread named", func(st *api.Status) bool {
		return st.Health == "blocked" && strings.Contains(problemCodes(st.Problems), "sql_stuck")
	})
	if err != nil {
		t.Fatal(err)
	}
	if p := st.Problems[0]; !strings.Contains(p.Text, "1062") || !strings.Contains(p.Text, "at stake") {
		t.Errorf("problem %+v", p)
	}
	db2.MustExec(t, "SET sql_log_bin=0", "DELETE FROM app.t WHERE id=1")
	if st, err = r.WaitStatus(within(t), "a new master", func(st *api.Status) bool { return *st.Master != "db1" && st.Writable() }); err != nil {
		t.Fatal(err)
	}
	if n := r.Server(*st.Master).MustValue(t, "SELECT COUNT(*) FROM app.t"); n != "5" {
		t.Errorf("%s has %s rows of 5", *st.Master, n)
	}
	if err := db1.StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
}

// saved wants so many INSERTs of a server in what was saved of it, and the folder
// named in history.
func saved(t *testing.T, r *rig.Rig, server string, inserts int) {
	t.Helper()
	list, err := r.History(within(t))
	if err != nil {
		t.Fatal(err)
	}
	dir := ""
	for _, op := range list {
		for _, e := range op.Evidence {
			if _, after, ok := strings.Cut(e, "were saved in "); ok && op.Server != nil && *op.Server == server {
				dir = after
			}
		}
	}
	if dir == "" {
		t.Fatalf("history names no folder of what %s had: %+v", server, list)
	}
	text := string(readFile(t, filepath.Join(dir, "errant.sql")))
	if n := strings.Count(text, "INSERT INTO app.t VALUES"); n != inserts {
		t.Errorf("%d inserts of %d in %s:\n%s", n, inserts, dir, text)
	}
}
