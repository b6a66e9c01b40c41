package app

import (
	"context"
	"fmt"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/topology"
)

// Switchover implements [api.Changer].
func (ch *changer) Switchover(ctx context.Context, cluster string, r api.SwitchoverRequest, _ api.Progress) (*api.Result, error) {
	release, err := ch.exclusive(cluster)
	if err != nil {
		return nil, err
	}
	defer release()
	g, err := ch.guardOf(cluster)
	if err != nil {
		return nil, err
	}
	plan, err := g.loop.PlanSwitchover(r.To)
	if err != nil {
		return nil, err
	}
	if r.DryRun {
		return &api.Result{Plan: switchoverPlan(plan)}, nil
	}
	if !r.Confirmed {
		return nil, &fault.Error{Kind: fault.Unconfirmed, Code: "not_confirmed", What: switchoverPlan(plan).Question,
			State: "nothing was changed", Do: "answer yes, or give --yes"}
	}
	op, err := g.loop.Switchover(ctx, r.To)
	if err != nil {
		return nil, err
	}
	if op.Result != topology.ResultDone {
		return nil, &fault.Error{Kind: fault.Failed, Code: string(op.Result), What: "the switchover was not done", Server: plan.Candidate,
			Cause: op.Detail, State: switchoverState(op), Do: "replctl history " + op.ID}
	}
	return &api.Result{Changed: true, Operation: op.ID, Text: fmt.Sprintf("%s is the master of %s now, %s its slave", op.NewMaster, cluster, op.OldMaster)}, nil
}

func switchoverState(op *topology.Operation) string {
	if op.Result == topology.ResultRolledBack {
		return op.OldMaster + " is the master as before, and writable"
	}
	return "a failover follows by itself, if it may"
}

func switchoverPlan(p failover.FailoverPlan) *api.Plan {
	return &api.Plan{
		Question: fmt.Sprintf("Make %s the master in place of %s?", p.Candidate, p.OldMaster),
		Steps: []api.PlanStep{
			{Server: p.Candidate, Text: "catch up with " + p.OldMaster},
			{Server: p.OldMaster, Text: "end all client sessions and make it read-only, under a global read lock", Outage: "connections end, and until the new master is open no server accepts writes"},
			{Server: p.Candidate, Text: "apply the last transaction, become nobody's slave and writable"},
			{Text: "let the other slaves, and " + p.OldMaster + ", follow it"},
		},
	}
}

// guardOf gives the guard of a cluster that no other repld manages.
func (ch *changer) guardOf(cluster string) (*guard, error) {
	g := ch.guards.of(cluster)
	if g == nil {
		return nil, api.UnknownCluster(cluster)
	}
	if rival := g.lock.rival(); rival != "" {
		return nil, &fault.Error{Kind: fault.Refused, Code: "managed_by_another", What: "another repld manages cluster " + cluster,
			Cause: rival, State: "nothing was changed", Do: "stop the other repld first"}
	}
	return g, nil
}
