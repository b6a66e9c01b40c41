package failover

import (
	"fmt"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/topology"
)

// nearlyCaughtUp is how far behind the candidate may be when the old master is
// closed: what is left then is waited for with nobody writing.
const nearlyCaughtUp = 500 * time.Millisecond

// switchoverRules are the rules for beginning a switchover to a server, "" for
// the best one, and who it would be.
func (d *decider) switchoverRules(to string) (string, []Problem) {
	ms := d.members(d.c.Master)
	list := wanted(promotable(ms), ms)
	if to != "" {
		list = only(list, to)
	}
	for _, m := range list {
		if d.streams(m.name) {
			return m.name, nil
		}
	}
	ps := []Problem{{Code: "no_candidate", Text: "no slave could be promoted now"}}
	for _, m := range ms {
		if to == "" || m.name == to {
			ps = append(ps, m.because...)
			if len(m.because) == 0 && !d.streams(m.name) {
				ps = append(ps, Problem{Code: "not_streaming", Server: m.name, Text: m.name + " does not replicate with both threads"})
			}
		}
	}
	return "", ps
}

// beginSwitchover journals a switchover of a live master that a person ordered.
func (d *decider) beginSwitchover(to string) Action {
	name, ps := d.switchoverRules(to)
	if len(ps) > 0 {
		return d.blocked(ps...)
	}
	return Action{Kind: KindBegin, Why: []string{fmt.Sprintf("a person ordered it: %s follows %s", name, d.c.Master)}, Intent: &topology.Intent{
		Kind: topology.IntentSwitchover, Epoch: d.c.Epoch + 1, OldMaster: d.c.Master, To: name, Manual: true,
		Symptom: d.now, Begun: d.now, Deadline: d.now.Add(d.p.SwitchoverTimeout), Bound: d.bound(), Armed: d.armedAt(d.now), ArmedSeen: d.armedSeen(), Endless: d.c.Endless,
	}}
}

// switchover says the next step of an open switchover. The stages, in order: the
// candidate catches up, the old master is shut, the candidate applies its last
// transaction, is detached, armed and opened, and the others follow. Before the
// opening is sent, whatever goes wrong leads back to the old master.
func (d *decider) switchover(in *topology.Intent) Action {
	switch {
	case !in.Opened.IsZero() && in.Opening.Server == in.OldMaster:
		return d.endIntent(in, topology.ResultRolledBack, "rolled back: "+in.RollingBack)
	case !in.Opened.IsZero():
		return d.repoint(in)
	case in.Opening != nil && (in.Opening.Server != in.OldMaster || !d.in.Verdict.Lost()):
		return d.confirmOpening(in)
	case d.in.Verdict.Lost():
		if a, acts := d.openingPending(in); acts {
			return a
		}
		return d.endIntent(in, topology.ResultFailed, "the old master was lost in the middle of the switchover")
	case in.RollingBack != "":
		return d.rollBack(in)
	}
	if why := d.giveUp(in); why != "" {
		return Action{Kind: KindJournal, Why: []string{why}, Journal: []topology.Command{
			topology.RollBack{Cluster: d.c.Name, Intent: in.ID, Why: why}}}
	}
	cand := d.member(in.To)
	if !d.shut(in) {
		return d.shutOld(in, cand)
	}
	last := d.v.Servers[in.OldMaster].Last.BinlogPos.Of(d.domain)
	if !d.c.Lineage.Contains(cand.applied, last) {
		return wait(d.left(in), fmt.Sprintf("%s stands at %s, the closed master at %s", cand.name, cand.applied, last))
	}
	return d.prepare(in, cand, d.members(in.OldMaster))
}

// giveUp says why a switchover cannot go on, "" if it can.
func (d *decider) giveUp(in *topology.Intent) string {
	if d.now.After(in.Deadline) {
		return fmt.Sprintf("it was not done within failover.switchover_timeout, %v", d.p.SwitchoverTimeout)
	}
	cand := d.member(in.To)
	if len(cand.because) > 0 {
		return problemText(cand.because)
	}
	if mv := d.v.Servers[in.OldMaster]; mv.Last.Reach == health.ReachForeign {
		return "another server answers at the old master's address"
	}
	return ""
}

