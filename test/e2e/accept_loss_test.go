package e2e

import (
	"strings"
	"testing"

	"github.com/repld/repld/test/rig"
)

// The master and one of its two ackers die together: the other one may lack
// what was acknowledged, so nothing is promoted. A person can say what may be
// lost, and history records it without claiming that nothing was.
func TestAPersonAcceptsALoss(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 3})
	l := write(t, r)
	// db3 lacks for sure what db2 alone has acknowledged.
	r.Server("db3").MustExec(t, "STOP SLAVE IO_THREAD")
	if err := l.WaitCount(within(t), len(l.Acks())+50); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"db2", "db1"} {
		if err := r.Server(name).Kill(); err != nil {
			t.Fatal(err)
		}
	}
	st, err := r.WaitHealth(within(t), "blocked")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(problemCodes(st.Problems), "acker_unreachable") || !strings.Contains(st.Problems[0].Do, "--accept-loss") {
		t.Fatalf("problems: %+v", st.Problems)
	}
	if v := r.Server("db3").MustValue(t, "SELECT @@read_only"); v != "1" {
		t.Fatal("db3 was promoted although db2 may hold more")
	}
	if err := r.Ctl(within(t), "failover", "--accept-loss", "100000", "--yes").Err(); err != nil {
		t.Fatal(err)
	}
	if a := firstAck(t, l, 1); a.ServerID != 3 {
		t.Errorf("acknowledged by %d", a.ServerID)
	}
	op := operation(t, r, "failover")
	if op.Result != "done" || !strings.Contains(op.Detail, "a person accepted the loss") || (op.LostTransactions != nil && *op.LostTransactions == 0) {
		t.Errorf("history says %+v", op)
	}
	l.Stop()
}
