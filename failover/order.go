package failover

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/topology"
)

// Failover carries out a person's order to promote a slave because the master
// is gone. It returns when the failover has ended, with its operation; refused
// on a live master. acceptLoss says how many transactions may be lost, nil: none
// knowingly. If the context ends first the failover goes on by itself.
func (l *Loop) Failover(ctx context.Context, to string, acceptLoss *uint64) (*topology.Operation, error) {
	if err := l.awaitVerdict(ctx, to); err != nil {
		return nil, err
	}
	return l.carryOut(ctx, Order{To: to, AcceptLoss: acceptLoss}, topology.OpFailover)
}

// Switchover carries out a person's order to replace a live master. It returns
// when the switchover has ended, done or rolled back.
func (l *Loop) Switchover(ctx context.Context, to string) (*topology.Operation, error) {
	if _, err := l.PlanSwitchover(to); err != nil {
		return nil, err
	}
	return l.carryOut(ctx, Order{To: to, Switchover: true}, topology.OpSwitchover)
}

// PlanSwitchover says who would be the new master, or why a switchover is
// refused now.
func (l *Loop) PlanSwitchover(to string) (FailoverPlan, error) {
	in, _ := l.Report()
	c := in.View.Cluster
	refuse := func(code, what, cause string) (FailoverPlan, error) {
		return FailoverPlan{}, &fault.Error{Kind: fault.Refused, Code: code, What: what, Server: c.Master, Cause: cause, State: "nothing was changed", Do: "replctl status"}
	}
	switch {
	case c.Master == "":
		return refuse("no_master", "the cluster has no master yet", "nothing was set up")
	case to == c.Master:
		return FailoverPlan{}, &fault.Error{Kind: fault.Usage, Code: "is_master", What: to + " is the master already", Cause: "a switchover makes a slave the master",
			State: "nothing was changed", Do: "replctl status"}
	case to != "" && c.Servers[to] == nil:
		return FailoverPlan{}, &fault.Error{Kind: fault.Usage, Code: "unknown_server", What: fmt.Sprintf("%q is no slave of cluster %q", to, c.Name),
			Cause: "the name is not among its servers", State: "nothing was changed", Do: "replctl status"}
	case c.Intent != nil:
		return refuse("intent_open", "a "+string(c.Intent.Kind)+" is under way", "")
	case c.ConfirmNeeded != "":
		return refuse("confirmation_needed", "the recorded state must be confirmed first", c.ConfirmNeeded)
	}
	mv := in.View.Servers[c.Master]
	if in.Verdict.State != health.StateAlive || !mv.Reachable() || mv.Last.ReadOnly {
		return refuse("master_not_open", "the master is not known to be alive and open: a switchover needs one, a failover does not",
			strings.Join(in.Verdict.Evidence, "; "))
	}
	name, ps := newDecider(in).switchoverRules(to)
	if len(ps) > 0 {
		return refuse(ps[0].Code, "no switchover is possible", problemText(ps))
	}
	return FailoverPlan{OldMaster: c.Master, Candidate: name, AtRisk: new(uint64)}, nil
}

// carryOut gives the loop an order and waits for the operation's end.
func (l *Loop) carryOut(ctx context.Context, o Order, kind topology.OperationKind) (*topology.Operation, error) {
	before, _, err := l.latest(kind, "")
	if err != nil {
		return nil, err
	}
	select {
	case l.orders <- o:
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w", kind, ctx.Err())
	}
	known := ""
	if before != nil && before.Result != topology.ResultRunning {
		known = before.ID
	}
	return l.awaitEnd(ctx, kind, known)
}