func (d *decider) left(in *topology.Intent) time.Duration {
	return max(time.Millisecond, in.Deadline.Sub(d.now))
}

// shut tells whether the old master was shut for this switchover by this
// process and is seen closed since. (The lock of another process is gone.)
func (d *decider) shut(in *topology.Intent) bool {
	e, sv := d.in.Effects[in.OldMaster], d.v.Servers[in.OldMaster]
	return e.Running == "" && e.Last == KindShut && e.Failed == 0 && e.At.After(in.Begun) && sv.Reachable() && sv.Last.ReadOnly && sv.Last.Sent.After(e.At)
}

// shutOld shuts the old master once the candidate is close behind it.
func (d *decider) shutOld(in *topology.Intent, cand *member) Action {
	old := d.v.Servers[in.OldMaster]
	switch {
	case !old.Reachable() || !old.Last.Sent.After(in.Begun) || !cand.sv.Last.Sent.After(in.Begun):
		return wait(d.left(in), "waiting for a fresh look at both")
	case old.Last.ReadOnly:
		// Shut in part, or by an earlier process.
	case cand.sv.LagApplied == nil || *cand.sv.LagApplied > nearlyCaughtUp:
		return wait(min(retryFirst, d.left(in)), cand.name+" catches up first")
	}
	if a, acts := d.lookBeforeShutting(in); acts {
		return a
	}
	a := d.act(KindShut, in.OldMaster, cand.name+" is close behind")
	if a.Kind == KindWait {
		a.RecheckIn = d.left(in)
	}
	return a
}

// rollBack opens the old master again, if it was closed.
func (d *decider) rollBack(in *topology.Intent) Action {
	sv := d.v.Servers[in.OldMaster]
	e := d.in.Effects[in.OldMaster]
	switch {
	case e.Running != "":
		return wait(0, fmt.Sprintf("%s is running on %s", e.Running, in.OldMaster))
	case !sv.Reachable() || !sv.Last.Sent.After(e.At):
		return wait(retryFirst, "waiting for a fresh look at "+in.OldMaster)
	case !sv.Last.ReadOnly:
		return d.endIntent(in, topology.ResultRolledBack, "rolled back: "+in.RollingBack)
	}
	arm := d.armOpening(d.ackersExpected(in.OldMaster, d.members(in.OldMaster)))
	return d.open(in, in.OldMaster, arm, sv.Last.BinlogPos.Of(d.domain), "the switchover is rolled back: "+in.RollingBack)
}

// staysOpen settles a switchover that was given up while its master was, or
// seemed, open: the order to shut it may still be under way, or wait on the
// server behind a commit. Setting semi-sync to what it is ends that first, as every
// effect does; a master that is found closed meanwhile is opened again.
func (d *decider) staysOpen(mv *health.ServerView) (Action, bool) {
	if !d.c.Shutting {
		return Action{}, false
	}
	kind := KindDisarm
	if mv.Last.SemiSync.MasterEnabled {
		kind = KindArm
	}
	e := d.in.Effects[d.c.Master]
	switch {
	case e.Running != "":
		return Action{}, false
	case e.Failed == 0 && (e.Last == KindArm || e.Last == KindDisarm) && mv.Last.Sent.After(e.At):
		return Action{Kind: KindJournal, Why: []string{d.c.Master + " is open, and nothing is left that could shut it"},
			Journal: []topology.Command{topology.MarkOpen{Cluster: d.c.Name}}}, true
	case d.ready(d.c.Master, kind):
		return d.act(kind, d.c.Master, "ends what is left of a switchover that was given up"), true
	}
	return Action{}, false
}

func (d *decider) endIntent(in *topology.Intent, r topology.Result, why string) Action {
	return Action{Kind: KindJournal, Ends: r, Why: []string{why}, Journal: []topology.Command{
		topology.EndIntent{Cluster: d.c.Name, Intent: in.ID, At: d.now}}}
}
