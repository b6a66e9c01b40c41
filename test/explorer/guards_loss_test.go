package explorer

import (
	"strings"
	"testing"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/health"
	"github.com/repld/repld/topology"
)

// TestEachRuleOfAnAcceptedLossIsNeeded takes away what bounds a person's
// --accept-loss 0.
func TestEachRuleOfAnAcceptedLossIsNeeded(t *testing.T) {
	skipIfRace(t)
	for _, c := range []struct {
		rule   string
		bounds Bounds
		guards Guards
		broken string
	}{
		{"no more is lost than was said", Bounds{Writes: 1, Faults: 2, Without: only(evCrash)}, Guards{Input: func(in *failover.Input) {
			lieOfCluster(in, func(c *topology.Cluster) {
				if c.Intent != nil && c.Intent.AcceptLoss != nil {
					n := uint64(9)
					c.Intent.AcceptLoss = &n
				}
			})
		}}, "2:"},
		{"a loss is accepted only of a master that is stopped", Bounds{Writes: 1, Faults: 2, Without: only(evFreeze)}, Guards{Input: func(in *failover.Input) {
			if failingOver(in) && in.View.Cluster.Intent.AcceptLoss != nil {
				in.Verdict.State = health.StateDead
			}
		}}, "1:"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			c.bounds.Servers, c.bounds.Orders = 3, 1
			e := New(c.bounds, c.guards)
			e.Order = &failover.Order{AcceptLoss: new(uint64)}
			res, err := e.Search()
			if err != nil {
				t.Fatal(err)
			}
			if v := res.Violation; v == nil || !strings.HasPrefix(v.What, c.broken) {
				t.Fatalf("%d states without this rule: %+v, want %q", res.States, v, c.broken)
			}
			t.Logf("%d states\n%s", res.States, res.Violation.Transcript)
		})
	}
}
