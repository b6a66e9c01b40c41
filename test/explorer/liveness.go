package explorer

import (
	"fmt"

	"github.com/repld/repld/failover"
)

// patience is how many rounds a healed cluster may take to become healthy.
const patience = 120

// heal mends everything in a copy of the state and lets repld work until the
// cluster is healthy. It returns what is wrong if it never becomes so, and how
// it went; a server kept out because it has acknowledged transactions that
// nobody else has (8) is no fault.
func (e *Explorer) heal(from *state) (broken, how string) {
	if broken = e.healing(from, func(failover.Action, *state) {}); broken == "" {
		return "", ""
	}
	how = "-- everything is mended --\n"
	e.healing(from, func(a failover.Action, s *state) { how += "   repld: " + tell(a) + "\n" + e.show(s) })
	return broken, how
}

// healing does it, and tells each step.
func (e *Explorer) healing(from *state, tells func(failover.Action, *state)) (broken string) {
	s := *from
	e.mend(&s)
	e.observe(&s)
	var trail []uint64
	for range patience {
		h := e.hash(&s)
		if e.healed[h] {
			e.markHealed(trail)
			return ""
		}
		trail = append(trail, h)
		before := s
		if broken := e.progress(&s); broken != "" {
			return broken
		}
		a, broken := e.step(&s)
		tells(a, &s)
		if broken = first(broken, e.check(&s)); broken != "" {
			return broken
		}
		if s != before {
			continue
		}
		passed := false
		for i := range longs {
			passed = e.pass(&s, i) || passed
		}
		if passed {
			continue
		}
		if why := e.unwell(&s); why != "" {
			return "10: a healed cluster does not become healthy: " + why
		}
		e.markHealed(trail)
		return ""
	}
	return "10: a healed cluster does not come to rest"
}

func (e *Explorer) markHealed(trail []uint64) {
	for _, h := range trail {
		e.healed[h] = true
	}
}

func (e *Explorer) mend(s *state) {
	s.w.cut, s.w.apart = 0, [maxServers]uint8{}
	for x := range e.Servers {
		s.w.s[x].life, s.w.s[x].lags = up, false
		s.r.m[x].stale, s.r.m[x].ghost = false, effect{}
	}
	s.faults, s.crashes, s.orders, s.r.ordered = 0, 0, 0, false
}

// progress lets servers and effects go on until only repld can change anything.
func (e *Explorer) progress(s *state) string {
	for moved := true; moved; {
		moved = false
		if s.r.hook == hookRuns {
			moved = e.endHook(s, true)
			s.w.s[index(e.clusters[s.r.cluster].Intent.OldMaster)].life = up
		}
		for x := range e.Servers {
			if s.r.m[x].running.verb != verbNone {
				if broken := e.finish(s, x); broken != "" {
					return broken
				}
				moved = true
			}
			moved = s.w.connect(x) || s.w.receive(x) || s.w.apply(x) || s.w.fetchNext(x) || moved
			if srv := &s.w.s[x]; srv.waits > 0 && s.w.clients(x) > 0 {
				s.w.release(x, srv.log.n, false) // repld's own small transaction is acknowledged
				moved = true
			}
			if broken := e.check(s); broken != "" {
				return broken
			}
		}
	}
	return ""
}

// unwell says why a cluster at rest is not healthy, "" if it is or may be so.
func (e *Explorer) unwell(s *state) string {
	c := e.clusters[s.r.cluster]
	for _, srv := range c.Servers {
		if len(srv.Diverged) > 0 {
			return ""
		}
	}
	in := e.input(&s.r)
	r := failover.Assess(in)
	if r.Health == failover.Healthy {
		return ""
	}
	return fmt.Sprintf("%s %v", r.Health, r.Problems)
}
