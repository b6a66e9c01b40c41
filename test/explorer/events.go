package explorer

import (
	"fmt"
	"strings"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/topology"
)

// state is one state of everything: servers, links, clients, repld.
type state struct {
	w world
	r repld
	// faults and crashes are what has been spent of the bounds.
	faults, crashes, orders uint8
}

type kind uint8

const (
	evStep kind = iota
	evFinish
	evGhost
	evHalf // a ghost of several statements runs up to its middle
	evWrite
	evLag
	evUnlag
	evReceive
	evApply
	evFetch
	evRestart
	evThaw
	evHeal
	evUnstale
	evSlow // a step whose effects stay under way
	evCrash
	evFreeze
	evStale
	evCut
	evPart
	evRepldCrash
	evSendCrash
	evServerTimeout
	evLong
	evHookWorks
	evHookFails
	evOrder
	evPrivileged
	kindsEnd
)

var kindWords = [...]string{"repld", "finish", "late", "half", "write", "LAG", "no lag", "receive", "apply", "fetch", "restart", "thaw", "heal",
	"seen again", "repld, SLOWLY", "CRASH", "FREEZE", "STALE VIEW", "CUT FROM REPLD", "CUT APART", "REPLD CRASHES", "REPLD CRASHES after sending", "SERVER TIME-OUT", "time passes", "the fence works", "the fence fails", "A PERSON ORDERS", "privileged write"}

// event is one thing that can happen.
type event struct {
	k    kind
	x, y uint8
}

// fault tells whether an event is bounded by Bounds.Faults.
func (ev event) fault() bool {
	return ev.k == evSlow || ev.k == evCrash || ev.k == evLag || ev.k == evFreeze || ev.k == evStale || ev.k == evCut || ev.k == evPart || ev.k == evServerTimeout
}

// candidates lists every event that might be possible.
func (e *Explorer) allEvents() []event {
	out := []event{{k: evStep}}
	for k := evFinish; k < kindsEnd; k++ {
		switch k {
		case evRepldCrash, evSendCrash, evSlow, evHookWorks, evHookFails, evOrder:
			out = append(out, event{k: k})
		case evLong:
			for i := range longs {
				out = append(out, event{k: k, x: uint8(i)})
			}
		case evPart, evHeal:
			for x := range e.Servers {
				for y := x; y < e.Servers; y++ {
					if k == evHeal || x != y {
						out = append(out, event{k, uint8(x), uint8(y)})
					}
				}
			}
		default:
			for x := range e.Servers {
				out = append(out, event{k: k, x: uint8(x)})
			}
		}
	}
	return out
}

// longs are the spans that can pass, each as one fact.
var longs = []string{"the master has been silent for hang_timeout", "the opening has expired", "ack_timeout without an acker",
	"the time for re-pointing is over", "ack_timeout since the master's restart",
	"switchover_timeout"}

// apply carries out an event; done is false if it is impossible or changes
// nothing. broken names a violated invariant; a is what repld decided.
func (e *Explorer) apply(s *state, ev event) (done bool, a failover.Action, broken string) {
	done, a, broken = e.applied(s, ev)
	if done {
		s.w.settle()
		e.forget(s)
	}
	return done, a, broken
}

func (e *Explorer) applied(s *state, ev event) (done bool, a failover.Action, broken string) {
	if e.Bounds.Without&(1<<ev.k) != 0 {
		return false, a, ""
	}
	if ev.fault() {
		if s.faults >= e.Bounds.Faults {
			return false, a, ""
		}
		s.faults++
	}
	x := int(ev.x)
	switch ev.k {
	case evStep, evSlow:
		return e.turn(s, ev.k == evSlow)
	case evFinish:
		if s.r.m[x].running.verb == verbNone {
			return false, a, ""
		}
		broken = e.finish(s, x)
		return true, a, broken
	case evGhost, evHalf:
		done, broken = e.ghost(s, x, ev.k == evHalf)
		return done, a, broken
	case evRepldCrash, evSendCrash:
		if s.crashes >= e.Bounds.Crashes {
			return false, a, ""
		}
		s.crashes++
		if ev.k == evSendCrash {
			a, broken = e.step(s)
			if !s.busy() && len(a.Journal) == 0 {
				return false, a, broken
			}
		}
		e.crashRepld(s)
		return true, a, broken
	case evLong:
		return e.pass(s, x), a, ""
	case evHookWorks, evHookFails:
		return e.endHook(s, ev.k == evHookWorks), a, ""
	case evOrder:
		return e.order(s), a, ""
	case evPrivileged:
		return e.privileged(s, x), a, ""
	}
	return e.happen(s, ev), a, ""
}

// turn is one step of repld's loop with its effects. Slowly: they stay under
// way, so that anything may happen between the decision and them.
func (e *Explorer) turn(s *state, slowly bool) (done bool, a failover.Action, broken string) {
	before := *s
	a, broken = e.step(s)
	if slowly && *s == before {
		return false, a, broken
	}
	sent := false
	for x := range e.Servers {
		if s.r.m[x].running.verb == verbNone || before.r.m[x].running.verb != verbNone {
			continue
		}
		sent = true
		if !slowly {
			broken = first(broken, e.finish(s, x))
			s.w.settle()
			broken = first(broken, e.check(s))
		}
	}
	if slowly && !sent {
		return false, a, broken
	}
	e.forget(s)
	return *s != before || broken != "", a, broken
}

func (s *state) busy() bool {
	for x := range s.r.m {
		if s.r.m[x].running.verb != verbNone {
			return true
		}
	}
	return false
}