// awaitVerdict waits until it is clear whether the master is lost.
func (l *Loop) awaitVerdict(ctx context.Context, to string) error {
	ctx, cancel := context.WithTimeout(ctx, l.cfg.Policy.HangTimeout+3*time.Second)
	defer cancel()
	for {
		in, r := l.Report()
		if settled, err := l.judgeOrder(in, r, to); settled {
			return err
		}
		select {
		case <-ctx.Done():
			return &fault.Error{Kind: fault.Refused, Code: "verdict_open", What: "it is not certain that the master is lost",
				Server: in.View.Cluster.Master, Cause: strings.Join(in.Verdict.Evidence, "; "), State: "nothing was changed", Do: "replctl status"}
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// judgeOrder says whether an order can be taken; settled is false while the
// verdict about the master is open.
func (l *Loop) judgeOrder(in Input, r Report, to string) (settled bool, err error) {
	c := in.View.Cluster
	refuse := func(code, what, cause, do string) (bool, error) {
		return true, &fault.Error{Kind: fault.Refused, Code: code, What: what, Server: c.Master, Cause: cause, State: "nothing was changed", Do: do}
	}
	if c.Master == "" {
		return refuse("no_master", "the cluster has no master yet", "nothing was set up", "replctl init master NAME --address HOST:PORT")
	}
	if to != "" {
		if s := c.Servers[to]; s == nil || to == c.Master {
			return true, &fault.Error{Kind: fault.Usage, Code: "unknown_server", What: fmt.Sprintf("%q is no slave of cluster %q", to, c.Name),
				Cause: "only a slave can be promoted", State: "nothing was changed", Do: "replctl status"}
		}
	}
	if c.Intent != nil {
		return true, nil
	}
	switch in.Verdict.State {
	case health.StateDead, health.StateHung:
		if sr := r.Servers[to]; to != "" && !sr.Promotable {
			return refuse("not_promotable", to+" cannot be promoted", problemText(sr.Because), "replctl status")
		}
		if ps := withOrder(in, to).beginRules(); len(ps) > 0 {
			return refuse(ps[0].Code, "no failover is possible", problemText(ps), "replctl status")
		}
		return true, nil
	case health.StateAlive:
		return refuse("live_master", "the master is alive: a failover would lose what it commits meanwhile",
			"it answered repld "+in.View.Now.Sub(in.View.Servers[c.Master].Last.At).Round(time.Millisecond).String()+" ago", "replctl switchover")
	case health.StateCutOff, health.StateVetoed:
		return refuse("master_"+string(in.Verdict.State), "the master is not known to be lost", strings.Join(in.Verdict.Evidence, "; "), "replctl status")
	}
	return false, nil
}

func withOrder(in Input, to string) *decider {
	in.Order = &Order{To: to}
	return newDecider(in)
}

func problemText(ps []Problem) string {
	words := make([]string, len(ps))
	for i, p := range ps {
		words[i] = strings.TrimSpace(p.Server + " " + p.Code + ": " + p.Text)
	}
	return strings.Join(words, "; ")
}

// blockedFor is how long a failover by hand may be held back before the person
// is told, although it stays open.
const blockedFor = 3 * time.Second

// awaitEnd waits for the failover that is, or is about to be, under way; known
// is one that had ended before.
func (l *Loop) awaitEnd(ctx context.Context, kind topology.OperationKind, known string) (*topology.Operation, error) {
	var heldSince time.Time
	begun := time.Now()
	for {
		op, running, err := l.latest(kind, known)
		if err != nil || op != nil && !running {
			return op, err
		}
		in, r := l.Report()
		if op == nil && in.View.Cluster.Intent == nil && time.Since(begun) > blockedFor {
			return nil, &fault.Error{Kind: fault.Refused, Code: "not_begun", What: "the " + string(kind) + " was not begun", Server: in.View.Cluster.Master,
				Cause: strings.Join(append(in.Verdict.Evidence, problemText(r.Problems)), "; "), State: "nothing was changed", Do: "replctl status"}
		}
		if r.Health != Blocked {
			heldSince = time.Time{}
		} else if heldSince.IsZero() {
			heldSince = time.Now()
		} else if time.Since(heldSince) > blockedFor {
			return op, &fault.Error{Kind: fault.Refused, Code: "blocked", What: "the " + string(kind) + " is held back by a safety rule", Server: in.View.Cluster.Master,
				Cause: problemText(r.Problems), State: "it stays open and goes on by itself once that is mended", Do: "replctl status"}
		}
		select {
		case <-ctx.Done():
			return op, &fault.Error{Kind: fault.Timeout, Code: "timeout", What: "the " + string(kind) + " has not ended yet",
				Cause: problemText(r.Problems), State: "it goes on in repld", Do: "replctl history", Err: ctx.Err()}
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// latest finds the newest operation of a kind, other than the known one,
// and whether it still runs; nil if there is none yet.
func (l *Loop) latest(kind topology.OperationKind, known string) (*topology.Operation, bool, error) {
	ops, err := l.cfg.Journal.Operations(l.cfg.Cluster, 20)
	if err != nil {
		return nil, false, err
	}
	i := slices.IndexFunc(ops, func(o topology.Operation) bool { return o.Kind == kind })
	if i < 0 || ops[i].ID == known {
		return nil, true, nil
	}
	return &ops[i], ops[i].Result == topology.ResultRunning, nil
}

// FailoverPlan is what an order to fail over would do.
type FailoverPlan struct {
	OldMaster, Candidate string
	// AtRisk is how many transactions seen on the old master the candidate lacks;
	// nil if unknown.
	AtRisk *uint64
	// Running is true if a failover is under way already.
	Running bool
}

// PlanFailover says what [Loop.Failover] would do, or why it would be refused.
func (l *Loop) PlanFailover(ctx context.Context, to string) (FailoverPlan, error) {
	if err := l.awaitVerdict(ctx, to); err != nil {
		return FailoverPlan{}, err
	}
	in, r := l.Report()
	p := FailoverPlan{OldMaster: in.View.Cluster.Master, Candidate: cmpOr(to, r.Forecast.Candidate), Running: in.View.Cluster.Intent != nil}
	if sv := in.View.Servers[p.Candidate]; sv != nil {
		p.AtRisk = sv.Missing
		if in.View.Cluster.DurabilityState == topology.DurabilityArmed {
			p.AtRisk = new(uint64)
		}
	}
	return p, nil
}
