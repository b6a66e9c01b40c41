package failover

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// A server that is wanted more than the one which has received most is caught up
// first if that is quick: a holder has what it lacks in its binary log, and it is
// not more than quickTransactions and, as far as the positions in the lost
// master's binary log tell, quickBytes. Both take well under a second.
const (
	quickTransactions = 1000
	quickBytes        = 16 << 20
)

// better orders holders and, among servers that are wanted alike, candidates:
// most received first, then those that follow the master themselves (what is
// chained has the others' position only if they are gone), then the user's
// preference, then the older version, for a master must not be newer than its
// slaves. Between equals, who has applied all of it, or was detached already, and
// at last the name, so that the same view gives the same choice.
func better(a, b *member) int {
	return cmp.Or(
		cmp.Compare(b.received.Seq, a.received.Seq),
		a.depth()-b.depth(),
		cmp.Compare(a.s.Promotion.Rank(), b.s.Promotion.Rank()),
		a.release().compare(b.release()),
		cmp.Compare(a.readiness(), b.readiness()),
		cmp.Compare(a.name, b.name),
	)
}

// readiness is lower for a server that could be opened sooner.
func (m *member) readiness() int {
	switch {
	case m.pending():
		return 2
	case m.sv.LastOK.Slave != nil:
		return 1
	}
	return 0
}

// depth is higher for a server that is promoted only if nobody of the others
// has, or can quickly be brought, as much: one that a person has stopped, for it
// is in use, and after it one that is chained.
func (m *member) depth() int {
	depth := 0
	if m.s.Held != "" {
		depth = 1
	}
	if m.chained {
		depth += 2
	}
	return depth
}

