package failover

import (
	"fmt"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/topology"
)

// holding judges a slave that a person has stopped or works on; acts is false if
// the ordinary care goes on with it.
//
// Both threads are stopped in an order that drops nothing: first the IO thread,
// then, when all that was received is applied, the SQL thread. With both down and
// something unapplied the next start would drop the relay log.
func (d *decider) holding(m *member, st *health.SlaveStatus, want string) (s step, why string, acts bool) {
	switch {
	case m.s.Maintenance:
		switch {
		case st == nil || !m.sv.Last.SemiSync.SlaveOn:
		case !d.streams(m.name):
			return stepStopIO, "is in maintenance, acknowledges, and cannot be attached anew as it is", true
		case !m.pending():
			return stepAttach, "is in maintenance and may not acknowledge any more", true
		}
		return stepNone, "", true
	case m.s.Held == topology.HeldAll:
		s, why = d.stopping(m, st)
		return s, why, true
	case m.s.Held == topology.HeldSQL && st != nil && d.sourceOf(st) == want && st.IO != health.ThreadNo:
		if st.SQL == health.ThreadYes && st.IO == health.ThreadYes {
			return stepStopSQL, "is held by a person", true
		}
		return stepNone, "", true
	}
	return stepNone, "", false
}

// stopping stops both threads of a slave. What only waits to be applied, because
// the SQL thread alone was stopped, is applied first: while the IO thread is up a
// start of the SQL thread keeps the relay log. A slave that cannot apply is left
// as it is.
func (d *decider) stopping(m *member, st *health.SlaveStatus) (step, string) {
	switch {
	case st == nil || st.SQLErrno != 0 || !m.known:
	case st.IO != health.ThreadNo && st.SQL == health.ThreadNo && m.pending():
		return stepStartSQL, "has something to apply before it is stopped"
	case st.IO != health.ThreadNo:
		return stepStopIO, "is to be stopped"
	case st.SQL == health.ThreadYes && st.UsingGTID != "No" && !m.pending():
		return stepStopSQL, "has applied all that it received"
	}
	return stepNone, ""
}

// acks tells whether a server acknowledges the master's commits now. One whose
// SQL thread alone a person has stopped goes on doing so.
func (d *decider) acks(name string) bool {
	sv := d.v.Servers[name]
	if !d.acker(name) || !sv.Reachable() || !sv.Last.SemiSync.SlaveOn {
		return false
	}
	if d.streams(name) {
		return true
	}
	st := sv.Last.Slave
	return d.c.Servers[name].Held == topology.HeldSQL && st != nil && st.IO == health.ThreadYes && d.sourceOf(st) == d.c.Master
}

// stopped tells whether a slave is as a person has wanted it. After a failover
// has let it apply its relay log by file and position, the SQL thread of a
// stopped slave may run, with nothing to do.
func (d *decider) stopped(m *member) bool {
	st := m.sv.Last.Slave
	switch {
	case !m.sv.Reachable() || st == nil:
		return false
	case m.s.Held == topology.HeldSQL:
		return st.SQL == health.ThreadNo
	}
	return m.s.Held == topology.HeldAll && st.IO == health.ThreadNo && !m.pending() && (st.SQL == health.ThreadNo || m.drained())
}

// heldText says what a person has stopped, for status.
func (m *member) heldText() string {
	switch {
	case m.s.Held == topology.HeldSQL:
		return "a person has stopped its SQL thread by replctl stop --sql-only; it goes on receiving"
	case m.pending():
		return fmt.Sprintf("a person stops it by replctl stop: %d received transactions are still to be applied", m.received.Seq-m.applied.Seq)
	}
	return "a person has stopped it by replctl stop"
}

// restarting waits while repld itself restarts the master in its place.
func (d *decider) restarting() (Action, bool) {
	left := d.c.RestartUntil.Sub(d.now)
	if d.c.Intent != nil || left <= 0 || d.ordered() || !d.in.Verdict.Lost() {
		return Action{}, false
	}
	text := fmt.Sprintf("%s is being restarted on order: it is not taken for lost for at most %v more", d.c.Master, left.Round(time.Second))
	a := wait(left, text)
	a.Notes = []Problem{{Code: "restarting", Server: d.c.Master, Text: text, Do: "replctl failover, if it does not come back"}}
	return a, true
}
