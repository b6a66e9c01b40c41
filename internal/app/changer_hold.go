package app

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/topology"
)

// holdPatience is how long a slave's threads are waited for.
const holdPatience = 30 * time.Second

// slaveOf finds a slave that a person wants to do something with, for the loop
// to do: while it is paused nothing would come of it.
func (ch *changer) slaveOf(cluster, name string) (*topology.Cluster, *topology.Server, *guard, error) {
	g, err := ch.guardOf(cluster)
	if err != nil {
		return nil, nil, nil, err
	}
	c := ch.store.Cluster(cluster)
	s := c.Servers[name]
	switch {
	case s == nil:
		return nil, nil, nil, unknownServer(cluster, name, "replctl status")
	case c.Master == name:
		return nil, nil, nil, &fault.Error{Kind: fault.Refused, Code: "is_master", What: name + " is the master", Server: name,
			Cause: "only a slave can be taken out of service; the cluster would have no master", State: "nothing was changed", Do: "replctl switchover first"}
	case c.Intent != nil:
		return nil, nil, nil, &fault.Error{Kind: fault.Refused, Code: "intent_open", What: "a " + string(c.Intent.Kind) + " of the cluster is under way", Server: name,
			Cause: "repld may be changing this server right now", State: "nothing was changed", Do: "wait until it has ended: replctl status"}
	case s.Joining:
		return nil, nil, nil, &fault.Error{Kind: fault.Refused, Code: "joining", What: name + " is being set up", Server: name,
			Cause: "its set-up or re-seeding has not ended", State: "nothing was changed", Do: "replctl status"}
	}
	return c, s, g, notPaused(g, name)
}

// notPaused refuses what repld would have to do by itself while that is forbidden.
func notPaused(g *guard, name string) error {
	_, report := g.loop.Report()
	i := slices.IndexFunc(report.Problems, func(p failover.Problem) bool { return p.Code == "paused" })
	if i < 0 {
		return nil
	}
	return &fault.Error{Kind: fault.Refused, Code: "paused", What: "automatic action is paused", Server: name, Cause: report.Problems[i].Text,
		State: "nothing was changed", Do: "replctl resume first"}
}

// withoutAcker says what it means if a slave acknowledges no more: a question if
// it is the last one, an error where that would hang every commit.
func (ch *changer) withoutAcker(c *topology.Cluster, g *guard, name string) (question string, err error) {
	_, r := g.loop.Report()
	if c.Durability == topology.Async || !slices.Contains(r.Ackers, name) || len(r.Ackers) > 1 {
		return "", nil
	}
	if c.Durability == topology.Lossless {
		return "", &fault.Error{Kind: fault.Refused, Code: "no_acker", What: name + " is the only acker, and durability is lossless", Server: name,
			Cause: "every commit would wait until it is back", State: "nothing was changed", Do: "bring another slave back first, or replctl durability set semi-sync"}
	}
	return fmt.Sprintf("%s is the only acker: commits will wait for %v and then go on unprotected. Go on?", name, ch.cfg.SemiSync.AckTimeout), nil
}

func unconfirmed(question string) error {
	return &fault.Error{Kind: fault.Unconfirmed, Code: "not_confirmed", What: question, State: "nothing was changed", Do: "answer yes, or give --yes"}
}

// await waits until the loop's report satisfies a condition.
func await(ctx context.Context, g *guard, what, server string, ok func(failover.Input, failover.Report) bool) error {
	end := time.Now().Add(holdPatience)
	for {
		in, r := g.loop.Report()
		if ok(in, r) {
			return nil
		}
		var err error
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(20 * time.Millisecond):
			if time.Now().Before(end) {
				continue
			}
		}
		return &fault.Error{Kind: fault.Timeout, Code: "timeout", What: what + " has not come about yet", Server: server,
			Cause: problemTexts(r.Servers[server].Problems), State: "what is wanted is recorded, and repld goes on", Do: "replctl status", Err: err}
	}
}

// Stop implements [api.Changer].
func (ch *changer) Stop(ctx context.Context, cluster string, r api.StopRequest, _ api.Progress) (*api.Result, error) {
	release, err := ch.exclusive(cluster)
	if err != nil {
		return nil, err
	}
	defer release()
	c, s, g, err := ch.slaveOf(cluster, r.Name)
	if err != nil {
		return nil, err
	}
	held, text := topology.HeldAll, "stop the IO thread, apply all that was received, then stop the SQL thread"
	if r.SQLOnly {
		held, text = topology.HeldSQL, "stop the SQL thread; it goes on receiving and acknowledging"
	}
	if _, rep := g.loop.Report(); s.Held == held && rep.Servers[r.Name].AsHeld {
		return &api.Result{Plan: planIf(r.DryRun), Text: r.Name + " is stopped already: nothing to do"}, nil
	}
	if err := stoppable(g, r.Name); err != nil {
		return nil, err
	}
	plan := &api.Plan{Steps: []api.PlanStep{{Server: r.Name, Text: text}}}
	if !r.SQLOnly {
		if plan.Question, err = ch.withoutAcker(c, g, r.Name); err != nil {
			return nil, err
		}
	}
	switch {
	case r.DryRun:
		return &api.Result{Plan: plan}, nil
	case plan.Question != "" && !r.Confirmed:
		return nil, unconfirmed(plan.Question)
	}
	if err := ch.store.Apply(topology.SetHeld{Cluster: cluster, Server: r.Name, Held: held}); err != nil {
		return nil, err
	}
	if err := await(ctx, g, "the stop", r.Name, func(in failover.Input, rep failover.Report) bool {
		return wants(in, r.Name, held) && rep.Servers[r.Name].AsHeld
	}); err != nil {
		return nil, err
	}
	in, _ := g.loop.Report()
	return &api.Result{Changed: true, Text: fmt.Sprintf("%s is stopped at %s, and stays so until: replctl start %s",
		r.Name, in.View.Servers[r.Name].LastOK.SlavePos, r.Name)}, nil
}

