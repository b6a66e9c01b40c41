package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/rig"
)

func explain(t *testing.T, r *rig.Rig, args ...string) *api.Explanation {
	t.Helper()
	out := r.Ctl(within(t), append([]string{"explain", "-o", "json"}, args...)...)
	if out.Code != 0 {
		t.Fatal(out.Err())
	}
	e := &api.Explanation{}
	if err := json.Unmarshal([]byte(out.Stdout), e); err != nil {
		t.Fatal(err)
	}
	return e
}

func broken(e *api.Explanation) string {
	var codes []string
	for _, r := range e.Rules {
		if !r.Holds {
			codes = append(codes, r.Code)
		}
	}
	return strings.Join(codes, " ")
}

// A slave that is stopped under load keeps nothing unapplied, stays stopped
// through a change of master, and follows whoever is master when it is started.
func TestStopAndStart(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 3})
	l := write(t, r)
	if out := r.Ctl(within(t), "stop", "db1"); out.Code != 5 {
		t.Errorf("stopping the master: %v", out.Err())
	}
	if err := r.Ctl(within(t), "stop", "db3").Err(); err != nil {
		t.Fatal(err)
	}
	row, err := r.Server("db3").Row(within(t), "SHOW SLAVE STATUS")
	if err != nil {
		t.Fatal(err)
	}
	applied := r.Server("db3").MustValue(t, "SELECT @@gtid_slave_pos")
	if row["Slave_IO_Running"] != "No" || row["Slave_SQL_Running"] != "No" || row["Gtid_IO_Pos"] != applied {
		t.Errorf("received %s, applied %s, threads %s %s", row["Gtid_IO_Pos"], applied, row["Slave_IO_Running"], row["Slave_SQL_Running"])
	}
	st := status(t, r)
	if s := serverStatus(st, "db3"); s.State != "stopped" || len(s.Problems) != 1 || s.Problems[0].Code != "held" {
		t.Errorf("db3: %+v", s)
	}
	if len(st.Durability.Ackers) != 1 {
		t.Errorf("ackers: %v", st.Durability.Ackers)
	}
	if out := r.Ctl(within(t), "stop", "db2"); out.Code != 8 || !strings.Contains(out.Stderr, "only acker") {
		t.Errorf("stopping the last acker: %v", out.Err())
	}
	if err := r.Server("db1").Kill(); err != nil {
		t.Fatal(err)
	}
	if a := firstAckOrOpen(t, r); a != "db2" {
		t.Fatalf("the master is %s", a)
	}
	if err := r.Server("db1").StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitStatus(within(t), "only db3 amiss", func(st *api.Status) bool {
		return serverStatus(st, "db1").State == "streaming" && problemCodes(st.Problems) != "" && serverStatus(st, "db3").State == "stopped"
	}); err != nil {
		t.Fatal(err)
	}
	if v := r.Server("db3").MustValue(t, "SELECT @@gtid_slave_pos"); v != applied {
		t.Errorf("db3 moved from %s to %s", applied, v)
	}
	if err := r.Ctl(within(t), "start", "db3").Err(); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
}

// firstAckOrOpen waits until another server than db1 is open, and names it.
func firstAckOrOpen(t *testing.T, r *rig.Rig) string {
	t.Helper()
	st, err := r.WaitStatus(within(t), "a new master", func(st *api.Status) bool {
		return st.Master != nil && *st.Master != "db1" && serverStatus(st, *st.Master).State == "writable"
	})
	if err != nil {
		t.Fatal(err)
	}
	return *st.Master
}

// A slave whose SQL thread alone is stopped goes on acknowledging. If the master
// dies then, what only that slave has received is applied after all.
func TestStopSQLOnlyAndTheMasterDies(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 2})
	l := write(t, r)
	if err := r.Ctl(within(t), "stop", "db2", "--sql-only").Err(); err != nil {
		t.Fatal(err)
	}
	have := len(l.Acks())
	if err := l.WaitCount(within(t), have+200); err != nil {
		t.Fatal(err)
	}
	if st := status(t, r); st.Durability.State != "armed" || len(st.Durability.Ackers) != 1 {
		t.Errorf("durability: %+v", st.Durability)
	}
	if err := r.Server("db1").Kill(); err != nil {
		t.Fatal(err)
	}
	firstAckOrOpen(t, r)
	if err := r.Server("db1").StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
}

// The SQL thread of a slave is stopped, and started again by replctl, with much
// to apply: nothing is dropped.
func TestStopSQLOnlyAndStart(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 2})
	l := write(t, r)
	if err := r.Ctl(within(t), "stop", "db2", "--sql-only").Err(); err != nil {
		t.Fatal(err)
	}
	if err := l.WaitCount(within(t), len(l.Acks())+200); err != nil {
		t.Fatal(err)
	}
	if err := r.Ctl(within(t), "start", "db2").Err(); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
}

