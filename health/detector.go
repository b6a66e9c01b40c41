package health

import (
	"fmt"
	"time"

	"github.com/repld/repld/topology"
)

// DetectPolicy holds the time limits of detection.
type DetectPolicy struct {
	// RefusedGrace is how long a refusing master is given to restart.
	RefusedGrace time.Duration
	// HangTimeout is how long a silent master is waited for.
	HangTimeout time.Duration
}

// refusedTwice is the least number of refused dials in a row, and refusedSpan
// the least time between the first and the last of them, before a master can be
// called dead: one refused dial may be a full backlog or a listener that is
// just being set up.
const (
	refusedTwice = 2
	refusedSpan  = 5 * time.Millisecond
)

// Detect says how the recorded master is. It is pure: the same view gives the
// same verdict. The rules are those of docs/guarantees.md, "Detection":
//
//   - dead: connections broke, new ones are refused more than once over a short
//     span, and no reachable slave's IO thread is connected;
//   - hung: no answer within HangTimeout, and no reachable slave has received
//     an event or a heartbeat within it, or within three of its heartbeats if
//     that is longer;
//   - a slave that reads from another slave has no say, but for transactions that
//     reach it through a slave which cannot be asked;
//   - anything that answers, even with an error, is alive.
func Detect(v *View, p DetectPolicy) Verdict {
	mv := v.Servers[v.Cluster.Master]
	if v.Cluster.Master == "" || mv == nil || mv.Last.Reach == ReachUnknown {
		return Verdict{State: StateUnknown}
	}
	if mv.Last.Reach.Answers() {
		return Verdict{State: StateAlive}
	}
	d := detection{v: v, p: p, mv: mv, since: symptom(v, mv)}
	d.note("%s: %s since %v (%s)", v.Cluster.Master, mv.Last.Reach, v.Now.Sub(d.since).Round(time.Millisecond), mv.Last.Err)
	d.hearSlaves()
	switch mv.Last.Reach {
	case ReachRefused:
		return d.refused()
	case ReachForeign:
		return d.verdict(StateSuspect, 0)
	default:
		return d.silent()
	}
}

// detection gathers the evidence for one verdict.
type detection struct {
	v        *View
	p        DetectPolicy
	mv       *ServerView
	since    time.Time
	evidence []string

	slaves    int      // of the master, counted at all
	reachable int      // of those, reachable
	asked     int      // of those, reading or meant to read from the master
	heard     int      // of those, observed after the first symptom
	reading   []string // heard, with a connected IO thread
	// hearsUntil is when what a reachable slave received, an event or a heartbeat,
	// is no sign of the master's life any more; by is that slave, at when it was.
	hearsUntil, at time.Time
	by             string
}

func (d *detection) note(format string, args ...any) {
	d.evidence = append(d.evidence, fmt.Sprintf(format, args...))
}

func (d *detection) verdict(s State, recheck time.Duration) Verdict {
	return Verdict{State: s, Since: d.since, Evidence: d.evidence, RecheckIn: recheck}
}

// symptom is the time of the first sign of trouble: the first failed probe, or
// the break of the stream if that came before it.
func symptom(v *View, mv *ServerView) time.Time {
	since := mv.FailingSince
	if since.IsZero() {
		since = mv.Last.At
	}
	st := v.Stream
	if st.Server == v.Cluster.Master && !st.Connected && !st.Since.IsZero() &&
		st.Since.Before(since) && st.Since.After(mv.LastOK.At) {
		since = st.Since
	}
	return since
}

// hearSlaves asks what the slaves of the master say about it.
func (d *detection) hearSlaves() {
	for _, name := range d.v.Cluster.Names() {
		s := d.v.Cluster.Servers[name]
		if name == d.v.Cluster.Master || s.Role != topology.RoleSlave || s.Joining {
			continue
		}
		d.slaves++
		sv := d.v.Servers[name]
		if !sv.Reachable() {
			d.note("%s: not reachable, says nothing", name)
			continue
		}
		d.reachable++
		st := sv.Last.Slave
		if st == nil {
			continue
		}
		if !d.readsMaster(s, st) {
			d.hearChained(name, sv)
			continue
		}
		d.asked++
		if until := sv.HearsUntil(d.p.HangTimeout); until.After(d.hearsUntil) {
			d.hearsUntil, d.at, d.by = until, sv.Advanced, name
		}
		if !sv.Last.Sent.After(d.since) {
			continue
		}
		d.heard++
		if st.IO == ThreadYes {
			d.reading = append(d.reading, name)
		}
		d.note("%s: IO thread %s", name, st.IO)
	}
}

// refused judges a master whose dials are refused.
func (d *detection) refused() Verdict {
	if len(d.reading) > 0 {
		return d.verdict(StateVetoed, 0)
	}
	span := d.mv.Last.At.Sub(d.mv.RefusedFirst)
	d.note("%d dials refused within %v", d.mv.Refusals, span.Round(time.Millisecond))
	if d.mv.Refusals < refusedTwice || span < refusedSpan {
		return d.verdict(StateSuspect, 0)
	}
	if d.heard < d.asked {
		// A reachable slave has not been asked since the symptom.
		return d.verdict(StateSuspect, 0)
	}
	if left := d.p.RefusedGrace - d.v.Now.Sub(d.since); left > 0 {
		d.note("failover.refused_grace leaves it %v more", left.Round(time.Millisecond))
		return d.verdict(StateSuspect, left)
	}
	return d.verdict(StateDead, 0)
}

// silent judges a master that cannot be talked to and does not refuse either.
func (d *detection) silent() Verdict {
	if d.slaves > 0 && d.reachable == 0 {
		return d.verdict(StateCutOff, 0)
	}
	answered := d.mv.LastOK.At
	if st := d.v.Stream; st.Server == d.v.Cluster.Master && st.LastEvent.After(answered) {
		answered = st.LastEvent
	}
	if d.v.AwakeSince.After(answered) {
		answered = d.v.AwakeSince
	}
	if left := d.p.HangTimeout - d.v.Now.Sub(answered); left > 0 {
		d.note("silent for %v, hung after %v", d.v.Now.Sub(answered).Round(time.Millisecond), d.p.HangTimeout)
		return d.verdict(StateSuspect, left)
	}
	if d.heard < d.asked {
		return d.verdict(StateSuspect, 0)
	}
	if left := d.hearsUntil.Sub(d.v.Now); left > 0 {
		d.note("%s received something from it %v ago", d.by, d.v.Now.Sub(d.at).Round(time.Millisecond))
		return d.verdict(StateVetoed, left)
	}
	d.note("no slave has received anything within %v", d.p.HangTimeout)
	return d.verdict(StateHung, 0)
}
