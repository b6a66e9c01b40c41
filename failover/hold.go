package failover

import (
	"fmt"

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
		if st != nil && d.streams(m.name) && m.sv.Last.SemiSync.SlaveOn && !m.pending() {
			return stepAttach, "is in maintenance and may not acknowledge any more", true
		}
		return stepNone, "", true
	case m.s.Held == topology.HeldAll:
		switch {
		case st == nil || m.pending():
		case st.IO != health.ThreadNo:
			return stepStopIO, "is to be stopped", true
		case st.SQL == health.ThreadYes && st.UsingGTID != "No":
			return stepStopSQL, "has applied all that it received", true
		}
		if st != nil && st.IO != health.ThreadNo {
			return stepStopIO, "is to be stopped", true
		}
		return stepNone, "", true
	case m.s.Held == topology.HeldSQL && st != nil && d.sourceOf(st) == want && st.IO != health.ThreadNo:
		if st.SQL == health.ThreadYes && st.IO == health.ThreadYes {
			return stepStopSQL, "is held by a person", true
		}
		return stepNone, "", true
	}
	return stepNone, "", false
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

// stopped tells whether a slave is as a person has wanted it.
func (d *decider) stopped(name string) bool {
	sv, s := d.v.Servers[name], d.c.Servers[name]
	if s == nil || !sv.Reachable() || sv.Last.Slave == nil {
		return false
	}
	st := sv.Last.Slave
	return st.SQL == health.ThreadNo && (s.Held == topology.HeldSQL || s.Held == topology.HeldAll && st.IO == health.ThreadNo)
}

// heldText says what a person has stopped, for status.
func heldText(h topology.Held) string {
	if h == topology.HeldSQL {
		return "a person has stopped its SQL thread by replctl stop --sql-only; it goes on receiving"
	}
	return "a person has stopped it by replctl stop"
}

// restarting waits while repld itself restarts the master in its place.
func (d *decider) restarting() (Action, bool) {
	left := d.c.RestartUntil.Sub(d.now)
	if d.c.Intent != nil || left <= 0 || d.ordered() || !d.in.Verdict.Lost() {
		return Action{}, false
	}
	return wait(left, fmt.Sprintf("%s is being restarted on order, for at most %v more", d.c.Master, left.Round(1e9))), true
}
