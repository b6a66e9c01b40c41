package failover

import (
	"fmt"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/topology"
)

// Decide says what to do next. It is pure and total: it reads no clock, keeps
// nothing, and returns one action for every input; called again after the
// action was carried out and the servers were observed anew, it says the next.
// So a crash between any two actions is nothing special: the next Decide starts
// from the journaled intent and from what is observed.
func Decide(in Input) Action {
	d := newDecider(in)
	a := d.decide()
	if a.Kind == "" {
		a.Kind = KindWait
	}
	return a
}

// decider holds what the rules look at, for one call of Decide.
type decider struct {
	in     Input
	v      *health.View
	c      *topology.Cluster
	p      Policy
	now    time.Time
	domain uint32
	// sources is what sourceFor has found.
	sources map[string]string
}

func newDecider(in Input) *decider {
	return &decider{
		in: in, v: in.View, c: in.View.Cluster, p: in.Policy, now: in.View.Now,
		domain: in.View.Cluster.Lineage.Domain(), sources: map[string]string{},
	}
}

func (d *decider) decide() Action {
	switch {
	case d.c.Master == "":
		return wait(0, "no master is recorded")
	case d.c.ConfirmNeeded != "":
		return d.blocked(Problem{Code: "confirmation_needed", Text: d.c.ConfirmNeeded, Do: "replctl adopt NAME"})
	}
	if a, acts := d.fenceStrangers(); acts {
		return a
	}
	if a, acts := d.tellAfter(); acts {
		return a
	}
	if in := d.c.Intent; in != nil {
		switch in.Kind {
		case topology.IntentReopen:
			return d.reopen(in)
		case topology.IntentSwitchover:
			return d.switchover(in)
		}
		return d.failover(in)
	}
	if a, acts := d.restarting(); acts {
		return a
	}
	if d.in.Verdict.Lost() {
		return d.begin(d.in.Verdict.Evidence)
	}
	if d.paused() {
		return wait(0, "paused")
	}
	if d.in.Verdict.State != health.StateAlive {
		return wait(d.in.Verdict.RecheckIn, d.in.Verdict.Evidence...)
	}
	mv := d.v.Servers[d.c.Master]
	if mv.Last.Reach != health.ReachOK {
		return wait(0, fmt.Sprintf("master %s is alive and unkind: %s", d.c.Master, mv.Last.Err))
	}
	if mv.Last.ReadOnly {
		return d.masterReadOnly(mv)
	}
	if o := d.in.Order; o != nil && o.Switchover {
		return d.beginSwitchover(o.To)
	}
	return d.care(mv)
}

func wait(recheck time.Duration, why ...string) Action {
	return Action{Kind: KindWait, RecheckIn: recheck, Why: why}
}

func (d *decider) blocked(ps ...Problem) Action { return Action{Kind: KindWait, Blocked: ps} }

// paused tells whether automatic action is forbidden now.
func (d *decider) paused() bool {
	return d.c.Paused && (d.c.PausedUntil.IsZero() || d.now.Before(d.c.PausedUntil))
}

// ready tells whether an effect may begin on a server: none is running, and
// after a failure of the same kind the pause has passed. An effect that succeeds
// again and again, and is called for again, changes nothing: it is paused too.
func (d *decider) ready(name string, kind Kind) bool {
	e := d.in.Effects[name]
	if e.Running != "" {
		return false
	}
	vain := max(e.Failed, e.Again-succeedsFreely)
	return e.Last != kind || vain <= 0 || d.now.Sub(e.At) >= retryPause(vain)
}

// succeedsFreely is how often in a row the same effect on a server may succeed
// before it is paused as if it had failed.
const succeedsFreely = 5

func retryPause(failed int) time.Duration {
	pause := retryFirst
	for range failed - 1 {
		pause = min(2*pause, retryMost)
	}
	return pause
}

// act is an action on one server, or the wait for its turn.
func (d *decider) act(kind Kind, name string, why ...string) Action {
	if !d.ready(name, kind) {
		e := d.in.Effects[name]
		if e.Running != "" {
			return wait(0, fmt.Sprintf("%s is running on %s", e.Running, name))
		}
		if e.Failed == 0 {
			return wait(retryPause(e.Again-succeedsFreely), fmt.Sprintf("%s on %s succeeded %d times in a row and is called for again", kind, name, e.Again))
		}
		return wait(retryPause(e.Failed), fmt.Sprintf("%s on %s failed %d times: %s", kind, name, e.Failed, e.Err))
	}
	return Action{Kind: kind, Servers: []string{name}, Why: why}
}

