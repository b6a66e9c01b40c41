package app

import (
	"context"
	"fmt"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/topology"
)

// Failover implements [api.Changer].
func (ch *changer) Failover(ctx context.Context, cluster string, r api.FailoverRequest, _ api.Progress) (*api.Result, error) {
	g, err := ch.guardOf(cluster)
	if err != nil {
		return nil, err
	}
	plan, err := g.loop.PlanFailover(ctx, r.To)
	if err != nil {
		return nil, err
	}
	if r.DryRun {
		return &api.Result{Plan: failoverPlan(plan)}, nil
	}
	if !r.Confirmed {
		return nil, &fault.Error{Kind: fault.Unconfirmed, Code: "not_confirmed", What: failoverPlan(plan).Question, Cause: "it changes the master",
			State: "nothing was changed", Do: "answer yes, or give --yes"}
	}
	op, err := g.loop.Failover(ctx, r.To, r.AcceptLoss)
	if err != nil {
		return nil, err
	}
	if op.Result != topology.ResultDone {
		return nil, &fault.Error{Kind: fault.Failed, Code: string(op.Result), What: "the failover ended without a new master", Server: op.OldMaster,
			Cause: op.Detail, State: "the slaves follow the old master again as soon as it answers", Do: "replctl history " + op.ID}
	}
	return &api.Result{Changed: true, Operation: op.ID, Text: fmt.Sprintf("%s is the master of %s now", op.NewMaster, cluster)}, nil
}

// failoverPlan says what a failover would do.
func failoverPlan(p failover.FailoverPlan) *api.Plan {
	risk := "an unknown number of transactions of the old master may be lost"
	if p.AtRisk != nil {
		risk = fmt.Sprintf("%d transactions seen on the old master would be lost", *p.AtRisk)
	}
	var warnings []string
	if p.AtRisk == nil || *p.AtRisk > 0 {
		warnings = []string{risk}
	}
	return &api.Plan{
		Question: fmt.Sprintf("Promote %s in place of %s?", p.Candidate, p.OldMaster),
		Warnings: warnings,
		Steps: []api.PlanStep{
			{Text: "stop the IO threads of all reachable slaves, so that nobody acknowledges to " + p.OldMaster},
			{Server: p.Candidate, Text: "apply all that it received, and what others have beyond it"},
			{Server: p.OldMaster, Text: "look at it once more; if it answers, nothing is promoted"},
			{Server: p.Candidate, Text: "make it nobody's slave, and writable", Outage: "until then no server accepts writes"},
			{Text: "let the other slaves follow it"},
		},
	}
}
