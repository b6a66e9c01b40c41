package partition

import (
	"testing"
	"time"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/ledger"
)

// hangTimeout is the default of failover.hang_timeout. openWithin is how long
// after that a successor must be open; slack is what a busy machine and the race
// detector may add before a test fails.
const (
	hangTimeout = 2 * time.Second
	openWithin  = 1500 * time.Millisecond
	slack       = 6 * time.Second
)

// A master that nobody reaches any more is replaced. A client on its own host
// still reaches it and is told nothing: what it wrote there alone is undone when
// the master is back.
func TestMasterCutOffFromEverybody(t *testing.T) {
	t.Parallel()
	c := up(t, 3)
	c.write(app1, "db1")
	cut := time.Now()
	c.must(c.net.CutOff("db1"))
	to, ack := c.successor(1)
	op := c.operation("failover")
	if op == nil {
		c.until("the end of the failover", func(st *api.Status) bool { return st.Health != "failing_over" })
		op = c.operation("failover")
	}
	t.Logf("cut off; %s told a client OK after %v; detected after %v ms, opened after %v ms from the first symptom",
		to.Name, ack.After.Sub(cut).Round(time.Millisecond), *op.DetectedMS, *op.OpenedMS)
	if took := ack.After.Sub(cut); took > hangTimeout+openWithin+slack {
		t.Errorf("it took %v", took)
	}
	if op.Result != "done" || op.LostTransactions == nil || *op.LostTransactions != 0 {
		t.Errorf("history says %+v", op)
	}
	c.untilProblem("must_fence")
	c.goesOn(100, 0)
	c.heal()
	if st := serverStatus(c.healthy(), "db1"); st.Role != "slave" || *st.ReadOnly != true {
		t.Errorf("the old master came back as %+v", st)
	}
	c.settle(ledger.OldMaster{ServerID: 1, Opened: ack.Before})
}

// Clients that still reach a master which repld and the slaves do not reach are
// told nothing by it: it waits for an acker. Others go on with its successor.
func TestClientsStillReachAMasterThatIsCutOff(t *testing.T) {
	t.Parallel()
	c := up(t, 3)
	c.write(app1, app2)
	for _, node := range []string{repld, "db2", "db3", app2} {
		c.must(c.net.Cut("db1", node))
	}
	c.must(c.net.Cut(app1, "db2"))
	c.must(c.net.Cut(app1, "db3"))
	to, ack := c.successor(1)
	t.Logf("%s goes on", to.Name)
	c.goesOn(100, 0)
	// The old master has clients that wait, and tells them nothing.
	if v := c.Server("db1").MustValue(t, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = '"+ledger.User+"'"); v == "0" {
		t.Error("no client reaches the old master: this proves nothing")
	}
	if v := c.Server("db1").MustValue(t, "SELECT @@global.read_only"); v != "0" {
		t.Error("the old master was closed over a cut network: this proves nothing")
	}
	c.heal()
	c.settle(ledger.OldMaster{ServerID: 1, Opened: ack.Before})
}

// A master that hears nobody, or that nobody hears, is no use to anybody: it is
// replaced as one that is cut off both ways.
func TestMasterCutOffOneWay(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(c *cluster, other string) error{
		"nobody hears it": func(c *cluster, other string) error { return c.net.CutOneWay("db1", other) },
		"it hears nobody": func(c *cluster, other string) error { return c.net.CutOneWay(other, "db1") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := up(t, 3)
			c.write(app1)
			begun := time.Now()
			for _, node := range []string{repld, "db2", "db3", app1, app2} {
				c.must(cut(c, node))
			}
			to, ack := c.successor(1)
			t.Logf("%s told a client OK after %v", to.Name, ack.After.Sub(begun).Round(time.Millisecond))
			if took := ack.After.Sub(begun); took > hangTimeout+openWithin+slack {
				t.Errorf("it took %v", took)
			}
			c.goesOn(50, 0)
			c.heal()
			c.settle(ledger.OldMaster{ServerID: 1, Opened: ack.Before})
		})
	}
}