// happen is what the world does by itself.
func (e *Explorer) happen(s *state, ev event) bool {
	w, x := &s.w, int(ev.x)
	srv, m := &w.s[x], &s.r.m[x]
	switch ev.k {
	case evWrite:
		return w.writes < e.Bounds.Writes && w.write(x)
	case evLag, evUnlag:
		if srv.lags == (ev.k == evLag) || srv.src == 0 {
			return false
		}
		srv.lags = ev.k == evLag
	case evReceive:
		return w.receive(x)
	case evApply:
		return srv.lags && w.apply(x)
	case evFetch:
		return w.fetchNext(x)
	case evCrash:
		if srv.life == down {
			return false
		}
		e.observe(s)
		w.crash(x)
		m.ghost = effect{}
	case evRestart:
		if srv.life != down {
			return false
		}
		srv.life = up
	case evFreeze:
		if srv.life != up {
			return false
		}
		e.observe(s)
		srv.life = frozen
	case evThaw:
		if srv.life != frozen {
			return false
		}
		srv.life = up
	case evStale:
		if m.stale || m.reach == unseen || srv.life == frozen {
			return false
		}
		e.observe(s)
		in := e.clusters[s.r.cluster].Intent
		m.stale, m.sinceBegun = true, in != nil
		m.sinceSent = in != nil && in.Opening != nil
		m.sinceDeadline = m.sinceSent && s.r.openExpired
	case evUnstale:
		if !m.stale {
			return false
		}
		m.stale = false
	case evServerTimeout:
		if srv.life != up || srv.waits == 0 {
			return false
		}
		w.release(x, srv.log.n, true)
		srv.gaveUp = true
	default:
		return e.links(s, ev)
	}
	return true
}

func (e *Explorer) links(s *state, ev event) bool {
	w, x, y := &s.w, int(ev.x), int(ev.y)
	switch ev.k {
	case evCut:
		if w.cut&(1<<x) != 0 {
			return false
		}
		e.observe(s)
		w.cut |= 1 << x
	case evPart:
		if !w.linked(x, y) {
			return false
		}
		w.apart[x] |= 1 << y
		w.apart[y] |= 1 << x
	case evHeal:
		if x == y && w.cut&(1<<x) != 0 {
			w.cut &^= 1 << x
			return true
		}
		if x == y || w.linked(x, y) {
			return false
		}
		w.apart[x] &^= 1 << y
		w.apart[y] &^= 1 << x
	default:
		return false
	}
	return true
}

// ghost lets an unanswered statement run, wholly or up to its middle.
func (e *Explorer) ghost(s *state, x int, half bool) (bool, string) {
	m, srv := &s.r.m[x], &s.w.s[x]
	if m.ghost.verb == verbNone || srv.life != up {
		return false, ""
	}
	fx := m.ghost
	if half {
		switch {
		case fx.verb == verbDetach && srv.src != 0, fx.verb == verbAttach && srv.src != 0:
			srv.io, srv.sql, srv.acking = no, no, false
		case fx.verb == verbDrain && srv.io == no && srv.sql != yes:
			srv.gtid = false
		case fx.verb == verbShut && !srv.ro:
			srv.shut()
			srv.locked = false
		default:
			return false, ""
		}
		m.ghost = effect{}
		return true, ""
	}
	if fx.verb == verbDetach && (srv.io != no || srv.sql != no) {
		return false, "" // it is sent once the stopping was answered: only that can be late, see half
	}
	m.ghost = effect{}
	_, broken := e.run(s, x, fx)
	return true, broken
}

// pass lets a span of time pass that repld has begun to count.
func (e *Explorer) pass(s *state, which int) bool {
	r := &s.r
	c := e.clusters[r.cluster]
	master := index(c.Master)
	mm, ok := &r.m[master], s.w.snapshot(master)
	flag := []*bool{&r.silentLong, &r.openExpired, &r.noAckerLong, &r.repointLong, &r.youngLong, &r.deadlineLong}[which]
	counting := []bool{
		mm.reach == silent && !mm.stale,
		c.Intent != nil && c.Intent.Opening != nil && c.Intent.Opened.IsZero(),
		mm.reach == answers && !ok.ro && ok.armed && (ok.clients == 0 || ok.mute),
		c.Intent != nil && !c.Intent.Opened.IsZero(),
		mm.reach == answers && ok.ro && ok.young,
		c.Intent != nil && c.Intent.Kind == topology.IntentSwitchover && c.Intent.Opening == nil && c.Intent.RollingBack == "",
	}[which]
	if *flag || !counting {
		return false
	}
	*flag = true
	if which == 1 && !e.Guards.NoExpiry {
		for x := range r.m { // by the server's own clock too
			if r.m[x].ghost.verb == verbOpen {
				r.m[x].ghost = effect{}
			}
		}
	}
	return true
}

// describe says an event in words.
func (ev event) describe() string {
	switch ev.k {
	case evStep, evSlow, evRepldCrash, evSendCrash, evHookWorks, evHookFails, evOrder:
		return kindWords[ev.k]
	case evLong:
		return kindWords[ev.k] + ": " + longs[ev.x]
	case evPart, evHeal:
		if ev.x != ev.y {
			return fmt.Sprintf("%s %s and %s", kindWords[ev.k], name(int(ev.x)), name(int(ev.y)))
		}
	}
	return kindWords[ev.k] + " " + name(int(ev.x))
}

// tell says what repld decided.
func tell(a failover.Action) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", a.Kind, strings.Join(a.Servers, ","))
	for _, cmd := range a.Journal {
		fmt.Fprintf(&b, " journal %s", strings.TrimPrefix(fmt.Sprintf("%T", cmd), "topology."))
	}
	if len(a.Why) > 0 {
		fmt.Fprintf(&b, " because %s", strings.Join(a.Why, "; "))
	}
	for _, p := range a.Blocked {
		fmt.Fprintf(&b, " BLOCKED %s %s", p.Code, p.Server)
	}
	return b.String()
}