// fenceStrangers closes every server that accepts writes and is not the one
// that may. It comes before everything else, whatever the verdict. A slave that
// somebody has promoted by hand while the master is gone is not fenced: that
// blocks until a person says what is meant.
func (d *decider) fenceStrangers() (Action, bool) {
	for _, name := range d.c.Names() {
		sv, s := d.v.Servers[name], d.c.Servers[name]
		if name == d.c.Master || s.Joining || !sv.Reachable() {
			continue
		}
		if in := d.c.Intent; in != nil && in.Opening != nil && in.Opening.Server == name {
			continue
		}
		if s.MustFence && d.fenced(name) {
			return Action{Kind: KindJournal, Journal: append(d.fencedLate(name), topology.MarkFenced{Cluster: d.c.Name, Server: name})}, true
		}
		if sv.Last.ReadOnly && !s.MustFence {
			continue
		}
		if !s.MustFence && d.promotedOutside(name) {
			return d.blocked(Problem{Code: "changed_outside", Server: name, Do: "replctl adopt " + name,
				Text: name + " was made writable outside of repld while the master is gone"}), true
		}
		if d.ready(name, KindFence) {
			return Action{Kind: KindFence, Servers: []string{name}, Journal: d.contact(name), Why: []string{
				fmt.Sprintf("%s is not the master and read_only is %v (must fence: %v)", name, sv.Last.ReadOnly, s.MustFence)}}, true
		}
	}
	return Action{}, false
}

// quietMargin is how long before its own timeout a server must be fenced for
// its waiting commits to be known unanswered: a timeout that ran out while it was
// frozen answers them at once when it thaws.
const quietMargin = 5 * time.Second

// contact journals, before a lost master is fenced, whether it has answered
// commits since its loss. An armed server that is the same process, still waits,
// and has answered none without an ack has answered none at all: every acker was
// revoked before its successor was opened, or is asked before the judgement. Until
// the fence is known to have held it may yet go on alone, so it is looked at again
// before each attempt.
func (d *decider) contact(name string) []topology.Command {
	b, sv := d.c.Loss(name), d.v.Servers[name]
	if b == nil || b.Contacted && !b.Quiet {
		return nil
	}
	if e := d.in.Effects[name]; b.Contacted && e.Running == "" && e.Last == KindFence && e.Failed == 0 && e.At.After(b.At) {
		return nil // the fence held, and switched off what is looked at here: see fencedLate
	}
	semi := sv.Last.SemiSync
	same := !b.Started.IsZero() && sv.Last.Started.Sub(b.Started).Abs() < restartTolerance
	quiet := b.Armed && same && semi.MasterEnabled && semi.MasterOn && semi.NoTx == b.NoTx && d.inTime(b, d.now)
	if b.Contacted && quiet {
		return nil
	}
	// A start from before the lost process was last known to live is no other
	// process: a clock was set, repld's or the host's.
	later := sv.Last.Started.After(d.waitsFrom(b).Add(-restartTolerance))
	ended := !same && later && !b.Started.IsZero() && d.inTime(b, sv.Last.Started)
	return []topology.Command{topology.NoteContact{Cluster: d.c.Name, Server: name, Quiet: quiet, Ended: ended}}
}

// fencedLate journals that a lost master, quiet at the first contact, was fenced
// only when its own timeout may have answered what waited on it.
func (d *decider) fencedLate(name string) []topology.Command {
	b := d.c.Loss(name)
	if b == nil || !b.Quiet || d.inTime(b, d.in.Effects[name].At) {
		return nil
	}
	return []topology.Command{topology.NoteContact{Cluster: d.c.Name, Server: name}}
}

// inTime tells whether a lost master's own timeout cannot have run out by then.
func (d *decider) inTime(b *topology.Break, by time.Time) bool {
	return b.Endless || by.Sub(d.waitsFrom(b)) < d.p.ServerTimeout-quietMargin
}

