package failover

import (
	"fmt"

	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// prepare makes the candidate ready and opens it.
func (d *decider) prepare(in *topology.Intent, cand *member, ms []*member) Action {
	if !d.c.Lineage.Contains(cand.applied, d.c.Floor) {
		return d.blocked(Problem{Code: "below_floor", Server: cand.name, Text: fmt.Sprintf(
			"%s stands at %s and lacks what the last promotion promised: %s", cand.name, cand.applied, d.c.Floor)})
	}
	if a, acts := d.lookAgain(in); acts {
		return a
	}
	if cand.sv.Last.Slave != nil {
		return d.act(KindDetach, cand.name, fmt.Sprintf("%s has applied all that it received: %s", cand.name, cand.applied))
	}
	return d.open(in, cand.name, d.armOpening(d.ackersExpected(cand.name, ms) || d.oldWillAck(in)), cand.applied,
		fmt.Sprintf("%s is closed, drained and detached at %s", cand.name, cand.applied))
}

// lookAgain makes sure that the old master was found lost by a probe that
// ended after the failover began, and a moment ago if it refuses.
func (d *decider) lookAgain(in *topology.Intent) (Action, bool) {
	mv := d.v.Servers[in.OldMaster]
	if mv == nil || mv.Last.Reach == health.ReachOK {
		return Action{}, false // removed, or back, behind and closed
	}
	fresh := mv.Last.At.After(in.Begun)
	if mv.Last.Reach == health.ReachRefused {
		fresh = fresh && d.now.Sub(mv.Last.Sent) <= freshProbe
	}
	if fresh {
		return Action{}, false
	}
	if e := d.in.Effects[in.OldMaster]; e.Running != "" {
		return wait(0, fmt.Sprintf("%s is running on %s", e.Running, in.OldMaster)), true
	}
	return Action{Kind: KindProbe, Servers: []string{in.OldMaster}, Why: []string{"a last look at the old master"}}, true
}

// oldWillAck tells whether the old master of a switchover will follow as an
// acker.
func (d *decider) oldWillAck(in *topology.Intent) bool {
	old := d.c.Servers[in.OldMaster]
	return in.Kind == topology.IntentSwitchover && len(old.NeverPromotable()) == 0 &&
		d.v.Servers[in.OldMaster].Reachable()
}

// ackersExpected tells whether another member can be expected to acknowledge
// the new master's commits soon.
func (d *decider) ackersExpected(cand string, ms []*member) bool {
	for _, m := range ms {
		if m.name != cand && m.sv.Reachable() && d.ackerOf(m.name, cand) {
			return true
		}
	}
	return false
}

// setArmed brings semi-sync on a closed server to what it shall be at its
// opening.
func (d *decider) setArmed(name string, arm bool) (Action, bool) {
	on := d.v.Servers[name].Last.SemiSync.MasterEnabled
	switch {
	case arm && !on:
		return d.act(KindArm, name, "commits shall wait for an acker from the first one on"), true
	case !arm && on:
		return d.act(KindDisarm, name, "no acker can be expected"), true
	}
	return Action{}, false
}

// confirmOpening waits until the candidate is seen open. If the statement can
// have no effect any more and the candidate is seen closed, it is withdrawn.
func (d *decider) confirmOpening(in *topology.Intent) Action {
	name := in.Opening.Server
	sv := d.v.Servers[name]
	if e := d.in.Effects[name]; e.Running == KindOpen {
		return wait(0, name+" is being opened")
	}
	if !sv.Reachable() || !sv.Last.Sent.After(in.Opening.Sent) {
		a := d.blocked(Problem{Code: "opening_unconfirmed", Server: name,
			Text: fmt.Sprintf("%s was told to open and cannot be observed: %s", name, reachText(sv)), Do: "bring " + name + " back"})
		a.RecheckIn = retryFirst
		return a
	}
	if !sv.Last.ReadOnly {
		return Action{Kind: KindJournal, Unseen: d.unseen(in), Why: []string{name + " is open"}, Journal: []topology.Command{
			topology.RecordOpened{Cluster: d.c.Name, Intent: in.ID, At: sv.Last.At, Process: sv.Last.Started, Unseen: d.unseen(in)}}}
	}
	if left := in.Opening.Deadline.Sub(sv.Last.Sent); left > 0 {
		return wait(left, name+" is still closed")
	}
	if name != d.c.Master && sv.Last.BinlogPos.Of(d.domain).Seq > in.Opening.Applied.Seq {
		return d.openAgain(in)
	}
	return Action{Kind: KindJournal, Why: []string{name + " stayed closed until the opening expired"}, Journal: []topology.Command{
		topology.WithdrawOpening{Cluster: d.c.Name, Intent: in.ID}}}
}

// openAgain opens a candidate that is closed and yet has written: it was open,
// unseen, and restarted. Its era has begun with transactions that clients may
// have been told OK for, so nobody else can be chosen any more.
func (d *decider) openAgain(in *topology.Intent) Action {
	if a, acts := d.lookAgain(in); acts {
		return a
	}
	name := in.Opening.Server
	if mv := d.v.Servers[in.OldMaster]; mv.Reachable() && !mv.Last.ReadOnly {
		return d.act(KindFence, in.OldMaster, name+" has begun a new era")
	}
	return d.open(in, name, d.armOpening(d.ackersExpected(name, d.members(in.OldMaster))), in.Opening.Applied, fmt.Sprintf(
		"%s was open after %s and restarted", name, in.Opening.Applied))
}

// open arms a closed server, or disarms it, then opens it.
func (d *decider) open(in *topology.Intent, name string, arm bool, applied gtid.GTID, why string) Action {
	if a, acts := d.setArmed(name, arm); acts {
		return a
	}
	a := d.act(KindOpen, name, why)
	if a.Kind == KindOpen {
		a.Journal = []topology.Command{topology.SendOpening{Cluster: d.c.Name, Intent: in.ID, Opening: topology.Opening{
			Server: name, Applied: applied, Sent: d.now, Deadline: d.now.Add(openWithin + openSlack), Armed: arm,
		}}}
	}
	return a
}

// unseen lists the servers that may have acknowledged something and could not be
// asked what they hold.
func (d *decider) unseen(in *topology.Intent) []string {
	var out []string
	for _, m := range d.members(in.OldMaster) {
		if m.s.Retired {
			continue // it was made no acker, and others had what it had, when that began
		}
		if m.s.MustFence {
			continue // a former master, lost before this one was opened, never followed it
		}
		if m.sv.LastOK.Reach == health.ReachOK && !d.mayHaveAcknowledged(m) {
			continue // by record and by its last look it was no acker
		}
		if c := m.sv.Ceiling; !m.sv.Reachable() && !c.IsZero() && d.c.Lineage.Contains(in.Opening.Applied, c) {
			continue // it was down before the old master wrote anything that is missing
		}
		if has, known := d.remembered(in, m); known && d.c.Lineage.Contains(in.Opening.Applied, has) {
			continue // it was asked during this failover, when nothing more could come to it
		}
		if m.name != in.Opening.Server && (!m.sv.Reachable() || !m.known || d.leftBehind(in, m)) {
			out = append(out, m.name)
		}
	}
	return out
}

// leftBehind tells whether a member may have acknowledged what the new master
// lacks: a person has given it up.
func (d *decider) leftBehind(in *topology.Intent, m *member) bool {
	return d.mayHaveAcknowledged(m) && d.own(m, m.received) && m.received.Seq > in.Opening.Applied.Seq
}
