package e2e

import (
	"testing"
	"time"

	"github.com/repld/repld/test/rig"
)

func TestDebugSlave(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 3})
	l := write(t, r)
	r.Server("db2").Kill()
	time.Sleep(2 * time.Second)
	t.Log(r.Server("db2").StartAgain(within(t)))
	time.Sleep(3 * time.Second)
	row, err := r.Server("db2").Row(t.Context(), "SHOW SLAVE STATUS")
	for k, v := range row {
		t.Log(k, v)
	}
	t.Log(err)
	rows, err := r.Server("db2").Rows(t.Context(), "SHOW PROCESSLIST")
	for _, x := range rows {
		t.Log(x)
	}
	t.Log(r.Ctl(t.Context(), "status").Stdout)
	l.Stop()
	t.Log(r.Server("db2").LogTail(60))
}