// waitsFrom is since when, at the earliest, a commit waited on a lost master. Its
// process lived then.
func (d *decider) waitsFrom(b *topology.Break) time.Time {
	if b.WaitsFrom.IsZero() {
		return b.At.Add(-d.p.AckTimeout)
	}
	return b.WaitsFrom
}

// restartTolerance absorbs the whole seconds of a server's uptime.
const restartTolerance = 2 * time.Second

// fenced tells whether a fencing succeeded and the server was seen read-only
// after it.
func (d *decider) fenced(name string) bool {
	e, sv := d.in.Effects[name], d.v.Servers[name]
	return e.Running == "" && e.Last == KindFence && e.Failed == 0 && sv.Last.ReadOnly && sv.Last.At.After(e.At)
}

// promotedOutside tells whether a writable server looks like a promotion made
// by hand: it is nobody's slave, and the recorded master does not accept writes.
func (d *decider) promotedOutside(name string) bool {
	mv := d.v.Servers[d.c.Master]
	return d.v.Servers[name].Last.Slave == nil && !(mv.Reachable() && !mv.Last.ReadOnly)
}

// begin journals a failover, or says which rule holds it back.
func (d *decider) begin(why []string) Action {
	if ps := d.beginRules(); len(ps) > 0 {
		a := d.blocked(ps...)
		a.Why, a.RecheckIn = why, d.windowLeft()
		return a
	}
	in := &topology.Intent{
		Kind: topology.IntentFailover, Epoch: d.c.Epoch + 1, OldMaster: d.c.Master,
		Symptom: d.in.Verdict.Since, Begun: d.now, Bound: d.bound(), ArmedSeen: d.armedSeen(),
	}
	if in.Symptom.IsZero() {
		in.Symptom = d.now
	}
	in.Armed, in.Endless = d.armedAt(in.Symptom), d.c.Endless
	if mv := d.v.Servers[d.c.Master]; mv != nil && mv.LastOK.Reach == health.ReachOK {
		in.Started, in.NoTx, in.WaitsFrom = mv.LastOK.Started, mv.LastOK.SemiSync.NoTx, mv.LastOK.Sent
		if since := mv.WaitingSince; !since.IsZero() && since.Before(in.WaitsFrom) {
			in.WaitsFrom = since
		}
	}
	in.Dead = d.in.Verdict.State != health.StateHung
	in.NeedsFence = len(d.unfencedWithoutHook()) > 0
	if d.ordered() {
		in.Manual, in.To, in.AcceptLoss = true, d.in.Order.To, d.in.Order.AcceptLoss
	}
	return Action{Kind: KindBegin, Intent: in, Why: why}
}

// armedAt tells whether the master is known to have waited for an acker with
// every commit until the given moment.
func (d *decider) armedAt(t time.Time) bool {
	if d.c.Durability == topology.Async || d.c.DurabilityState != topology.DurabilityArmed {
		return false
	}
	seen := d.armedSeen()
	return d.c.Endless || !seen.IsZero() && t.Sub(seen) <= d.p.ServerTimeout
}

// armedSeen is the last time that the master was seen armed, by this process or
// by one before it. (A server degrades by itself only after ServerTimeout
// without an acker, and nobody but repld degrades it otherwise.)
func (d *decider) armedSeen() time.Time {
	seen := d.c.ArmedSeen
	if mv := d.v.Servers[d.c.Master]; mv != nil && mv.ArmedAt.After(seen) {
		seen = mv.ArmedAt
	}
	return seen
}

// ordered tells whether a person has ordered a failover.
func (d *decider) ordered() bool { return d.in.Order != nil && !d.in.Order.Switchover }

func (d *decider) windowLeft() time.Duration {
	last := d.c.LastFailover
	if last.IsZero() || d.p.BlockWindow == 0 || d.c.Acknowledged.After(last) {
		return 0
	}
	return max(0, d.p.BlockWindow-d.now.Sub(last))
}

// anyCandidate tells whether a failover could lead anywhere: without a server
// that is reachable and may be promoted it would only stop threads.
func (d *decider) anyCandidate() bool {
	for _, m := range d.members(d.c.Master) {
		if m.sv.Reachable() && len(m.because) == 0 {
			return true
		}
	}
	return false
}
