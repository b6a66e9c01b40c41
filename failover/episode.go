package failover

import (
	"slices"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/topology"
)

// episode is the trouble of a master that is going on, for
// [topology.NoteDeclined]; the zero episode is none.
type episode struct {
	// epoch is whose master is watched, 0 before the first look.
	epoch    uint64
	declined topology.Declined
	// noted: it is in the journal, as one that goes on.
	noted bool
}

// declineAfter is how long a master must have been in trouble for the episode to
// be remembered: a lost packet is none.
const declineAfter = 500 * time.Millisecond

// watchEpisode remembers a failover that did not happen: when a rule holds back
// one that is called for, and when the master is in order again.
func (l *Loop) watchEpisode(in Input, a Action) {
	c, e := in.View.Cluster, &l.told.episode
	if e.epoch == 0 && c.Declined != nil && c.Declined.Until.IsZero() {
		*e = episode{declined: *c.Declined, noted: true} // it was going on when repld ended
	}
	happened := c.Intent != nil && c.Intent.Kind != topology.IntentReopen || e.epoch != 0 && c.Epoch != e.epoch
	e.epoch = c.Epoch
	verdict, evidence := trouble(in)
	switch d := &e.declined; {
	case happened:
		// A failover came after all, by a person's order, or another rule let it.
		if e.noted {
			l.endEpisode(in)
		}
		*e = episode{epoch: c.Epoch}
	case verdict == "" && d.At.IsZero():
	case verdict == "":
		if e.noted || in.View.Now.Sub(d.At) >= declineAfter {
			l.endEpisode(in)
		}
		*e = episode{epoch: c.Epoch}
	default:
		l.goesOn(in, a, verdict, evidence)
	}
}

// trouble is what is amiss with the master, "" if nothing is that could lead to
// a failover, or is not known.
func trouble(in Input) (verdict string, evidence []string) {
	mv := in.View.Servers[in.View.Cluster.Master]
	switch v := in.Verdict; {
	case in.View.Now.Before(in.View.Cluster.RestartUntil):
		return "", nil // it is down because a person ordered a restart
	case v.State == health.StateAlive && mv != nil && mv.Last.Reach == health.ReachUnkind:
		return string(health.ReachUnkind), []string{in.View.Cluster.Master + " answers, and is alive: " + mv.Last.Err}
	case v.State == health.StateAlive || v.State == health.StateUnknown:
		return "", nil
	default:
		return string(v.State), v.Evidence
	}
}

func (l *Loop) endEpisode(in Input) {
	d := l.told.episode.declined
	d.Until = in.View.Now
	l.noteDeclined(d)
}

// goesOn keeps the worst that was said of the master, and the rules that hold a
// failover back now or did so last.
func (l *Loop) goesOn(in Input, a Action, verdict string, evidence []string) {
	e := &l.told.episode
	d := &e.declined
	if d.At.IsZero() {
		d.At, d.Master = in.Verdict.Since, in.View.Cluster.Master
		if d.At.IsZero() {
			d.At = in.View.Now
		}
	}
	if slices.Index(gravity, verdict) >= slices.Index(gravity, d.Verdict) {
		d.Verdict, d.Evidence = verdict, evidence
	}
	var rules []string
	for _, p := range a.Blocked {
		rules = append(rules, p.Code+": "+p.Text)
	}
	if len(rules) == 0 {
		return
	}
	d.Rules = rules
	if in.Verdict.Lost() && !e.noted {
		e.noted = true
		l.noteDeclined(*d)
	}
}

// gravity orders what can be said of a master.
var gravity = []string{"", string(health.ReachUnkind), string(health.StateSuspect), string(health.StateCutOff), string(health.StateVetoed),
	string(health.StateHung), string(health.StateDead)}

func (l *Loop) noteDeclined(d topology.Declined) {
	if err := l.cfg.Journal.Apply(topology.NoteDeclined{Cluster: l.cfg.Cluster, Declined: d}); err != nil {
		l.cfg.Log.Error("the state cannot be written", logCluster, l.cfg.Cluster, logError, err)
	}
}
