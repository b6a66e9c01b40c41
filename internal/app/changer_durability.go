package app

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/topology"
)

// Durability implements [api.Changer].
func (ch *changer) Durability(ctx context.Context, cluster string, r api.DurabilityRequest, _ api.Progress) (*api.Result, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	release, err := ch.exclusive(cluster)
	if err != nil {
		return nil, err
	}
	defer release()
	g, err := ch.guardOf(cluster)
	if err != nil {
		return nil, err
	}
	mode := topology.Durability(r.Durability)
	was := ch.store.Cluster(cluster).Durability
	plan, err := g.loop.PlanDurability(mode)
	if err != nil {
		return nil, err
	}
	if r.DryRun {
		return &api.Result{Plan: durabilityPlan(was, mode, plan)}, nil
	}
	begun := time.Now()
	if was != mode {
		set := topology.SetDurability{Cluster: cluster, Durability: mode, At: begun, Promised: plan.Position}
		if err := ch.store.Apply(set); err != nil {
			return nil, err
		}
	}
	if !plan.Waits {
		out := &api.Result{Changed: was != mode, Text: fmt.Sprintf("durability of %s is %s, and so it is arranged on %s", cluster, mode, plan.Master)}
		if len(plan.Ackers) == 0 && mode != topology.Async {
			out.Text = fmt.Sprintf("durability of %s is %s", cluster, mode)
			out.Warnings = []string{"no slave that could be promoted streams: commits wait for nobody until one does"}
		}
		out.Operation = ch.recordMode(cluster, was, mode, begun)
		return out, nil
	}
	id := ch.recordMode(cluster, was, mode, begun)
	for {
		// The report's own view says which mode it judged: it hears of the change later.
		if in, rep := g.loop.Report(); rep.AsConfigured && in.View.Cluster.Durability == mode {
			text := fmt.Sprintf("durability of %s is %s: every commit waits for one of %s", cluster, mode, strings.Join(rep.Ackers, ", "))
			if mode == topology.Async {
				text = fmt.Sprintf("durability of %s is async: commits wait for nobody", cluster)
			}
			return &api.Result{Changed: was != mode, Operation: id, Text: text}, nil
		}
		select {
		case <-ctx.Done():
			return nil, durabilityLate(cluster, mode, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Since(begun) > durabilityPatience {
			return nil, durabilityLate(cluster, mode, nil)
		}
	}
}

// durabilityPatience is how long a change of mode is waited for: longer than any
// re-attachment of a slave takes.
const durabilityPatience = 30 * time.Second

func durabilityLate(cluster string, mode topology.Durability, err error) error {
	return &fault.Error{Kind: fault.Timeout, Code: "timeout", What: fmt.Sprintf("durability of %s is not yet %s on the master", cluster, mode),
		Cause: "an acker is not attached yet, or commits still wait", State: "the mode is recorded, and repld goes on arranging it", Do: "replctl status", Err: err}
}

func (ch *changer) recordMode(cluster string, was, mode topology.Durability, begun time.Time) string {
	if was == mode {
		return ""
	}
	c := ch.store.Cluster(cluster)
	return ch.operation(topology.Operation{Cluster: cluster, Kind: topology.OpDurability, Server: c.Master, Epoch: c.Epoch, StartedAt: begun,
		Evidence: []string{"a person ordered it"}, Detail: fmt.Sprintf("%s -> %s", was, mode)})
}

func durabilityPlan(was, mode topology.Durability, p failover.DurabilityPlan) *api.Plan {
	out := &api.Plan{Steps: []api.PlanStep{}}
	if was != mode {
		out.Steps = append(out.Steps, api.PlanStep{Text: fmt.Sprintf("record durability %s in place of %s", mode, was)})
	}
	switch {
	case !p.Waits:
	case mode == topology.Async:
		out.Steps = append(out.Steps, api.PlanStep{Server: p.Master, Text: "let commits go on without an acker, also those that wait now"})
	default:
		if len(p.Reattach) > 0 {
			out.Steps = append(out.Steps, api.PlanStep{Text: "attach again as ackers: " + strings.Join(p.Reattach, ", ")})
		}
		text := fmt.Sprintf("let every commit wait for one of %s, and go on by itself after %v without an acker", strings.Join(p.Ackers, ", "), p.ServerTimeout)
		if p.ServerTimeout >= failover.Endless {
			text = fmt.Sprintf("let every commit wait for one of %s, however long", strings.Join(p.Ackers, ", "))
		}
		out.Steps = append(out.Steps, api.PlanStep{Server: p.Master, Text: text})
	}
	if mode == topology.Async {
		out.Warnings = append(out.Warnings, "a failover may lose transactions that clients were told OK for")
	}
	return out
}