// promotable gives the members without a reason against them, most received
// first.
func promotable(ms []*member) []*member {
	var out []*member
	for _, m := range ms {
		if len(m.because) == 0 && m.known {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, better)
	return out
}

// wanted gives them as they are wanted, whatever they have received: by the
// user's preference, then those that no older server would have to follow; a
// chained slave last of all.
func wanted(list, ms []*member) []*member {
	out := slices.Clone(list)
	slices.SortStableFunc(out, func(a, b *member) int {
		return cmp.Or(a.depth()-b.depth(), cmp.Compare(a.s.Promotion.Rank(), b.s.Promotion.Rank()),
			cmp.Compare(min(1, len(newerThan(a, ms))), min(1, len(newerThan(b, ms)))))
	})
	return out
}

// mostReceived is the reachable member on the lineage that holds most; nil if
// there is none.
func (d *decider) mostReceived(ms []*member) *member {
	return d.most(ms, func(*member) bool { return true })
}

func (d *decider) most(ms []*member, of func(*member) bool) *member {
	var best *member
	for _, m := range ms {
		if !m.sv.Reachable() || m.s.Joining || !m.known || !d.own(m, m.received) || !of(m) {
			continue
		}
		if best == nil || better(m, best) < 0 {
			best = m
		}
	}
	return best
}

// withholds tells whether a member holds received transactions that it cannot
// give to anybody: its SQL thread is stuck, or waits for the delay to pass.
func (d *decider) withholds(m *member) bool {
	st := m.sv.LastOK.Slave
	return m.stuck(d.now) || st != nil && st.Delay > 0 && m.pending()
}

// holder is the member whose transactions must be on whoever is promoted: the
// one that has received most, but for those whose surplus is given up.
func (d *decider) holder(in *topology.Intent, ms []*member) *member {
	live := d.most(ms, func(m *member) bool { return !d.withholds(m) })
	return d.most(ms, func(m *member) bool { return !d.withholds(m) || d.surplus(m, live) > 0 && !d.givenUp(in, m, live) })
}

// surplus counts what a member has received beyond another one, nil having nothing.
func (d *decider) surplus(m, than *member) uint64 {
	has := gtid.GTID{}
	if than != nil {
		has = than.received
	}
	if m == nil || m.received.Seq <= has.Seq {
		return 0
	}
	return m.received.Seq - has.Seq
}

// givenUp tells whether the surplus of a member that withholds it may be left
// behind: nobody was told OK for it, since commits waited for ackers and it is
// none, nor has it what it received from one; or a person has said that so many
// transactions may be lost. Without anybody who could be promoted instead, nothing
// is given up.
func (d *decider) givenUp(in *topology.Intent, m, live *member) bool {
	if live == nil {
		return false
	}
	if in.Armed && !d.mayHaveAcknowledged(m) && !m.chained {
		return true
	}
	return in.AcceptLoss != nil && max(d.surplus(m, live), d.atStake(in, live)) <= *in.AcceptLoss
}

// choose picks who will be promoted, or says why nobody is.
func (d *decider) choose(in *topology.Intent, ms []*member) (*member, Action) {
	for _, m := range ms {
		if m.sv.Reachable() && !m.sv.Last.Sent.After(in.Begun) {
			return nil, wait(retryFirst, m.name+" was not observed since the failover began")
		}
	}
	cand, ps := d.pick(in, ms)
	if cand == nil {
		if a, acts := d.tryAgain(ms); acts {
			return nil, a
		}
		a := d.blocked(ps...)
		a.RecheckIn = time.Second
		return nil, a
	}
	return cand, Action{}
}

// pick is choose without acting; status forecasts by it.
func (d *decider) pick(in *topology.Intent, ms []*member) (*member, []Problem) {
	if ps := d.incomparable(in, ms); len(ps) > 0 {
		return nil, ps
	}
	list := promotable(ms)
	if in.To != "" {
		list = only(list, in.To)
	}
	need := d.holder(in, ms)
	if len(list) == 0 {
		ps := []Problem{{Code: "no_candidate", Text: "no reachable server could be promoted"}}
		for _, m := range ms {
			ps = append(ps, m.because...)
		}
		if need != nil && need.stuck(d.now) {
			ps = append(ps, d.stuckProblem(need, nil))
		}
		return nil, ps
	}
	cand := d.candidate(in, list, need, ms)
	if cand == nil {
		return nil, d.noneFits(list, need, ms)
	}
	far := cand
	if need != nil && need.received.Seq > cand.received.Seq {
		far = need
	}
	if late := d.tooFarBehind(in, far); late != nil {
		return nil, []Problem{*late}
	}
	return cand, nil
}

// candidate is the most wanted server that has, or can quickly be brought, all
// that must be there; else the one that lacks least of it and can be brought it.
func (d *decider) candidate(in *topology.Intent, list []*member, need *member, ms []*member) *member {
	for _, m := range wanted(list, ms) {
		if !d.withholds(m) && (d.surplus(need, m) == 0 || d.canFetch(m, need) && (in.To != "" || quick(m, need))) {
			return m
		}
	}
	for _, m := range list {
		if !d.withholds(m) && d.canFetch(m, need) {
			return m
		}
	}
	return nil
}

// canFetch tells whether a member can be brought what a holder has beyond it.
func (d *decider) canFetch(m, holder *member) bool {
	return d.surplus(holder, m) == 0 || !d.withholds(holder) && !d.fetchFailed(m)
}

// quick tells whether what m lacks of a holder is little.
func quick(m, holder *member) bool {
	if holder.received.Seq-m.received.Seq > quickTransactions {
		return false
	}
	a, b := m.sv.LastOK.Slave, holder.sv.LastOK.Slave
	if a == nil || b == nil || a.SourceLogFile == "" || a.SourceLogFile != b.SourceLogFile || b.ReadPos < a.ReadPos {
		return true // how many bytes it is cannot be told
	}
	return b.ReadPos-a.ReadPos <= quickBytes
}

// noneFits says why nobody of those that could be promoted is.
func (d *decider) noneFits(list []*member, need *member, ms []*member) []Problem {
	live := d.most(ms, func(m *member) bool { return !d.withholds(m) && slices.Contains(list, m) })
	if need != nil && d.withholds(need) {
		return []Problem{d.stuckProblem(need, live)}
	}
	var ps []Problem
	for _, m := range list {
		switch {
		case d.withholds(m):
			ps = append(ps, d.stuckProblem(m, nil))
		case d.fetchFailed(m):
			ps = append(ps, Problem{Code: "fetch_failed", Server: m.name, Text: fmt.Sprintf(
				"%s lacks %d transactions that %s has, and cannot fetch them: %s", m.name, d.surplus(need, m), need.name, fetchError(m))})
		}
	}
	return ps
}

// stuckProblem is a member that holds what it does not apply; live is who could
// be promoted without it, nil if nobody.
func (d *decider) stuckProblem(m, live *member) Problem {
	st := m.sv.LastOK.Slave
	why := fmt.Sprintf("has stood still for %v", d.now.Sub(m.sv.Applied).Round(time.Second))
	switch {
	case st.SQLErrno != 0:
		why = fmt.Sprintf("stopped with error %d: %s", st.SQLErrno, st.SQLError)
	case st.Delay > 0:
		why = fmt.Sprintf("waits, delayed by %v", st.Delay)
	case st.SQL == health.ThreadNo:
		why = "is stopped"
	}
	stake := m.received.Seq - m.applied.Seq
	p := Problem{Code: "sql_stuck", Server: m.name, Do: "put right what holds its SQL thread up: it is tried again by itself"}
	if live != nil {
		stake = d.surplus(m, live)
		p.Do += fmt.Sprintf("; or: replctl failover --accept-loss %d", stake)
	}
	p.Text = fmt.Sprintf("%s has received %s and stands at %s: its SQL thread %s; %d transactions are at stake", m.name, m.received, m.applied, why, stake)
	if live != nil {
		p.Text += ", which " + live.name + " lacks"
	}
	return p
}

// incomparable lists the members, side by side, if one of them may have
// acknowledged commits and stands off the lineage: what it received cannot be
// compared with what the others have.
func (d *decider) incomparable(in *topology.Intent, ms []*member) []Problem {
	best := d.mostReceived(ms)
	var off []string
	server := ""
	for _, m := range ms {
		st := m.sv.LastOK.Slave
		if !in.Armed || !m.sv.Reachable() || st == nil || d.own(m, m.received) || len(m.s.NeverPromotable()) > 0 || !m.sv.LastOK.SemiSync.SlaveEnabled || d.sourceOf(st) != in.OldMaster {
			continue
		}
		if io := st.Received.Of(d.domain); !io.IsZero() && best != nil && d.c.Lineage.Contains(best.received, io) {
			continue // the others have all that it received
		}
		server = m.name
		off = append(off, fmt.Sprintf("%s stands at %s and received %s", m.name, m.applied, cmpOr(st.Received.String(), "an unknown position")))
	}
	if len(off) == 0 || in.AcceptLoss != nil && d.atStake(in, best) <= *in.AcceptLoss {
		return nil
	}
	if best != nil {
		off = append(off, fmt.Sprintf("%s at %s", best.name, best.received))
	}
	return []Problem{{Code: "incomparable", Server: server, Text: strings.Join(off, ", ") + ": neither contains the other, and both may hold acknowledged transactions",
		Do: fmt.Sprintf("replctl failover --accept-loss %d", d.atStake(in, best))}}
}

func only(list []*member, name string) []*member {
	for _, m := range list {
		if m.name == name {
			return []*member{m}
		}
	}
	return nil
}

// tooFarBehind is the rule of failover.max_lag: a slave that lacks transactions
// which are older than that is not promoted without a person.
func (d *decider) tooFarBehind(in *topology.Intent, m *member) *Problem {
	lag := m.sv.LagReceived
	if in.Manual || lag == nil || in.Bound.Seq <= m.received.Seq {
		return nil
	}
	if old := *lag - d.now.Sub(in.Symptom); old <= d.p.MaxLag {
		return nil
	}
	return &Problem{Code: "too_far_behind", Server: m.name, Do: "replctl failover", Text: fmt.Sprintf(
		"%s lacks %d transactions, the oldest from %v ago; failover.max_lag is %v",
		m.name, in.Bound.Seq-m.received.Seq, lag.Round(time.Second), d.p.MaxLag)}
}
