package e2e

import (
	"strings"
	"testing"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/rig"
)

// A10: an event larger than a slave's limit stops that slave with a named
// error; the master is not taken for lost, and with the limit raised and the
// thread started, as status says, the slave goes on.
func TestCaseA10_EventLargerThanTheSlavesLimit(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 3})
	master, slave := r.Server("db1"), r.Server("db2")
	if v := slave.MustValue(t, "SELECT @@slave_max_allowed_packet"); v != "1073741824" {
		t.Errorf("init left slave_max_allowed_packet at %s", v)
	}
	master.MustExec(t, "SET GLOBAL max_allowed_packet=16777216", "CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY, b LONGBLOB)")
	if err := slave.CatchUp(within(t), master); err != nil {
		t.Fatal(err)
	}
	slave.MustExec(t, "SET GLOBAL slave_max_allowed_packet=1048576", "STOP SLAVE IO_THREAD", "START SLAVE IO_THREAD")
	master.MustExec(t, "SET SESSION binlog_format=ROW", "INSERT INTO app.t VALUES (1, REPEAT('x', 3000000))")
	st, err := r.WaitStatus(within(t), "the slave stopped by error 1153", func(st *api.Status) bool {
		s := serverStatus(st, "db2")
		return s.LastError != nil && s.LastError.Code == 1153 && st.Health == "degraded"
	})
	if err != nil {
		t.Fatal(err)
	}
	if s := serverStatus(st, "db2"); !strings.Contains(s.LastError.Message, "slave_max_allowed_packet") || *st.Master != "db1" || st.Epoch != 1 {
		t.Errorf("%+v", s)
	}
	for _, p := range st.Problems {
		if p.Code == "slave_io_error" && !strings.Contains(p.Do, "START SLAVE IO_THREAD") {
			t.Errorf("it does not say what to do: %+v", p)
		}
	}
	slave.MustExec(t, "SET GLOBAL slave_max_allowed_packet=1073741824", "START SLAVE IO_THREAD")
	if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
		t.Fatal(err)
	}
	sameTable(t, "app.t", master, slave)
}
