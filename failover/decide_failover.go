package failover

import (
	"fmt"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// failover says the next step of an open failover. The stages, in order: ask
// hooks.pre_failover, start hooks.fence, revoke, learn what restarted slaves hold, choose, drain, fetch, look at the
// old master once more, detach, arm, open, re-point.
func (d *decider) failover(in *topology.Intent) Action {
	switch {
	case !in.Opened.IsZero():
		return d.repoint(in)
	case in.Opening != nil:
		return d.confirmOpening(in)
	}
	if d.ordered() && d.in.Order.AcceptLoss != nil && (in.AcceptLoss == nil || *in.AcceptLoss < *d.in.Order.AcceptLoss) {
		return Action{Kind: KindJournal, Why: []string{fmt.Sprintf("a person accepts the loss of up to %d transactions", *d.in.Order.AcceptLoss)},
			Journal: []topology.Command{topology.AcceptLoss{Cluster: d.c.Name, Intent: in.ID, N: *d.in.Order.AcceptLoss}}}
	}
	if d.ordered() && !in.Manual {
		return Action{Kind: KindJournal, Why: []string{"a person orders the failover that is under way"},
			Journal: []topology.Command{topology.TakeOver{Cluster: d.c.Name, Intent: in.ID}}}
	}
	ms := d.members(in.OldMaster)
	if a, acts := d.masterBack(in, ms); acts {
		return a
	}
	if a, acts := d.stillHeard(in, ms); acts {
		return a
	}
	for _, hook := range []func(*topology.Intent) (Action, bool){d.askFirst, d.fenceBeside} {
		if a, acts := hook(in); acts {
			return a
		}
	}
	for _, stage := range []func(*topology.Intent, []*member) (Action, bool){d.revoke, d.learn, d.noteBound, d.unreachableAckers} {
		if a, acts := stage(in, ms); acts {
			return a
		}
	}
	cand, a := d.choose(in, ms)
	if cand == nil {
		return a
	}
	if a, acts := d.drain(in, cand, ms); acts {
		return a
	}
	if a, acts := d.awaitFence(in); acts {
		return a
	}
	return d.prepare(in, cand, ms)
}

// masterBack ends the failover if the old master answers again and has lost
// nothing. If it is behind a slave it has lost data, and the failover goes on,
// but only while it is closed.
func (d *decider) masterBack(in *topology.Intent, ms []*member) (Action, bool) {
	mv := d.v.Servers[in.OldMaster]
	if mv == nil || !mv.Last.Reach.Answers() || !mv.Last.Sent.After(in.Begun) {
		return Action{}, false
	}
	if d.fencedByHook(in) && !d.onlyItHas(mv, ms) {
		return d.backThoughFenced(in)
	}
	if mv.Last.Reach == health.ReachOK {
		if behind := d.behind(mv, ms); behind != "" {
			if mv.Last.ReadOnly {
				return Action{}, false
			}
			return d.act(KindFence, in.OldMaster, "the old master is back, has lost data and accepts writes: "+behind), true
		}
	}
	return Action{
		Kind: KindJournal, Ends: topology.ResultRolledBack,
		Journal: []topology.Command{topology.EndIntent{Cluster: d.c.Name, Intent: in.ID, At: d.now}},
		Why:     []string{fmt.Sprintf("%s answers again (%s): the failover is called off", in.OldMaster, mv.Last.Reach)},
	}, true
}

// behind says what the master, which restarted, lacks of what it had; "" if
// nothing. A master that accepts writes is ahead of its own latest observation:
// only what was seen before that observation began says anything about it.
func (d *decider) behind(mv *health.ServerView, ms []*member) string {
	has, closed := mv.LastOK.BinlogPos.Of(d.domain), mv.LastOK.ReadOnly
	check := func(who string, g gtid.GTID, seen time.Time) string {
		if d.c.Lineage.Has(g) && g.Seq > has.Seq && (closed || mv.LastOK.Sent.After(seen)) {
			return fmt.Sprintf("%s stands at %s, %s knows %s", d.c.Master, has, who, g)
		}
		return ""
	}
	if s := check("repld", d.c.MasterSeen, time.Time{}); s != "" {
		return s
	}
	if st := d.v.Stream; st.Server == d.c.Master {
		if s := check("repld's stream", st.Last, st.LastTx); s != "" {
			return s
		}
	}
	for _, m := range ms {
		if m.sv.LastOK.Reach == health.ReachOK && m.known {
			if s := check(m.name, m.received, m.sv.LastOK.At); s != "" {
				return s
			}
		}
	}
	return ""
}

// bound is the highest transaction of the present master that was seen by any
// means.
func (d *decider) bound() gtid.GTID {
	best := d.c.MasterSeen
	consider := func(g gtid.GTID) {
		if d.c.Lineage.Has(g) && g.Seq > best.Seq {
			best = g
		}
	}
	if st := d.v.Stream; st.Server == d.c.Master {
		consider(st.Last)
	}
	if mv := d.v.Servers[d.c.Master]; mv != nil && d.c.Intent == nil && !mv.Reachable() {
		// Once the master is back its own position is what is judged, not evidence.
		consider(mv.LastOK.BinlogPos.Of(d.domain))
	}
	return best
}

// revoke stops the IO thread of every reachable slave, so that none of them can
// acknowledge anything to the old master any more, and waits for it.
func (d *decider) revoke(in *topology.Intent, ms []*member) (Action, bool) {
	var list, running []string
	for _, m := range ms {
		if !m.sv.Reachable() || m.s.Joining || m.sv.Last.Slave == nil {
			continue
		}
		stopped := m.sv.Last.Slave.IO == health.ThreadNo
		switch {
		case m.effect.Running != "" && !staysStopped(m.effect.Running):
			running = append(running, m.name)
		case stopped && m.sv.Last.Sent.After(in.Begun) && m.revoked(in):
		case d.ready(m.name, KindStopIO):
			list = append(list, m.name)
		default:
			running = append(running, m.name)
		}
	}
	if len(list) > 0 {
		return Action{Kind: KindStopIO, Servers: list, Why: []string{"no slave may acknowledge to the old master any more"}}, true
	}
	if len(running) > 0 {
		return wait(retryFirst, fmt.Sprintf("IO threads still stopping: %v", running)), true
	}
	return Action{}, false
}

// revoked tells whether nothing that repld sent to a slave can start its IO
// thread any more. A slave that is seen stopped is not enough: an attachment
// may be under way, or be left waiting on the server by a former repld. The
// first effect of this failover ended those.
func (m *member) revoked(in *topology.Intent) bool {
	e := m.effect
	if e.Running != "" {
		return staysStopped(e.Running)
	}
	return e.At.After(in.Begun) && (staysStopped(e.Last) || e.Last == KindStopIO && e.Failed == 0)
}

// staysStopped tells whether an effect, while it runs, leaves a stopped IO
// thread stopped, and is none that still stops it.
func staysStopped(k Kind) bool {
	return k != KindAttach && k != KindRejoin && k != KindStopIO && k != KindCompare
}

// learn lets slaves whose received position is unknown, because they restarted,
// apply the relay log that they kept; and also those whose threads are both
// down with something to apply, which nothing else can save.
func (d *decider) learn(_ *topology.Intent, ms []*member) (Action, bool) {
	var list []string
	var waits []string
	for _, m := range ms {
		st := m.sv.Last.Slave
		if !m.sv.Reachable() || m.s.Joining || st == nil || m.known && !m.cold() {
			continue
		}
		switch {
		case st.SQL == health.ThreadYes:
			waits = append(waits, fmt.Sprintf("%s applies its relay log", m.name))
		case st.SQLErrno != 0 || m.effect.Last == KindDrain && m.effect.Failed > drainTries:
			// A holder whose content cannot be known; see unreachableAckers.
		case d.ready(m.name, KindDrain):
			list = append(list, m.name)
		default:
			waits = append(waits, fmt.Sprintf("%s is about to apply its relay log", m.name))
		}
	}
	if len(list) > 0 {
		return Action{Kind: KindDrain, Servers: list, Why: []string{"restarted slaves apply the relay log that they kept"}}, true
	}
	if len(waits) > 0 {
		return wait(retryFirst, waits...), true
	}
	return Action{}, false
}

// unreachableAckers blocks while a server that may hold an acknowledged
// transaction, which nobody else has, cannot be asked.
func (d *decider) unreachableAckers(in *topology.Intent, ms []*member) (Action, bool) {
	best := d.mostReceived(ms)
	var ps []Problem
	for _, m := range ms {
		if !d.couldHoldMore(in, m, best) {
			continue
		}
		p := Problem{Code: "acker_unreachable", Server: m.name, Text: fmt.Sprintf(
			"%s could acknowledge commits and may hold transactions that nobody else has; %s", m.name, reachText(m.sv))}
		if m.sv.Reachable() {
			p.Code = "relay_log_unknown"
			p.Text = fmt.Sprintf("%s could acknowledge commits and its relay log cannot be applied: %s",
				m.name, cmpOr(m.effect.Err, m.sv.Last.Slave.SQLError))
		}
		stake := d.atStake(in, best)
		p.Text += fmt.Sprintf("; %d transactions seen on the old master are at stake", stake)
		p.Do = fmt.Sprintf("bring %s back, or: replctl failover --accept-loss %d", m.name, stake)
		ps = append(ps, p)
	}
	if len(ps) == 0 || d.lossAccepted(in, best) {
		return Action{}, false
	}
	return d.blocked(ps...), true
}

// atStake counts the transactions seen on the old master that no reachable
// server has.
func (d *decider) atStake(in *topology.Intent, best *member) uint64 {
	if best == nil || in.Bound.Seq <= best.received.Seq {
		return 0
	}
	return in.Bound.Seq - best.received.Seq
}

// lossAccepted tells whether a person has said that what is at stake may be
// lost. That gives up transactions, never the one writer: a master that is only
// silent could still be acknowledged to by the server that cannot be reached,
// unless hooks.fence has stopped it.
func (d *decider) lossAccepted(in *topology.Intent, best *member) bool {
	stopped := d.in.Verdict.State == health.StateDead || d.fencedByHook(in)
	return in.AcceptLoss != nil && stopped && d.atStake(in, best) <= *in.AcceptLoss
}

// couldHoldMore tells whether m may be the only holder of an acknowledged
// transaction. A server that was down before the master was last seen at a
// position which the best holder contains cannot.
func (d *decider) couldHoldMore(in *topology.Intent, m *member, best *member) bool {
	if m.s.Retired {
		return false // it was made no acker, and others had what it had, when that began
	}
	if m.s.Joining || m.s.MustFence || (m.sv.Reachable() && m.known) {
		return false // a former master that was not fenced yet never followed this one
	}
	if d.c.DurabilityState != topology.DurabilityArmed && !in.Armed {
		return false
	}
	if !d.mayHaveAcknowledged(m) {
		return false
	}
	if m.sv.Reachable() || best == nil {
		return true
	}
	if !m.sv.Ceiling.IsZero() && d.c.Lineage.Contains(best.received, m.sv.Ceiling) {
		return false
	}
	has, known := d.remembered(in, m)
	return !known || !d.c.Lineage.Contains(best.received, has)
}

// repoint makes the others follow the new master, announces it, and ends.
func (d *decider) repoint(in *topology.Intent) Action {
	a, waiting := d.followAll()
	if a.Kind != "" {
		return a
	}
	if d.in.Announced != d.announcement() && d.ready(announceKey, KindAnnounce) {
		return Action{Kind: KindAnnounce, Servers: []string{d.c.Master}}
	}
	if a, acts := d.events(); acts {
		return a
	}
	if left := repointFor - d.now.Sub(in.Opened); len(waiting) > 0 && left > 0 {
		return wait(min(left, retryFirst), fmt.Sprintf("still to follow: %v", waiting))
	}
	return Action{Kind: KindJournal, Ends: topology.ResultDone, Journal: []topology.Command{
		topology.EndIntent{Cluster: d.c.Name, Intent: in.ID, At: d.now, Automatic: !in.Manual && in.Kind == topology.IntentFailover,
			Tell: d.p.Hooks.PostFailover}}}
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
