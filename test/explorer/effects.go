package explorer

import "github.com/repld/repld/failover"

// effect is a verb under way on a server, with its arguments.
type effect struct {
	verb  verb
	from  uint8
	acker bool
	at    point
	setAt bool
}

type verb uint8

const (
	verbNone verb = iota
	verbStopIO
	verbDrain
	verbFetch
	verbEndFetch
	verbDetach
	verbArm
	verbDisarm
	verbOpen
	verbFence
	verbAttach
	verbRejoin
	verbCompare
	verbShut
	verbProbe
)

var verbs = map[failover.Kind]verb{
	failover.KindStopIO: verbStopIO, failover.KindDrain: verbDrain, failover.KindFetch: verbFetch,
	failover.KindEndFetch: verbEndFetch, failover.KindDetach: verbDetach, failover.KindArm: verbArm,
	failover.KindDisarm: verbDisarm, failover.KindOpen: verbOpen, failover.KindFence: verbFence,
	failover.KindAttach: verbAttach, failover.KindRejoin: verbRejoin, failover.KindCompare: verbCompare, failover.KindProbe: verbProbe,
	failover.KindShut: verbShut,
}

var kinds = func() (out [verbProbe + 1]failover.Kind) {
	for k, v := range verbs {
		out[v] = k
	}
	return out
}()

// outcome of executing a verb.
type outcome struct {
	ok bool
	// broken names an invariant that the verb itself has violated.
	broken string
}

// execute does what the verb of failover.Server does on a real server.
func (w *world) execute(x int, e effect) outcome {
	s := &w.s[x]
	switch e.verb {
	case verbStopIO:
		s.io, s.ioErr = no, false
		s.acking = false
	case verbDrain:
		if s.src == 0 || s.io != no {
			return outcome{}
		}
		if s.sql != yes {
			s.gtid, s.sql, s.sqlErr = false, yes, false
		}
	case verbFetch:
		s.acker, s.fetch, s.fetchOn = false, e.from, true
	case verbEndFetch:
		s.fetch, s.fetchOn = 0, false
	case verbDetach:
		broken := w.dropRelay(x)
		s.src, s.gtid, s.io, s.sql, s.ioErr, s.sqlErr = 0, false, no, no, false, false
		s.got, s.gotShown, s.files, s.acking = point{}, false, false, false
		return outcome{ok: true, broken: broken}
	case verbArm:
		s.acker, s.armed, s.gaveUp = false, true, false
	case verbDisarm:
		w.release(x, s.log.n, true)
		s.armed, s.gaveUp = false, false
	case verbOpen:
		s.ro, s.young, s.locked = false, false, false
	case verbFence:
		w.fence(x)
	case verbShut:
		s.shut()
	case verbAttach:
		return w.attach(x, e)
	}
	return outcome{ok: true}
}

// fence kills whoever waits, closes, and only then switches semi-sync off.
func (w *world) fence(x int) {
	s := &w.s[x]
	s.waits, s.ro, s.armed, s.gaveUp = 0, true, false, false
}

func (w *world) attach(x int, e effect) outcome {
	s := &w.s[x]
	s.locked = false
	if !s.ro || s.armed {
		w.fence(x)
	}
	if s.src == e.from && s.gtid && s.sql == yes && s.io != no && s.acker == e.acker {
		return outcome{ok: true}
	}
	broken := w.dropRelay(x)
	if e.setAt {
		s.pos = e.at
	}
	s.src, s.gtid, s.io, s.sql = e.from, true, connecting, yes
	s.ioErr, s.sqlErr, s.files = false, false, false
	s.got, s.gotShown = s.pos, s.pos.seq > 0
	s.acker, s.acking = e.acker, e.acker
	return outcome{ok: true, broken: broken}
}

// dropRelay loses the relay log, and tells whether that was the last copy of a
// promised transaction beside its writer's, who may never come back.
func (w *world) dropRelay(x int) string {
	s := &w.s[x]
	broken := ""
	for k := s.pos.seq + 1; k <= s.relay.n; k++ {
		p := point{s.relay.at(k), k}
		if !w.promised(p) || w.elsewhere(x, p) {
			continue
		}
		broken = "4: the last copy of an acknowledged transaction is dropped"
	}
	s.relay, s.pendingTouched = history{}, false
	return broken
}

func (w *world) elsewhere(x int, p point) bool {
	for y := range w.s {
		if y != x && uint8(y+1) != p.id && w.s[y].holds(p) {
			return true
		}
	}
	return false
}
