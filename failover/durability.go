package failover

import (
	"fmt"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/topology"
)

// durability keeps the master's semi-sync as the cluster's mode wants it. It
// is called only while the master is alive, reached and open, and no intent is
// open: the only time at which repld may degrade (see docs/guarantees.md).
func (d *decider) durability(mv *health.ServerView) (Action, bool) {
	if d.c.Durability != topology.SemiSync {
		return Action{}, false
	}
	semi := mv.Last.SemiSync
	switch d.c.DurabilityState {
	case topology.DurabilityArmed:
		return d.keepArmed(mv, semi)
	default:
		return d.tryArm(semi)
	}
}

// keepArmed watches an armed master: degrade it when it has had no acker for
// ack_timeout, take note when it degraded by itself, nudge a stuck wait.
func (d *decider) keepArmed(mv *health.ServerView, semi health.SemiSync) (Action, bool) {
	if !semi.MasterEnabled {
		return d.act(KindArm, d.c.Master, "semi-sync was switched off from outside"), true
	}
	if semi.Clients == 0 {
		left := d.p.AckTimeout - d.now.Sub(mv.NoAckerSince)
		if mv.NoAckerSince.IsZero() || left > 0 {
			return Action{}, false
		}
		return d.degrade(fmt.Sprintf("no acker for %v", d.p.AckTimeout))
	}
	if !semi.MasterOn {
		// An acker is connected and the server still does not wait: it timed out
		// by itself. It waits again by itself once the acker has caught up.
		return Action{Kind: KindJournal, Why: []string{"the server stopped waiting for acknowledgements by itself"},
			Journal: []topology.Command{d.degraded()}}, true
	}
	if !mv.WaitingSince.IsZero() && d.now.Sub(mv.WaitingSince) >= nudgeAfter && d.ready(announceKey, KindAnnounce) {
		return Action{Kind: KindAnnounce, Servers: []string{d.c.Master}, Why: []string{fmt.Sprintf(
			"%d commits have waited for %v although an acker is connected", semi.Waiting, d.now.Sub(mv.WaitingSince).Round(time.Millisecond))}}, true
	}
	return Action{}, false
}

// degrade journals that commits go on without an acker, then lets them.
func (d *decider) degrade(why string) (Action, bool) {
	a := d.act(KindDisarm, d.c.Master, why)
	if a.Kind != KindDisarm {
		return a, false
	}
	a.Journal = []topology.Command{d.degraded()}
	return a, true
}

// degraded is the journal of a degrading. What was acknowledged before it may
// be on an acker that is out of reach, and stays promised.
func (d *decider) degraded() topology.Command {
	return topology.SetDurabilityState{Cluster: d.c.Name, State: topology.DurabilityDegraded, At: d.now,
		Promised: d.v.Servers[d.c.Master].Last.BinlogPos.Of(d.domain)}
}

// tryArm arms the master once an acker streams, and journals it once it is
// seen to wait for one.
func (d *decider) tryArm(semi health.SemiSync) (Action, bool) {
	if !d.ackerStreams() {
		if semi.MasterEnabled && semi.Clients == 0 && d.ready(d.c.Master, KindDisarm) {
			return d.act(KindDisarm, d.c.Master, "no acker streams"), true
		}
		return Action{}, false
	}
	if !semi.MasterEnabled {
		if !d.ready(d.c.Master, KindArm) {
			return Action{}, false
		}
		return d.act(KindArm, d.c.Master, "an acker streams"), true
	}
	if semi.MasterOn && semi.Clients > 0 {
		return Action{Kind: KindJournal, Why: []string{fmt.Sprintf("commits wait for one of %d ackers", semi.Clients)},
			Journal: []topology.Command{topology.SetDurabilityState{Cluster: d.c.Name, State: topology.DurabilityArmed, At: d.now}}}, true
	}
	return Action{}, false
}

// ackerStreams tells whether some acker's IO thread is connected as one.
func (d *decider) ackerStreams() bool {
	for _, name := range d.c.Names() {
		if d.acker(name) && d.streams(name) && d.v.Servers[name].Last.SemiSync.SlaveOn {
			return true
		}
	}
	return false
}
