package partition

import (
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/internal/api"
)

// A slave that is cut off makes the cluster degraded; the other one acknowledges.
func TestSlaveCutOff(t *testing.T) {
	t.Parallel()
	c := up(t, 3, quick)
	c.write(app1)
	c.must(c.net.CutOff("db3"))
	c.untilProblem("slave_unreachable")
	c.stays(2*time.Second, "degraded and armed", func(st *api.Status) bool {
		return st.Health == "degraded" && st.Durability.State == "armed" && st.Epoch == 1 && serverStatus(st, "db3").State == "unreachable" &&
			serverStatus(st, "db3").LagMS == nil
	})
	c.goesOn(50, 1)
	c.heal()
	c.noFailover()
	c.settle()
}

// Slaves that the master does not reach acknowledge nothing: commits wait, until
// repld, which reaches all of them, gives durability up after ack_timeout. It
// does not leave that to the server, which waits longer.
func TestBothSlavesCutOffFromTheMaster(t *testing.T) {
	t.Parallel()
	c := up(t, 3, quick, "semi_sync: {ack_timeout: 3s, server_timeout: 2m}")
	c.write(app1)
	cut := time.Now()
	c.must(c.net.Cut("db1", "db2"))
	c.must(c.net.Cut("db1", "db3"))
	c.untilProblem("durability_degraded")
	t.Logf("degraded %v after the cut", time.Since(cut).Round(time.Millisecond))
	c.goesOn(50, 1)
	c.stays(time.Second, "degraded", func(st *api.Status) bool {
		return st.Health == "degraded" && st.Epoch == 1 && (st.Forecast.TransactionsAtRisk == nil || *st.Forecast.TransactionsAtRisk > 0)
	})
	if op := c.operation("degrade"); op == nil {
		t.Error("history has no degrade")
	}
	c.heal()
	c.noFailover()
	c.settle()
}

// Master and one slave on one side, repld and the other slave on the other: the
// slave there may acknowledge, so nobody is promoted here, and status says why.
func TestReplDOnTheSideWithoutTheMaster(t *testing.T) {
	t.Parallel()
	c := up(t, 3, quick)
	c.write(app1)
	for _, here := range []string{repld, "db2", app2} {
		for _, there := range []string{"db1", "db3", app1} {
			c.must(c.net.Cut(here, there))
		}
	}
	p := c.untilProblem("acker_unreachable")
	if p.Server != "db3" || !strings.Contains(p.Text, "may hold transactions that nobody else has") {
		t.Errorf("%+v", p)
	}
	c.stays(3*time.Second, "blocked", func(st *api.Status) bool { return st.Health == "blocked" && st.Epoch == 1 })
	// The other side goes on, acknowledged by its slave.
	c.goesOn(100, 1)
	if v := c.Server("db2").MustValue(t, "SELECT @@global.read_only"); v != "1" {
		t.Error("the slave on this side was promoted")
	}
	c.heal()
	if st := c.healthy(); st.Epoch != 1 || *st.Master != "db1" {
		t.Errorf("healed with epoch %d and master %s", st.Epoch, *st.Master)
	}
	c.settle()
}

// repld and both slaves lose the master at the same time as one of the slaves
// loses its network too: who may hold more is waited for, and the failover goes
// on by itself when that one is back, although the master is not.
func TestMasterAndOneSlaveCutOff(t *testing.T) {
	t.Parallel()
	c := up(t, 3, quick)
	c.write(app1)
	c.must(c.net.CutOff("db3"))
	c.must(c.net.CutOff("db1"))
	c.untilProblem("acker_unreachable")
	c.must(c.net.Heal())
	c.must(c.net.CutOff("db1"))
	to, _ := c.successor(1)
	t.Logf("%s was promoted when the other slave could be asked", to.Name)
	c.heal()
	c.settle()
}
