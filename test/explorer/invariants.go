package explorer

import (
	"fmt"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/topology"
)

// check looks for a violated invariant in a state. The numbers are those of
// docs/guarantees.md.
func (e *Explorer) check(s *state) string {
	w := &s.w
	writers := 0
	for x := range e.Servers {
		if w.couldAcknowledge(x) {
			writers++
		}
	}
	if writers > 1 {
		return "1: two servers could acknowledge a write"
	}
	if broken := e.checkLost(s); broken != "" {
		return broken
	}
	for x := range e.Servers {
		if broken := w.checkDiverged(x); broken != "" {
			return broken
		}
	}
	return ""
}

// couldAcknowledge tells whether a client's next commit could be told OK: the
// server accepts it, and waits for nobody or for an acker that may yet answer.
// One that gave up waiting by itself is left out: server_timeout is the bound
// within which the promise holds.
func (w *world) couldAcknowledge(x int) bool {
	s := &w.s[x]
	if s.life == down || s.ro || s.armed && s.gaveUp {
		return false
	}
	if !s.armed {
		return true
	}
	for y := range w.s {
		t := &w.s[y]
		if t.src == uint8(x+1) && t.acking && t.io != no && t.life != down {
			return true
		}
	}
	return false
}

// checkLost: what is open has everything that a client was promised.
func (e *Explorer) checkLost(s *state) string {
	c := e.clusters[s.r.cluster]
	open := -1
	if in := c.Intent; in != nil && in.Opening != nil && !s.w.s[index(in.Opening.Server)].ro {
		open = index(in.Opening.Server)
	} else if m := index(c.Master); !s.w.s[m].ro {
		open = m
	}
	broken := ""
	if open >= 0 {
		s.w.promises(func(p point) bool {
			if !s.w.s[open].log.has(p) {
				broken = fmt.Sprintf("2: %s is open and lacks acknowledged 0-%d-%d", name(open), p.id, p.seq)
			}
			return broken == ""
		})
	}
	return broken
}

// checkDiverged: who replicates stands on its source's history.
func (w *world) checkDiverged(x int) string {
	s := &w.s[x]
	if s.life != up || s.src == 0 || s.io != yes {
		return ""
	}
	m := &w.s[s.src-1]
	if s.pos.seq > s.log.n {
		return fmt.Sprintf("8: %s skipped transactions in silence", name(x))
	}
	for k := uint8(1); k <= s.log.n; k++ {
		if m.log.at(k) != s.log.at(k) {
			return fmt.Sprintf("8: %s replicates from %s and has 0-%d-%d, which is not there", name(x), name(int(s.src-1)), s.log.at(k), k)
		}
	}
	return ""
}

// judge checks a decision against the world at its very moment.
func (e *Explorer) judge(s *state, a failover.Action) string {
	c := e.clusters[s.r.cluster]
	if a.Kind == failover.KindDisarm && c.Intent == nil && a.Servers[0] != c.Master {
		return "a server that is not the master is disarmed"
	}
	if a.Kind == failover.KindOpen && c.Intent != nil && c.Intent.Kind == topology.IntentSwitchover {
		return e.judgeSwitchover(s, c.Intent, index(a.Servers[0]))
	}
	if a.Kind != failover.KindOpen || c.Intent == nil || c.Intent.Kind != topology.IntentFailover {
		return ""
	}
	x, old := index(a.Servers[0]), index(c.Intent.OldMaster)
	w := &s.w
	if again := c.Intent.Opening; again == nil || again.Applied.Seq >= uint64(w.s[x].log.n) {
		// One whose power the fence took away is back closed: its clients may not
		// reach it, so the failover goes on.
		fenced := !c.Intent.Fenced.IsZero() && w.s[old].ro
		if w.alive(s, old) && !fenced {
			return "5: a live master is replaced"
		}
	} else if m := &w.s[old]; m.life == up && !m.ro && w.cut&(1<<old) == 0 && !s.r.m[old].stale {
		return "1: a candidate is opened again beside the open old master"
	}
	floor := pointOf(c.Floor)
	if !w.s[x].log.has(floor) {
		return "7: the candidate is below the floor"
	}
	return first(w.leftBehind(s, x, old), e.giveUp(s, c.Intent, x))
}

// alive tells whether the old master is there, with all that reachable slaves
// have, and repld could know it: one that did not answer since the failover
// began may have woken up a moment ago, which revocation makes harmless.
func (w *world) alive(s *state, old int) bool {
	m, seen := &w.s[old], &s.r.m[old]
	if m.life != up || w.cut&(1<<old) != 0 || seen.stale && seen.reach == silent && seen.sinceBegun {
		return false
	}
	for y := range w.s {
		if t := &w.s[y]; t.life == up && t.received().seq > m.log.n {
			return false
		}
	}
	return true
}

// leftBehind: everything that a reachable holder has is on the candidate. The
// old master is no such holder: what it has alone was promised to nobody.
func (w *world) leftBehind(s *state, x, old int) string {
	cand := &w.s[x]
	for y := range w.s {
		t := &w.s[y]
		if y == x || y == old || t.life != up || w.cut&(1<<y) != 0 || s.r.m[y].stale || t.log.n == 0 && t.relay.n == 0 {
			continue
		}
		if !t.log.has(point{t.log.at(min(t.log.n, cand.log.n)), min(t.log.n, cand.log.n)}) || !samePrefix(&t.log, &cand.log) {
			continue // diverged: the rejoin deals with it
		}
		last := t.received()
		if last.seq > cand.log.n {
			return fmt.Sprintf("3: %s holds 0-%d-%d, and %s is opened without it", name(y), last.id, last.seq, name(x))
		}
	}
	return ""
}

func samePrefix(a, b *history) bool {
	for k := uint8(1); k <= min(a.n, b.n); k++ {
		if a.at(k) != b.at(k) {
			return false
		}
	}
	return true
}
