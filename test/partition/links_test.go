package partition

import (
	"testing"
	"time"

	"github.com/repld/repld/internal/api"
)

// quick makes hang_timeout so short that many cuts can be tried in a short time.
const quick = "failover: {hang_timeout: 1s, block_window: 0s}"

// A18: while only repld does not reach the master, and its slaves do, nothing is
// done, and status says so; whether the master is busy or idle.
func TestCaseA18_OnlyReplDIsCutOffFromTheMaster(t *testing.T) {
	t.Parallel()
	c := up(t, 3, quick)
	c.cutFromRepld("idle")
	c.write(app1)
	c.cutFromRepld("busy")
	c.noFailover()
	c.settle()
}

// cutFromRepld cuts repld off from the master alone, then from everybody.
func (c *cluster) cutFromRepld(name string) {
	c.t.Helper()
	for _, way := range []struct {
		problem string
		cut     func() error
	}{
		{"master_vetoed", func() error { return c.net.Cut(repld, "db1") }},
		{"master_cut_off", func() error { return c.net.CutOff(repld) }},
	} {
		c.must(way.cut())
		p := c.untilProblem(way.problem)
		c.t.Logf("%s: %s", name, p.Text)
		c.stays(3*time.Second, "left alone", func(st *api.Status) bool {
			return st.Epoch == 1 && *st.Master == "db1" && find(st.Problems, way.problem) != nil && st.Health != "failing_over" && st.Health != "blocked"
		})
		if c.ledger != nil {
			c.goesOn(50, 1)
		}
		c.heal()
	}
}

// Whatever single way is cut between two, in one direction or both, the master
// stays: either repld or a slave hears it. All goes on, and all is well by
// itself when it is mended.
func TestEveryPairCut(t *testing.T) {
	t.Parallel()
	servers := []string{"db1", "db2", "db3"}
	var ways [][2]string
	for _, s := range servers {
		ways = append(ways, [2]string{repld, s}, [2]string{s, repld})
		for _, o := range servers {
			if s != o {
				ways = append(ways, [2]string{s, o})
			}
		}
	}
	ways = append(ways, [2]string{app1, "db1"}, [2]string{"db1", app1})
	// Several clusters share the ways out among them.
	const clusters = 2
	for i := range clusters {
		t.Run([]string{"one half", "other half"}[i], func(t *testing.T) {
			t.Parallel()
			c := up(t, 3, quick)
			c.write(app1, app2)
			for j, w := range ways {
				if j%clusters == i {
					c.oneWay(w[0], w[1])
				}
			}
			c.noFailover()
			c.settle()
		})
	}
}

func (c *cluster) oneWay(from, to string) {
	c.t.Helper()
	c.t.Logf("%s -> %s", from, to)
	c.must(c.net.CutOneWay(from, to))
	c.stays(2500*time.Millisecond, "left alone", func(st *api.Status) bool { return st.Epoch == 1 && *st.Master == "db1" })
	c.goesOn(20, 1)
	c.heal()
}
