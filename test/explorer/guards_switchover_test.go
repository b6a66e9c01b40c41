package explorer

import (
	"strings"
	"testing"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// switching gives the open switchover that has not sent an opening, nil if there
// is none.
func switching(in *failover.Input) *topology.Intent {
	i := in.View.Cluster.Intent
	if i == nil || i.Kind != topology.IntentSwitchover || i.Opening != nil {
		return nil
	}
	return i
}

// TestEachRuleOfASwitchoverIsNeeded is TestEachRuleIsNeeded for switchovers, all
// of whose rules TestSwitchovers searches with.
func TestEachRuleOfASwitchoverIsNeeded(t *testing.T) {
	skipIfRace(t)
	for _, c := range []struct {
		rule   string
		bounds Bounds
		guards Guards
		broken string
	}{
		{"the old master is shut first", Bounds{Writes: 1}, Guards{Input: func(in *failover.Input) {
			i := switching(in)
			if i == nil {
				return
			}
			in.Effects[i.OldMaster] = failover.Effect{Last: failover.KindShut, At: i.Begun.Add(1)}
			lie(in, func(n string, sv *health.ServerView) {
				if n == i.OldMaster {
					sv.Last.ReadOnly = true
				}
			})
		}}, "1:"},
		{"the candidate has the closed master's last transaction", Bounds{Writes: 1}, Guards{Input: func(in *failover.Input) {
			i := switching(in)
			if i == nil {
				return
			}
			lie(in, func(n string, sv *health.ServerView) {
				if n == i.OldMaster {
					sv.Last.BinlogPos = gtid.At(gtid.GTID{Server: 1, Seq: 1})
				}
			})
		}}, "3:"},
		{"a shut master is owed an opening", Bounds{Faults: 1, Without: only(evFreeze), Liveness: true}, Guards{Input: func(in *failover.Input) {
			lieOfCluster(in, func(c *topology.Cluster) { c.Shutting = false })
		}}, "10:"},
		{"what could shut the master late is ended", Bounds{Crashes: 1, Liveness: true}, Guards{Action: func(in failover.Input, a failover.Action) failover.Action {
			if in.View.Cluster.Shutting && in.View.Cluster.Intent == nil && a.Kind == failover.KindArm {
				return failover.Action{Kind: failover.KindJournal, Journal: []topology.Command{topology.MarkOpen{Cluster: in.View.Cluster.Name}}}
			}
			return a
		}}, "10:"},
		{"at its deadline a switchover is rolled back", Bounds{Faults: 1, Without: only(evCrash), Liveness: true}, Guards{Input: func(in *failover.Input) {
			if switching(in) != nil {
				lieOfCluster(in, func(c *topology.Cluster) { c.Intent.Deadline = in.View.Now.Add(1) })
				lie(in, func(n string, sv *health.ServerView) {
					if n == in.View.Cluster.Intent.To {
						sv.LagApplied = nil
					}
				})
			}
		}}, "10:"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			res, err := switchovers(c.bounds, c.guards).Search()
			if err != nil {
				t.Fatal(err)
			}
			v := res.Violation
			if v == nil {
				t.Fatalf("%d states without this rule, and nothing is violated: it is untested or needless", res.States)
			}
			if !strings.HasPrefix(v.What, c.broken) {
				t.Errorf("violated %q, want %q", v.What, c.broken)
			}
			t.Logf("%d states\n%s", res.States, v.Transcript)
		})
	}
}
