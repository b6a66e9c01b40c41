package explorer

import (
	"fmt"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/topology"
)

// eventsKey is where Decide looks for the work on scheduled events, of which the
// model's servers have none: they have always just been looked at.
const eventsKey = "events:"

// order gives repld the person's order, which lives in its memory until it has
// become an intent or cannot be followed.
func (e *Explorer) order(s *state) bool {
	if e.Order == nil || s.orders >= e.Bounds.Orders || s.r.ordered {
		return false
	}
	s.orders++
	s.r.ordered = true
	return true
}

// ordered is what Decide sees of it: with no bound set, the person never stops
// asking.
func (e *Explorer) ordered(r *repld) *failover.Order {
	if e.Bounds.Orders > 0 && !r.ordered {
		return nil
	}
	return e.Order
}

// shut closes a master for a switchover: who waits is killed, semi-sync stays as
// it is, and the global read lock is held by repld's own connection.
func (s *server) shut() { s.waits, s.ro, s.locked = 0, true, true }

// unlock ends the connections that hold global read locks: those of a repld
// that has crashed.
func (w *world) unlock() {
	for x := range w.s {
		w.s[x].locked = false
	}
}

// privileged is a commit by an account that read_only does not bind, on the
// recorded master, before anybody else may be open. It is promised nothing but
// that the opening does not leave it behind where repld holds the lock anew.
func (e *Explorer) privileged(s *state, x int) bool {
	c := e.clusters[s.r.cluster]
	srv := &s.w.s[x]
	if c.Master != name(x) || !srv.ro || srv.locked || srv.young || s.w.writes >= e.Bounds.Writes {
		return false
	}
	if in := c.Intent; in == nil || in.Kind != topology.IntentSwitchover || in.Opening != nil {
		return false
	}
	srv.ro = false
	done := s.w.write(x)
	srv.ro = true
	if done {
		last := srv.log.last()
		s.w.exempt[last.id-1] |= 1 << (last.seq - 1)
	}
	return done
}

// judgeSwitchover checks the opening of a switchover at its very moment.
func (e *Explorer) judgeSwitchover(s *state, in *topology.Intent, x int) string {
	old := index(in.OldMaster)
	m := &s.w.s[old]
	switch {
	case x == old || m.life != up || s.w.cut&(1<<old) != 0 || s.r.m[old].stale:
		return ""
	case !m.ro:
		return "1: a candidate is opened beside the open old master"
	case !s.w.s[x].log.has(m.log.last()):
		return fmt.Sprintf("3: the closed %s has 0-%d-%d, and %s is opened without it", name(old), m.log.last().id, m.log.n, name(x))
	}
	return ""
}

// giveUp is the person's acceptance of a loss, at the opening that makes it one:
// what the candidate lacks then is promised no longer, unless somebody who could
// be asked has it, which [world.leftBehind] looks for. Of what repld knew, no more
// may be lost than was said, and only of a master that can acknowledge no more.
func (e *Explorer) giveUp(s *state, in *topology.Intent, x int) string {
	if in.AcceptLoss == nil {
		return ""
	}
	w, old := &s.w, index(in.OldMaster)
	lost := [maxServers]uint8{}
	n := uint64(0)
	w.promises(func(p point) bool {
		if !w.s[x].log.has(p) {
			lost[p.id-1] |= 1 << (p.seq - 1)
			if p.seq <= uint8(in.Bound.Seq) {
				n++
			}
		}
		return true
	})
	if lost == ([maxServers]uint8{}) {
		return ""
	}
	if n > *in.AcceptLoss {
		return fmt.Sprintf("2: %d known transactions are given up, %d were said", n, *in.AcceptLoss)
	}
	if w.couldAcknowledge(old) {
		return "1: a loss is accepted while the old master could acknowledge"
	}
	for i := range lost {
		w.exempt[i] |= lost[i]
	}
	return ""
}
