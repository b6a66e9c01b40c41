package explorer

import (
	"slices"
	"strings"
	"testing"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// only keeps the given kinds of fault and leaves all others out.
func only(kinds ...kind) uint32 {
	var mask uint32
	for k := range kindsEnd {
		if (event{k: k}).fault() {
			mask |= 1 << k
		}
	}
	for _, k := range kinds {
		mask &^= 1 << k
	}
	return mask
}

// lie changes what Decide sees of each server, on copies.
func lie(in *failover.Input, f func(name string, sv *health.ServerView)) {
	v := *in.View
	v.Servers = map[string]*health.ServerView{}
	for n, sv := range in.View.Servers {
		c := *sv
		for _, o := range []*health.Observation{&c.Last, &c.LastOK} {
			if o.Slave != nil {
				st := *o.Slave
				o.Slave = &st
			}
		}
		f(n, &c)
		v.Servers[n] = &c
	}
	in.View = &v
}

func lieOfCluster(in *failover.Input, f func(c *topology.Cluster)) {
	v := *in.View
	v.Cluster = in.View.Cluster.Clone()
	f(v.Cluster)
	in.View = &v
}

func failingOver(in *failover.Input) bool {
	i := in.View.Cluster.Intent
	return i != nil && i.Kind == topology.IntentFailover && i.Opened.IsZero()
}

// appliedIsReceived makes Decide believe that nothing waits in a relay log.
func appliedIsReceived(sv *health.ServerView) {
	for _, o := range []*health.Observation{&sv.Last, &sv.LastOK} {
		if o.Slave != nil && o.Slave.Received.Of(0).Seq > o.SlavePos.Of(0).Seq {
			o.SlavePos, o.BinlogPos = o.Slave.Received, o.Slave.Received
		}
	}
}

// onLineage renames a transaction as if every number were the cluster's own.
func onLineage(c *topology.Cluster, g gtid.GTID) gtid.GTID {
	for _, era := range c.Lineage {
		if g.Seq >= era.First {
			g.Server = era.Server
		}
	}
	return g
}

// TestEachRuleIsNeeded takes one rule after the other away from Decide: without
// it the search must find a state that violates an invariant. A rule whose
// absence breaks nothing would be untested or needless.
func TestEachRuleIsNeeded(t *testing.T) {
	skipIfRace(t)
	for _, c := range []struct {
		rule   string
		bounds Bounds
		guards Guards
		broken string // the invariant, by its number
	}{
		{"revocation before opening", Bounds{Writes: 1, Faults: 1, Without: only(evFreeze)}, Guards{Input: func(in *failover.Input) {
			if !failingOver(in) {
				return
			}
			lie(in, func(n string, sv *health.ServerView) {
				if sv.Last.Slave != nil {
					sv.Last.Slave.IO = health.ThreadNo
					in.Effects[n] = failover.Effect{Last: failover.KindStopIO, At: in.View.Cluster.Intent.Begun.Add(1)}
				}
			})
		}}, "2:"},
		{"a stopped IO thread is not yet revocation", Bounds{Writes: 1, Faults: 2, Crashes: 1, Without: only(evCrash, evFreeze) | 1<<evHalf | 1<<evRepldCrash | 1<<evHeal | 1<<evUnstale}, Guards{Input: func(in *failover.Input) {
			if failingOver(in) {
				for _, n := range in.View.Cluster.Names() {
					if e := in.Effects[n]; n != in.View.Cluster.Master && (e.Running == failover.KindAttach || e.Running == "" && e.At.Before(in.View.Cluster.Intent.Begun)) {
						in.Effects[n] = failover.Effect{Last: failover.KindStopIO, At: in.View.Cluster.Intent.Begun.Add(1)}
					}
				}
			}
		}}, "2:"},
		{"drain before promotion", Bounds{Writes: 1, Faults: 2, Without: only(evCrash, evLag)}, Guards{Input: func(in *failover.Input) {
			lie(in, func(_ string, sv *health.ServerView) { appliedIsReceived(sv) })
		}}, "4:"},
		{"drain before re-pointing", Bounds{Writes: 1, Faults: 2, Without: only(evFreeze, evLag)}, Guards{Input: func(in *failover.Input) {
			if failingOver(in) {
				return
			}
			lie(in, func(n string, sv *health.ServerView) {
				if n != in.View.Cluster.Master {
					appliedIsReceived(sv)
				}
			})
		}}, "4:"},
		{"an unreachable acker blocks while armed", Bounds{Writes: 1, Faults: 2, Without: only(evCrash)}, Guards{Input: func(in *failover.Input) {
			lie(in, func(_ string, sv *health.ServerView) { sv.Ceiling = gtid.GTID{Server: 1, Seq: 1} })
		}}, "2:"},
		{"a last look at the old master", Bounds{Faults: 2, Without: only(evCrash, evStale)}, Guards{Action: func(in failover.Input, a failover.Action) failover.Action {
			if a.Kind != failover.KindProbe {
				return a
			}
			lie(&in, func(_ string, sv *health.ServerView) { sv.Last.Sent, sv.Last.At = in.View.Now, in.View.Now })
			return failover.Decide(in)
		}}, "5:"},
		{"a start owed before a running slave is pointed elsewhere", Bounds{Faults: 1, Crashes: 1, Without: only(evCrash), Liveness: true, Chain: true}, Guards{Action: func(_ failover.Input, a failover.Action) failover.Action {
			a.Journal = slices.DeleteFunc(slices.Clone(a.Journal), func(c topology.Command) bool { _, owes := c.(topology.OweStart); return owes })
			return a
		}}, "10:"},
		{"armed once more before it is called armed", Bounds{Writes: 1, Faults: 2, Crashes: 1, Without: only(evFreeze) | 1<<evRepldCrash | 1<<evHalf, Chain: true}, Guards{Input: func(in *failover.Input) {
			if e := in.Effects[in.View.Cluster.Master]; e.Running == "" {
				in.Effects[in.View.Cluster.Master] = failover.Effect{Last: failover.KindArm, At: e.At}
			}
		}}, "1:"},
		{"the floor", Bounds{Writes: 1, Faults: 3, Without: only(evCrash)}, Guards{Input: func(in *failover.Input) {
			lieOfCluster(in, func(c *topology.Cluster) { c.Floor = gtid.GTID{} })
		}}, ""},
		{"lineage instead of bare numbers, where contents are not compared either", Bounds{Writes: 2, Faults: 1, Without: only(evCrash), Liveness: true}, Guards{NoCompare: true, Input: func(in *failover.Input) {
			c := in.View.Cluster
			lie(in, func(_ string, sv *health.ServerView) {
				for _, o := range []*health.Observation{&sv.Last, &sv.LastOK} {
					o.SlavePos, o.BinlogPos = gtid.At(onLineage(c, o.SlavePos.Of(0))), gtid.At(onLineage(c, o.BinlogPos.Of(0)))
					var list []gtid.GTID
					for _, g := range o.BinlogState.List() {
						list = append(list, onLineage(c, g))
					}
					o.BinlogState = gtid.StateOf(list...)
				}
			})
		}}, "8:"},
		{"the journal before the opening", Bounds{Writes: 1, Faults: 1, Without: only(evCrash), Liveness: true}, Guards{Action: func(_ failover.Input, a failover.Action) failover.Action {
			if a.Kind == failover.KindOpen {
				a.Journal = nil
			}
			return a
		}}, ""},
		{"an opening that expires", Bounds{Writes: 1, Faults: 1, Crashes: 1, Without: only(evCrash), Liveness: true}, Guards{NoExpiry: true}, ""},
		{"a restarted slave is drained by file", Bounds{Writes: 1, Faults: 2, Without: only(evCrash, evLag)}, Guards{Input: func(in *failover.Input) {
			lie(in, func(_ string, sv *health.ServerView) {
				for _, o := range []*health.Observation{&sv.Last, &sv.LastOK} {
					if o.Slave != nil && o.Slave.Received.IsEmpty() {
						o.Slave.SourceLogFile, o.Slave.ExecLogFile = "", ""
					}
				}
			})
		}}, "4:"},
		{"the fence", Bounds{Writes: 1, Faults: 1, Without: only(evFreeze), Liveness: true}, Guards{Input: func(in *failover.Input) {
			master := in.View.Cluster.Master
			lieOfCluster(in, func(c *topology.Cluster) {
				for _, s := range c.Servers {
					s.MustFence = false
				}
			})
			lie(in, func(n string, sv *health.ServerView) {
				if i := in.View.Cluster.Intent; n != master && (i == nil || i.Opening == nil) {
					sv.Last.ReadOnly = true
				}
			})
		}}, ""},
		{"no degrading while an intent is open", Bounds{Writes: 1, Faults: 1, Without: only(evFreeze)}, Guards{Action: func(in failover.Input, a failover.Action) failover.Action {
			i := in.View.Cluster.Intent
			if i == nil || a.Kind != failover.KindDetach {
				return a
			}
			if in.Effects[i.OldMaster].Last == failover.KindDisarm {
				return a
			}
			return failover.Action{Kind: failover.KindDisarm, Servers: []string{i.OldMaster}, Why: []string{"no acker is left"}}
		}}, ""},
		{"the promise before a degrading stays", Bounds{Writes: 1, Faults: 3, Without: only(evCrash)}, Guards{Action: func(_ failover.Input, a failover.Action) failover.Action {
			for i, cmd := range a.Journal {
				if c, ok := cmd.(topology.SetDurabilityState); ok {
					c.Promised = gtid.GTID{}
					a.Journal[i] = c
				}
			}
			return a
		}}, "2:"},
		{"no unfenced failover", Bounds{Writes: 1, Faults: 2, Without: only(evFreeze)}, Guards{Input: func(in *failover.Input) { in.Policy.AsyncWithoutFence = true }}, "1:"},
		{"a fence that fails is none", Bounds{Writes: 1, Faults: 2, Without: only(evFreeze)}, Guards{Input: func(in *failover.Input) {
			in.Policy.Hooks.Fence = true
			if e, ran := in.Effects[fenceKey]; ran {
				e.Failed = 0
				in.Effects[fenceKey] = e
			}
		}}, "1:"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			c.bounds.Servers = 3
			e := New(c.bounds, c.guards)
			res, err := e.Search()
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
			if c.bounds.Faults > 2 || c.bounds.Crashes > 0 {
				return // searched with all rules by the tests of explorer_test.go
			}
			with, err := New(c.bounds, Guards{}).Search()
			if err != nil {
				t.Fatal(err)
			}
			if with.Violation != nil {
				t.Errorf("with the rule: %s\n%s", with.Violation.What, with.Violation.Transcript)
			}
		})
	}
}
