package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/rig"
)

// A slave whose SQL thread alone was stopped applies what it received before it
// is stopped altogether: with both threads down nothing is left that a start by
// hand would drop.
func TestStopAfterStopSQLOnly(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 3})
	l := write(t, r)
	if err := r.Ctl(within(t), "stop", "db3", "--sql-only").Err(); err != nil {
		t.Fatal(err)
	}
	if err := l.WaitCount(within(t), len(l.Acks())+200); err != nil {
		t.Fatal(err)
	}
	if err := r.Ctl(within(t), "stop", "db3").Err(); err != nil {
		t.Fatal(err)
	}
	row, err := r.Server("db3").Row(within(t), "SHOW SLAVE STATUS")
	if err != nil {
		t.Fatal(err)
	}
	if applied := r.Server("db3").MustValue(t, "SELECT @@gtid_slave_pos"); row["Slave_IO_Running"] != "No" || row["Slave_SQL_Running"] != "No" || row["Gtid_IO_Pos"] != applied {
		t.Errorf("received %s, applied %s, threads %s %s", row["Gtid_IO_Pos"], applied, row["Slave_IO_Running"], row["Slave_SQL_Running"])
	}
	// The person's own start cannot harm then, nor is it undone unasked for.
	if err := r.Ctl(within(t), "start", "db3").Err(); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
}

// A slave whose SQL thread is stopped is moved to the new master by a switchover,
// keeps what it received, and stays as the person left it.
func TestSwitchoverMovesAStoppedSQLThread(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 3})
	l := write(t, r)
	if err := r.Ctl(within(t), "stop", "db3", "--sql-only").Err(); err != nil {
		t.Fatal(err)
	}
	if err := l.WaitCount(within(t), len(l.Acks())+100); err != nil {
		t.Fatal(err)
	}
	if err := r.Ctl(within(t), "switchover", "--yes").Err(); err != nil {
		t.Fatal(err)
	}
	if a := firstAckOrOpen(t, r); a != "db2" {
		t.Fatalf("the master is %s", a)
	}
	if _, err := r.WaitStatus(within(t), "db3 behind db2, its SQL thread stopped", func(st *api.Status) bool {
		s := serverStatus(st, "db3")
		row, err := r.Server("db3").Row(within(t), "SHOW SLAVE STATUS")
		return err == nil && s.State == "stopped" && row["Master_Port"] == fmt.Sprint(r.Server("db2").Port) && row["Slave_IO_Running"] == "Yes" && row["Slave_SQL_Running"] == "No"
	}); err != nil {
		t.Fatal(err)
	}
	if err := r.Ctl(within(t), "start", "db3").Err(); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
}

// A server that repld does not reach and that may go on acknowledging is not
// taken out of service: a later failover would pass over what it alone has. One
// that is down is.
func TestMaintenanceOfAServerOutOfReach(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 3})
	l := write(t, r)
	if err := r.Server("db3").Freeze(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitStatus(within(t), "db3 out of reach", func(st *api.Status) bool { return serverStatus(st, "db3").State == "unreachable" }); err != nil {
		t.Fatal(err)
	}
	if out := r.Ctl(within(t), "maintenance", "db3", "on"); out.Code != 5 || !strings.Contains(out.Stderr, "acknowledge no more") {
		t.Errorf("a frozen server: %d %s", out.Code, out.Stderr)
	}
	if out := r.Ctl(within(t), "stop", "db3"); out.Code != 1 {
		t.Errorf("stopping a frozen server: %d %s", out.Code, out.Stderr)
	}
	if err := r.Server("db3").Kill(); err != nil {
		t.Fatal(err)
	}
	mustWaitRefused(t, r)
	if err := r.Ctl(within(t), "maintenance", "db3", "on").Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.Server("db1").Kill(); err != nil {
		t.Fatal(err)
	}
	if a := firstAckOrOpen(t, r); a != "db2" {
		t.Fatalf("the master is %s", a)
	}
	for _, s := range []string{"db1", "db3"} {
		if err := r.Server(s).StartAgain(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Ctl(within(t), "maintenance", "db3", "off").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitStatus(within(t), "two ackers", func(st *api.Status) bool { return len(st.Durability.Ackers) == 2 }); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
}

// mustWaitRefused waits until repld has seen db3 refuse connections.
func mustWaitRefused(t *testing.T, r *rig.Rig) {
	t.Helper()
	if _, err := r.WaitStatus(within(t), "db3 refusing", func(st *api.Status) bool {
		for _, p := range serverStatus(st, "db3").Problems {
			if strings.Contains(p.Text, "refused") {
				return true
			}
		}
		return false
	}); err != nil {
		t.Fatal(err)
	}
}

// A restart command that fails is told with its output and kept in the history;
// if it leaves a master down, that is failed over without waiting.
func TestRestartThatFails(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 3})
	l := write(t, r)
	breakIt := func(server, script string) {
		if err := os.WriteFile(r.Server(server).RestartCommand()[0], []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	breakIt("db2", "echo Unit mariadb.service not found; exit 5")
	out := r.Ctl(within(t), "restart", "db2", "--yes")
	if out.Code != 1 || !strings.Contains(out.Stderr, "Unit mariadb.service not found") {
		t.Errorf("%d %s", out.Code, out.Stderr)
	}
	if op := operation(t, r, "restart"); op.Result != "failed" {
		t.Errorf("history: %+v", op)
	}
	if st := status(t, r); st.Health != "healthy" {
		t.Errorf("afterwards: %s %+v", st.Health, st.Problems)
	}
	breakIt("db1", fmt.Sprintf("kill -9 %d; echo it does not start; exit 1", r.Server("db1").Pid()))
	if out := r.Ctl(within(t), "restart", "db1", "--in-place", "--yes"); out.Code != 1 || !strings.Contains(out.Stderr, "it does not start") {
		t.Errorf("%d %s", out.Code, out.Stderr)
	}
	firstAckOrOpen(t, r)
	_ = r.Server("db1").Kill() // its process is gone: only reaped
	if err := r.Server("db1").StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
}

// Verbs that the loop would have to carry out are refused while it is paused.
func TestVerbsWhilePaused(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 2})
	if err := r.Ctl(within(t), "pause").Err(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"stop", "db2"}, {"start", "db2"}, {"maintenance", "db2", "on"}, {"restart", "db2"}, {"restart", "db1", "--in-place"}} {
		if out := r.Ctl(within(t), append(args, "--yes")...); out.Code != 5 || !strings.Contains(out.Stderr, "replctl resume") {
			t.Errorf("%v: %d %s", args, out.Code, out.Stderr)
		}
	}
}

// A master that was silent for a moment, and not for long enough to be lost, is
// told by explain afterwards.
func TestExplainAMasterThatWasSilent(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 2, Repld: []string{"failover: {hang_timeout: 20s}"}})
	if err := r.Server("db1").Freeze(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitStatus(within(t), "a suspect", func(st *api.Status) bool { return strings.Contains(problemCodes(st.Problems), "master_suspect") }); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // that long it is, to be worth telling
	if err := r.Server("db1").Thaw(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
		t.Fatal(err)
	}
	d := explain(t, r).LastDeclined
	if d == nil || d.Verdict != "suspect" || d.Master != "db1" || d.LastedMS == nil || *d.LastedMS < 500 || len(d.Evidence) == 0 || len(d.Rules) > 0 {
		t.Errorf("%+v", d)
	}
}