// A slave in maintenance is missed by nobody, whatever is done to it, and does
// not hold a failover back although it was an acker.
func TestMaintenance(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 3})
	l := write(t, r)
	if err := r.Ctl(within(t), "maintenance", "db3", "on").Err(); err != nil {
		t.Fatal(err)
	}
	if v := r.Server("db3").MustValue(t, "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'Rpl_semi_sync_slave_status'"); v != "OFF" {
		t.Error("it still acknowledges")
	}
	if err := r.Server("db3").Kill(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	if st := status(t, r); st.Health != "healthy" || problemCodes(st.Problems) != "maintenance" {
		t.Errorf("health %s, problems %+v", st.Health, st.Problems)
	}
	if e := explain(t, r, "db3"); e.Promotable || !strings.Contains(broken(e), "maintenance") {
		t.Errorf("explain: %+v", e)
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
	if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
		t.Fatal(err)
	}
	if serverStatus(status(t, r), "db3").State == "streaming" {
		t.Error("it was attached although a person works on it")
	}
	if err := r.Ctl(within(t), "maintenance", "db3", "off").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitStatus(within(t), "db3 as an acker", func(st *api.Status) bool { return len(st.Durability.Ackers) == 2 }); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
}

// A slave is restarted at once, the master after a switchover, or in its place
// without a failover.
func TestRestartOfEachServer(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 3})
	l := write(t, r)
	if out := r.Ctl(within(t), "restart", "db2"); out.Code != 8 {
		t.Errorf("unconfirmed: %v", out.Err())
	}
	pid := func(name string) int { return r.Server(name).Pid() }
	time.Sleep(2500 * time.Millisecond) // a server's own start is known to two seconds
	for _, c := range []struct {
		args   []string
		master string
	}{{[]string{"db2"}, "db1"}, {[]string{"db1", "--in-place"}, "db1"}, {[]string{"db1"}, ""}} {
		before := pid(c.args[0])
		if err := r.Ctl(within(t), append([]string{"restart", "--yes"}, c.args...)...).Err(); err != nil {
			t.Fatalf("%v: %v", c.args, err)
		}
		if pid(c.args[0]) == before {
			t.Errorf("%v: the same process runs", c.args)
		}
		if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
			t.Fatal(err)
		}
		st := status(t, r)
		if c.master != "" && (*st.Master != c.master || st.Epoch != 1) || c.master == "" && *st.Master == "db1" {
			t.Errorf("%v: the master is %s, epoch %d", c.args, *st.Master, st.Epoch)
		}
		if op := operation(t, r, "restart"); op.Result != "done" {
			t.Errorf("history: %+v", op)
		}
		if err := l.WaitCount(within(t), len(l.Acks())+20); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2500 * time.Millisecond)
	}
	settle(t, r, l)
}

// What a person does to the master is left alone, also after repld has restarted
// it: only a process that repld has not opened yet is opened by itself.
func TestAMasterClosedByAPersonStaysClosedAfterARestart(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 2})
	time.Sleep(2500 * time.Millisecond) // a server's own start is known to two seconds
	if err := r.Ctl(within(t), "restart", "db1", "--in-place", "--yes").Err(); err != nil {
		t.Fatal(err)
	}
	r.Server("db1").MustExec(t, "SET GLOBAL read_only=1")
	if _, err := r.WaitStatus(within(t), "the closed master named", func(st *api.Status) bool {
		return st.Health == "blocked" && strings.Contains(problemCodes(st.Problems), "master_read_only")
	}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	if v := r.Server("db1").MustValue(t, "SELECT @@read_only"); v != "1" {
		t.Error("it was opened although a person closed it")
	}
}

// A failover that was held back is explained, with what was measured, also when
// it is over and repld was restarted.
func TestExplainADeclinedFailover(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 2, Repld: []string{"failover: {mode: manual}"}})
	if e := explain(t, r); e.LastDeclined != nil || strings.Contains(broken(e), "candidate") || !strings.Contains(broken(e), "manual_mode") {
		t.Errorf("before: %s, %+v", broken(e), e.LastDeclined)
	}
	if err := r.Server("db1").Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitStatus(within(t), "no master", func(st *api.Status) bool { return strings.Contains(problemCodes(st.Problems), "manual_mode") }); err != nil {
		t.Fatal(err)
	}
	if e := explain(t, r); strings.Contains(broken(e), "master_lost") || e.LastDeclined == nil || e.LastDeclined.LastedMS != nil {
		t.Errorf("meanwhile: %s, %+v", broken(e), e.LastDeclined)
	}
	if err := r.Server("db1").StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitStatus(within(t), "an open master", func(st *api.Status) bool { return serverStatus(st, "db1").State == "writable" }); err != nil {
		t.Fatal(err)
	}
	if err := r.Repld.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := r.StartRepld(within(t)); err != nil {
		t.Fatal(err)
	}
	d := explain(t, r).LastDeclined
	if d == nil || d.Verdict != "dead" || d.LastedMS == nil || len(d.Rules) != 1 || !strings.Contains(d.Rules[0], "manual_mode") || len(d.Evidence) == 0 {
		t.Errorf("after: %+v", d)
	}
	if out := r.Ctl(within(t), "explain"); out.Code != 0 || !strings.Contains(out.Stdout, "db1 was dead") {
		t.Errorf("%s", out.Stdout)
	}
}
