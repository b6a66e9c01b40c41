package app

import (
	"context"
	"fmt"
	"time"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/topology"
)

// Pause implements [api.Changer].
func (ch *changer) Pause(_ context.Context, cluster string, r api.PauseRequest, _ api.Progress) (*api.Result, error) {
	c := ch.store.Cluster(cluster)
	if c == nil {
		return nil, api.UnknownCluster(cluster)
	}
	length := time.Duration(r.ForMS) * time.Millisecond
	if r.ForMS < 0 || length > 365*24*time.Hour || length.Milliseconds() != r.ForMS {
		return nil, &fault.Error{Kind: fault.Usage, Code: "bad_pause", What: "a pause cannot have this length", State: "nothing was changed",
			Do: "give --for between 1s and 365d, or leave it out"}
	}
	what := "until: replctl resume"
	var until time.Time
	if length > 0 {
		until = time.Now().Add(length)
		what = "for " + length.String()
	}
	if r.DryRun {
		return &api.Result{Plan: &api.Plan{Steps: []api.PlanStep{{Text: "take no automatic action on cluster " + cluster + " " + what}}}}, nil
	}
	if c.Paused && c.PausedUntil.IsZero() && until.IsZero() {
		return &api.Result{Text: cluster + " is paused already: nothing to do"}, nil
	}
	if err := ch.store.Apply(topology.SetPause{Cluster: cluster, Paused: true, Until: until, At: time.Now()}); err != nil {
		return nil, err
	}
	out := &api.Result{Changed: true, Text: fmt.Sprintf("no automatic action on %s %s", cluster, what)}
	if c.Intent != nil {
		out.Warnings = append(out.Warnings, fmt.Sprintf("the %s that is under way goes on", c.Intent.Kind))
	}
	return out, nil
}

// Resume implements [api.Changer].
func (ch *changer) Resume(_ context.Context, cluster string, r api.ResumeRequest, _ api.Progress) (*api.Result, error) {
	c := ch.store.Cluster(cluster)
	if c == nil {
		return nil, api.UnknownCluster(cluster)
	}
	if !c.Paused && (c.LastFailover.IsZero() || c.Acknowledged.After(c.LastFailover)) {
		return &api.Result{Plan: planIf(r.DryRun), Text: cluster + " is not paused, and no failover waits to be acknowledged: nothing to do"}, nil
	}
	if r.DryRun {
		return &api.Result{Plan: &api.Plan{Steps: []api.PlanStep{{Text: "take automatic action on cluster " + cluster + " again, also within failover.block_window of the last failover"}}}}, nil
	}
	if err := ch.store.Apply(topology.SetPause{Cluster: cluster, At: time.Now()}); err != nil {
		return nil, err
	}
	return &api.Result{Changed: true, Text: "automatic action on " + cluster + " goes on"}, nil
}

// planIf is the plan of nothing for a dry run.
func planIf(dry bool) *api.Plan {
	if dry {
		return &api.Plan{Steps: []api.PlanStep{}}
	}
	return nil
}
