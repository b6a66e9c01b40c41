package e2e

import (
	"testing"
	"time"

	"github.com/repld/repld/test/ledger"
	"github.com/repld/repld/test/rig"
)

// A19: a master that is frozen accepts connections and answers nothing. It is
// replaced after hang_timeout; when it thaws, it is fenced before it can
// acknowledge anything, and comes back as a slave.
func TestCaseA19_FrozenMasterIsReplacedAndFencedWhenItThaws(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 3})
	l := write(t, r)
	old := r.Server("db1")
	frozen := time.Now()
	if err := old.Freeze(); err != nil {
		t.Fatal(err)
	}
	ack := firstAck(t, l, 1)
	op := operation(t, r, "failover")
	t.Logf("first write acknowledged %v after the freeze; detected after %v ms, opened after %v ms", ack.After.Sub(frozen), *op.DetectedMS, *op.OpenedMS)
	if op.Result != "done" || *op.LostTransactions != 0 {
		t.Errorf("history says %+v", op)
	}
	if err := old.Thaw(); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l, ledger.OldMaster{ServerID: 1, Opened: ack.After})
}
