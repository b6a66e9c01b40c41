package failover

import (
	"fmt"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/topology"
)

// masterReadOnly is the recorded master that answers and accepts no writes. If
// its process is younger than its opening it restarted, and is opened again
// unless it lost data; otherwise a person closed it, which is left alone.
func (d *decider) masterReadOnly(mv *health.ServerView) Action {
	ms := d.members(d.c.Master)
	lost := d.behind(mv, ms)
	restarted := d.restarted(mv)
	if lost == "" && !restarted && d.c.Shutting {
		return d.beginReopening("repld had shut the master for a switchover that was given up")
	}
	if lost == "" && !restarted {
		return d.blocked(Problem{Code: "master_read_only", Server: d.c.Master,
			Text: d.c.Master + " accepts no writes although it did not restart: somebody set read_only"})
	}
	if lost != "" {
		return d.begin([]string{"the master is closed and has lost data: " + lost})
	}
	if d.c.Durability == topology.Lossless || d.now.Sub(mv.Last.Started) < d.p.AckTimeout {
		// What restarted slaves kept is known once applied: lossless waits for it.
		if a, acts := d.learn(nil, ms); acts {
			return a
		}
	}
	if a, acts := d.awaitAckers(mv, ms); acts {
		return a
	}
	return d.beginReopening("the master restarted, nothing was promoted since, and it has lost nothing")
}

func (d *decider) beginReopening(why string) Action {
	return Action{Kind: KindBegin, Why: []string{why},
		Intent: &topology.Intent{Kind: topology.IntentReopen, Epoch: d.c.Epoch, OldMaster: d.c.Master, Symptom: d.now, Begun: d.now}}
}

// restarted tells whether the master's process is another one than that which
// repld opened, and therefore closed by its own configuration.
func (d *decider) restarted(mv *health.ServerView) bool {
	if d.c.OpenedProcess.IsZero() {
		return mv.Last.Started.After(d.c.OpenedAt.Add(-2 * time.Second))
	}
	return mv.Last.Started.Sub(d.c.OpenedProcess).Abs() > restartTolerance
}

// awaitAckers delays the reopening of a restarted master while an acker that may
// have received more cannot be asked: for ack_timeout in semi-sync, in lossless
// until it is back.
func (d *decider) awaitAckers(mv *health.ServerView, ms []*member) (Action, bool) {
	has := &member{received: mv.Last.BinlogPos.Of(d.domain)}
	for _, m := range ms {
		if !d.acker(m.name) || m.sv.Reachable() && m.known {
			continue
		}
		if d.c.Durability == topology.Lossless && d.couldHoldMore(&topology.Intent{OldMaster: d.c.Master}, m, has) {
			return d.blocked(Problem{Code: "acker_unreachable", Server: m.name, Do: "bring " + m.name + " back, or: replctl durability set semi-sync",
				Text: fmt.Sprintf("%s restarted, and %s could acknowledge its commits and may have received more than it kept; %s", d.c.Master, m.name, reachText(m.sv))}), true
		}
		if d.now.Sub(mv.Last.Started) < d.p.AckTimeout {
			return wait(retryFirst, fmt.Sprintf("%s may have received more than the restarted master has: waiting up to %v for it", m.name, d.p.AckTimeout)), true
		}
	}
	return Action{}, false
}

// openingPending waits while an opening of a master that was lost meanwhile
// could still open it: nobody else may be chosen before.
func (d *decider) openingPending(in *topology.Intent) (Action, bool) {
	switch {
	case in.Opening == nil:
	case d.in.Effects[in.Opening.Server].Running != "":
		return wait(0, in.Opening.Server+" may still be opened: the statement is under way"), true
	case d.in.Verdict.State == health.StateHung && d.now.Before(in.Opening.Deadline):
		return wait(in.Opening.Deadline.Sub(d.now), in.Opening.Server+" may still be opened: the statement has not expired"), true
	}
	return Action{}, false
}

// reopen opens the recorded master again.
func (d *decider) reopen(in *topology.Intent) Action {
	name := d.c.Master
	mv := d.v.Servers[name]
	end := func(r topology.Result, why string) Action {
		return Action{Kind: KindJournal, Ends: r, Why: []string{why}, Journal: []topology.Command{
			topology.EndIntent{Cluster: d.c.Name, Intent: in.ID, At: d.now}}}
	}
	switch {
	case !in.Opened.IsZero():
		return end(topology.ResultDone, name+" is open again")
	case d.in.Verdict.Lost():
		if a, acts := d.openingPending(in); acts {
			return a
		}
		return end(topology.ResultFailed, "the master was lost again while it was being opened")
	case in.Opening != nil:
		return d.confirmOpening(in)
	case !mv.Reachable() || !mv.Last.Sent.After(in.Begun):
		return wait(retryFirst, "waiting for a fresh look at "+name)
	}
	ms := d.members(name)
	return d.open(in, name, d.armOpening(d.ackersExpected(name, ms)), mv.Last.BinlogPos.Of(d.domain), "the recorded master is closed and has lost nothing")
}
