package failover

import (
	"fmt"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// noteBound journals that a member has received more than was seen of the lost
// master by other means, so that what may be left behind is counted exactly.
func (d *decider) noteBound(in *topology.Intent, ms []*member) (Action, bool) {
	if m := d.mostReceived(ms); m != nil && m.received.Seq > in.Bound.Seq {
		return Action{Kind: KindJournal, Why: []string{fmt.Sprintf("%s has received %s", m.name, m.received)},
			Journal: []topology.Command{topology.RaiseBound{Cluster: d.c.Name, Intent: in.ID, GTID: m.received}}}, true
	}
	return Action{}, false
}

// drain waits until the candidate has applied all that it received, and then
// brings it what another reachable holder has beyond it: two connections at once
// would apply the same transactions twice, and the SQL thread would stop.
func (d *decider) drain(in *topology.Intent, cand *member, ms []*member) (Action, bool) {
	if cand.pending() {
		return d.slowly("candidate_applies", cand, cand.received.Seq-cand.applied.Seq, "applies what it received"), true
	}
	if need := d.holder(in, ms); need != nil && need != cand && need.received.Seq > cand.received.Seq {
		return d.fetchFrom(in, cand, need), true
	}
	if cand.sv.Last.Fetch != nil {
		return d.act(KindEndFetch, cand.name, "everything was fetched"), true
	}
	return Action{}, false
}

// fetchFrom brings the candidate what a holder has beyond it, once the holder
// has it in its binary log.
func (d *decider) fetchFrom(in *topology.Intent, cand, holder *member) Action {
	has := holder.sv.Last.BinlogPos.Of(d.domain)
	if !d.c.Lineage.Contains(has, holder.received) {
		return d.slowly("holder_applies", holder, holder.received.Seq-holder.applied.Seq, "applies what "+cand.name+" lacks")
	}
	if f := cand.sv.Last.Fetch; f != nil {
		if d.sourceOf(f) != holder.name {
			return d.act(KindEndFetch, cand.name, fmt.Sprintf("%s has more than %s", holder.name, cmpOr(d.sourceOf(f), f.SourceHost)))
		}
		if f.IO == health.ThreadNo && f.IOErrno == 0 && f.SQLErrno == 0 && d.ready(cand.name, KindFetch) && cand.sv.Last.Sent.After(cand.effect.At) {
			return d.fetch(in, cand, holder, "it restarted while it fetched") // its threads do not start by themselves
		}
		return d.slowly("candidate_fetches", cand, holder.received.Seq-cand.applied.Seq, "fetches up to "+holder.received.String()+" from "+holder.name)
	}
	return d.fetch(in, cand, holder, fmt.Sprintf("%s has %s, %s has %s", holder.name, holder.received, cand.name, cand.received))
}

func (d *decider) fetch(in *topology.Intent, cand, holder *member, why string) Action {
	a := d.act(KindFetch, cand.name, why)
	if a.Kind == KindFetch {
		a.From = holder.name
		a.Journal = []topology.Command{topology.NoteFetch{Cluster: d.c.Name, Intent: in.ID, Server: cand.name, Own: cand.received}}
	}
	return a
}

// slowly is the wait for a server that moves, with an estimate for status.
func (d *decider) slowly(code string, m *member, left uint64, doing string) Action {
	text := fmt.Sprintf("%s %s: %d transactions left", m.name, doing, left)
	if rate := m.sv.ApplyRate; rate > 0 {
		text += fmt.Sprintf(", about %v at its present pace of %.0f per second", (time.Duration(float64(left)/rate*float64(time.Second)) + time.Second).Truncate(time.Second), rate)
	}
	a := wait(d.stuckIn(m), text)
	a.Notes = []Problem{{Code: code, Server: m.name, Text: text}}
	return a
}

// stuckIn is after what time a member that does not move any more is stuck.
func (d *decider) stuckIn(m *member) time.Duration {
	return max(retryFirst, stuckAfter-d.now.Sub(m.sv.Applied))
}

// fetchFailed tells whether a member's rescue connection does not get on.
func (d *decider) fetchFailed(m *member) bool {
	f := m.sv.LastOK.Fetch
	switch {
	case f == nil || m.effect.Running != "":
		return false
	case f.SQLErrno != 0 || f.IO == health.ThreadNo && f.IOErrno != 0:
		return true
	}
	moved := m.sv.Applied
	if m.effect.At.After(moved) {
		moved = m.effect.At
	}
	return !moved.IsZero() && d.now.Sub(moved) >= stuckAfter
}

func fetchError(m *member) string {
	f := m.sv.LastOK.Fetch
	switch {
	case f.SQLErrno != 0:
		return fmt.Sprintf("error %d: %s", f.SQLErrno, f.SQLError)
	case f.IOErrno != 0:
		return fmt.Sprintf("error %d: %s", f.IOErrno, f.IOError)
	}
	return fmt.Sprintf("no movement for %v", stuckAfter)
}

// tryAgain tries what has failed again, at a slow pace, while nobody can be
// promoted: the cause may have been put right. With both threads down a person
// cannot start the SQL thread: in GTID mode that would drop the relay log.
func (d *decider) tryAgain(ms []*member) (Action, bool) {
	for _, m := range ms {
		if !m.sv.Reachable() || m.effect.Running != "" || d.now.Sub(m.effect.At) < stuckAfter {
			continue
		}
		st := m.sv.Last.Slave
		switch {
		case m.sv.Last.Fetch != nil && d.fetchFailed(m):
			return Action{Kind: KindEndFetch, Servers: []string{m.name}, Why: []string{"fetching failed and is tried again: " + fetchError(m)}}, true
		case st != nil && st.SQLErrno != 0 && st.IO == health.ThreadNo && m.pending() && !m.s.Joining:
			return Action{Kind: KindDrain, Servers: []string{m.name}, Why: []string{fmt.Sprintf("its SQL thread failed with error %d and is tried again", st.SQLErrno)}}, true
		}
	}
	return Action{}, false
}

// remembered tells whether a member that is out of reach was seen, since the
// failover began, when nothing more could come to it, so that what it holds is
// known.
func (d *decider) remembered(in *topology.Intent, m *member) (gtid.GTID, bool) {
	o := m.sv.LastOK
	if o.Reach != health.ReachOK || !o.Sent.After(in.Begun) || !m.known || !o.ReadOnly {
		return gtid.GTID{}, false
	}
	if o.Slave != nil && (o.Slave.IO != health.ThreadNo || !m.revoked(in)) {
		return gtid.GTID{}, false
	}
	return m.received, d.own(m, m.received)
}