// stoppable refuses to stop what could not be stopped with nothing left to apply.
func stoppable(g *guard, name string) error {
	in, rep := g.loop.Report()
	sv := in.View.Servers[name]
	refuse := func(cause, do string) error {
		return &fault.Error{Kind: fault.Refused, Code: "not_stoppable", What: name + " cannot be stopped in order", Server: name, Cause: cause,
			State: "nothing was changed", Do: do}
	}
	switch {
	case !sv.Reachable():
		return &fault.Error{Kind: fault.Failed, Code: "unreachable", What: "the server cannot be reached", Server: name, Cause: unreachableText(sv),
			State: "nothing was changed", Do: "start the server, then run the command again"}
	case sv.Last.Slave == nil:
		return refuse("it replicates from nobody", "replctl start "+name)
	case sv.Last.Slave.SQLErrno != 0:
		return refuse("it cannot apply what it received: "+problemTexts(rep.Servers[name].Problems), "replctl explain "+name)
	case sv.Last.Slave.IO == health.ThreadNo && sv.Last.Slave.SQL == health.ThreadNo && rep.Servers[name].Unapplied != 0:
		return refuse(fmt.Sprintf("both its threads are down, with %d transactions to apply that a start by hand would drop", rep.Servers[name].Unapplied),
			"replctl start "+name+" applies them; then stop it")
	}
	return nil
}

func unreachableText(sv *health.ServerView) string {
	if sv.Last.Err != "" {
		return sv.Last.Err
	}
	return "it was not observed yet"
}

// Start implements [api.Changer].
func (ch *changer) Start(ctx context.Context, cluster string, r api.StartRequest, _ api.Progress) (*api.Result, error) {
	release, err := ch.exclusive(cluster)
	if err != nil {
		return nil, err
	}
	defer release()
	_, s, g, err := ch.slaveOf(cluster, r.Name)
	if err != nil {
		return nil, err
	}
	in, rep := g.loop.Report()
	sv, state := in.View.Servers[r.Name], rep.Servers[r.Name].State
	switch {
	case s.Held == "" && running(state):
		return &api.Result{Plan: planIf(r.DryRun), Text: r.Name + " replicates already: nothing to do"}, nil
	case s.Maintenance:
		return nil, &fault.Error{Kind: fault.Refused, Code: "maintenance", What: r.Name + " is in maintenance", Server: r.Name, Cause: "repld leaves it alone",
			State: "nothing was changed", Do: "replctl maintenance " + r.Name + " off"}
	case len(s.Diverged) > 0 || state == "diverged" || state == "broken":
		return nil, &fault.Error{Kind: fault.Refused, Code: "not_startable", What: r.Name + " cannot simply be started", Server: r.Name,
			Cause: problemTexts(rep.Servers[r.Name].Problems), State: "nothing was changed", Do: "replctl explain " + r.Name}
	case !sv.Reachable():
		return nil, &fault.Error{Kind: fault.Failed, Code: "unreachable", What: "the server cannot be reached", Server: r.Name, Cause: unreachableText(sv),
			State: "nothing was changed", Do: "start the server, then run the command again"}
	case r.DryRun:
		return &api.Result{Plan: &api.Plan{Steps: []api.PlanStep{{Server: r.Name, Text: "apply what it received, start both threads, and leave them to repld again"}}}}, nil
	}
	if err := ch.store.Apply(topology.SetHeld{Cluster: cluster, Server: r.Name}); err != nil {
		return nil, err
	}
	if err := await(ctx, g, "the start", r.Name, func(in failover.Input, rep failover.Report) bool {
		return wants(in, r.Name, "") && running(rep.Servers[r.Name].State)
	}); err != nil {
		return nil, err
	}
	return &api.Result{Changed: true, Text: r.Name + " replicates again"}, nil
}

// wants tells whether a report already knows of a wish: one from before it would
// be judged by the wish before.
func wants(in failover.Input, name string, held topology.Held) bool {
	s := in.View.Cluster.Servers[name]
	return s != nil && s.Held == held
}

// running tells whether a state is one of a slave that replicates.
func running(state string) bool {
	return state == "streaming" || state == "catching_up" || state == "lagging"
}
