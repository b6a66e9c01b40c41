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
	semi := mv.Last.SemiSync
	switch {
	case d.c.Durability == topology.Async:
		return d.keepOff(semi)
	case d.c.DurabilityState == topology.DurabilityArmed:
		return d.keepArmed(mv, semi)
	}
	return d.tryArm(semi)
}

// keepOff lets an asynchronous master wait for nobody.
func (d *decider) keepOff(semi health.SemiSync) (Action, bool) {
	if !semi.MasterEnabled || !d.ready(d.c.Master, KindDisarm) {
		return Action{}, false
	}
	return d.act(KindDisarm, d.c.Master, "durability is async"), true
}

// keepArmed watches an armed master: degrade it when it has had no acker for
// ack_timeout, take note when it degraded by itself, nudge a stuck wait.
func (d *decider) keepArmed(mv *health.ServerView, semi health.SemiSync) (Action, bool) {
	if !semi.MasterEnabled {
		return Action{Kind: KindJournal, Why: []string{"semi-sync was switched off from outside: commits did not wait"},
			Journal: []topology.Command{d.degraded()}}, true
	}
	if want := serverTimeout(d.c, d.p); semi.Timeout != want && d.ready(d.c.Master, KindArm) {
		return d.act(KindArm, d.c.Master, fmt.Sprintf("the server would stop waiting for an acker after %v, not %s", semi.Timeout, limitText(want))), true
	}
	if semi.Clients == 0 && d.c.Durability != topology.Lossless {
		left := d.p.AckTimeout - d.now.Sub(mv.NoAckerSince)
		if mv.NoAckerSince.IsZero() || left > 0 {
			return Action{}, false
		}
		return d.degrade(fmt.Sprintf("no acker for %v", d.p.AckTimeout))
	}
	if waited := d.waited(mv); waited > 0 && waited >= d.p.AckTimeout && d.c.Durability != topology.Lossless {
		// The connection of an acker that is frozen or cut off stays: the server
		// counts it for many minutes.
		return d.degrade(fmt.Sprintf("%d commits have waited for %v, and none of the %d ackers that are connected answers",
			semi.Waiting, waited.Round(time.Millisecond), semi.Clients))
	}
	if !semi.MasterOn {
		// The server does not wait although it should: it timed out by itself. It
		// waits again by itself once an acker has caught up.
		return Action{Kind: KindJournal, Why: []string{"the server stopped waiting for acknowledgements by itself"},
			Journal: []topology.Command{d.degraded()}}, true
	}
	if d.c.Durability == topology.Lossless && !d.c.Endless && d.endless(semi) {
		return Action{Kind: KindJournal, Why: []string{"every commit waits for an acker without a limit"}, Journal: []topology.Command{
			topology.SetDurabilityState{Cluster: d.c.Name, State: topology.DurabilityArmed, At: d.now, Endless: true}}}, true
	}
	if waited := d.waited(mv); semi.Clients > 0 && waited >= nudgeAfter && d.ready(announceKey, KindAnnounce) {
		return Action{Kind: KindAnnounce, Servers: []string{d.c.Master}, Why: []string{fmt.Sprintf(
			"%d commits have waited for %v although an acker is connected", semi.Waiting, waited.Round(time.Millisecond))}}, true
	}
	return Action{}, false
}

// waited is how long commits have waited on the master for an acker without any
// progress; 0 if none does.
func (d *decider) waited(mv *health.ServerView) time.Duration {
	if mv.WaitingSince.IsZero() {
		return 0
	}
	return d.now.Sub(mv.WaitingSince)
}

// endless tells whether no commit on the master can go on without an acker any
// more: it waits without a limit, and nobody waits since a time that had one, or
// that limit has passed.
func (d *decider) endless(semi health.SemiSync) bool {
	if !semi.MasterOn || semi.Timeout != Endless {
		return false
	}
	e := d.in.Effects[d.c.Master]
	passed := e.Running == "" && e.Last == KindArm && e.Failed == 0 && d.now.Sub(e.At) > d.p.ServerTimeout
	return semi.Waiting == 0 || passed
}

func limitText(limit time.Duration) string {
	if limit >= Endless {
		return "never"
	}
	return limit.String()
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
		if semi.MasterEnabled && semi.Clients == 0 && d.c.Durability != topology.Lossless && d.ready(d.c.Master, KindDisarm) {
			return d.act(KindDisarm, d.c.Master, "no acker streams"), true
		}
		return Action{}, false
	}
	if !semi.MasterEnabled || semi.Timeout != serverTimeout(d.c, d.p) || !d.armedLast() {
		if !d.ready(d.c.Master, KindArm) {
			return Action{}, false
		}
		return d.act(KindArm, d.c.Master, "an acker streams"), true
	}
	if semi.MasterOn && semi.Clients > 0 && d.covered() {
		return Action{Kind: KindJournal, Why: []string{fmt.Sprintf("commits wait for one of %d ackers", semi.Clients)},
			Journal: []topology.Command{topology.SetDurabilityState{Cluster: d.c.Name, State: topology.DurabilityArmed, At: d.now,
				Endless: d.c.Durability == topology.Lossless && d.endless(semi)}}}, true
	}
	return Action{}, false
}

// armedLast tells whether arming the master was the last thing done to it. A
// degrading that was not answered, or was sent by an earlier repld, may still run
// on it however armed it looks; arming ends that first.
func (d *decider) armedLast() bool {
	e := d.in.Effects[d.c.Master]
	return e.Running == "" && e.Last == KindArm && e.Failed == 0
}

// covered tells whether some acker has received all that was committed before the
// master was armed. Clients were told OK for that without any acker: while the
// master alone has it, a loss of the master would lose it, and the claim that
// every commit had waited would be false.
func (d *decider) covered() bool {
	at := d.v.Servers[d.c.Master].Last.BinlogPos.Of(d.domain)
	arm := d.in.Effects[d.c.Master]
	known := arm.Running == "" && arm.Last == KindArm && arm.Failed == 0
	for _, name := range d.c.Names() {
		if !d.acks(name) {
			continue
		}
		m := d.member(name)
		if m.known && d.c.Lineage.Contains(m.received, at) {
			return true
		}
		// On a busy master the two observations never meet.
		if lag := m.sv.LagReceived; known && lag != nil && *lag < d.now.Sub(arm.At)-armMargin {
			return true
		}
	}
	return false
}

// armMargin is how long after a commit repld has seen it at the latest.
const armMargin = time.Second

// ackerStreams tells whether some acker's IO thread is connected as one and
// hears the master: the thread of one that is cut off says for a while that it
// is connected.
func (d *decider) ackerStreams() bool {
	for _, name := range d.c.Names() {
		if d.acks(name) && d.v.Servers[name].Hears(d.now, d.p.HangTimeout) {
			return true
		}
	}
	return false
}

// mute is how long commits wait without any progress before status says that no
// acker answers: long enough for the nudge that a reconnected acker may need.
const mute = 2 * nudgeAfter

// durabilityProblems says where an open master is not as its mode wants it.
func (d *decider) durabilityProblems(mv *health.ServerView) []Problem {
	if d.c.Durability == topology.Async {
		return nil
	}
	if d.c.DurabilityState != topology.DurabilityArmed {
		return []Problem{{Code: "durability_" + string(d.c.DurabilityState),
			Text: "commits do not wait for an acker although durability is " + string(d.c.Durability)}}
	}
	semi, waited := mv.Last.SemiSync, d.waited(mv)
	if semi.MasterEnabled && semi.Clients > 0 && waited >= mute {
		return []Problem{{Code: "no_acker", Server: d.c.Master, Do: "bring a slave back that could be promoted", Text: fmt.Sprintf(
			"no acker answers: %d are connected, and %d commits have waited for %v", semi.Clients, semi.Waiting, waited.Round(time.Millisecond))}}
	}
	if semi.MasterEnabled && semi.Clients == 0 {
		text := fmt.Sprintf("no acker is connected: every commit waits until one is back, at most until durability is degraded after %v", d.p.AckTimeout)
		if d.c.Durability == topology.Lossless {
			text = "no acker is connected: every commit waits until one is back; durability is lossless"
		}
		return []Problem{{Code: "no_acker", Server: d.c.Master, Text: text, Do: "bring a slave back that could be promoted"}}
	}
	return nil
}

// stakeText says how many transactions nobody but the master is known to have
// at a degrading: they, and what is committed until it is armed again, may be
// lost with it.
func (d *decider) stakeText() string {
	at := d.v.Servers[d.c.Master].LastOK.BinlogPos.Of(d.domain)
	best := d.mostReceived(d.members(d.c.Master))
	if best == nil || !d.c.Lineage.Contains(at, best.received) {
		return "at risk: whatever is committed until it is armed again; no slave can be asked what it has"
	}
	return fmt.Sprintf("at risk: %d transactions that no reachable slave has received, and whatever is committed until it is armed again", at.Seq-best.received.Seq)
}
