package app

import (
	"context"
	"fmt"
	"time"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/provision"
	"github.com/repld/repld/topology"
)

// restartLimit is how long a restart command may take, and again how long the
// server may take to be back.
const restartLimit = 2 * time.Minute

// uptimePrecision is how exactly a server's own start is known.
const uptimePrecision = 2 * time.Second

// Restart implements [api.Changer].
func (ch *changer) Restart(ctx context.Context, cluster string, r api.RestartRequest, p api.Progress) (*api.Result, error) {
	release, err := ch.exclusive(cluster)
	if err != nil {
		return nil, err
	}
	defer release()
	g, err := ch.guardOf(cluster)
	if err != nil {
		return nil, err
	}
	c := ch.store.Cluster(cluster)
	plan, err := ch.planRestart(c, g, r)
	if err != nil {
		return nil, err
	}
	switch {
	case r.DryRun:
		return &api.Result{Plan: plan}, nil
	case !r.Confirmed:
		return nil, unconfirmed(plan.Question)
	}
	begun, s := time.Now(), *c.Servers[r.Name]
	if c.Master == r.Name && !r.InPlace {
		tell(p, "switchover", r.Name, "start", "another server becomes the master first")
		op, err := g.loop.Switchover(ctx, "")
		if err != nil {
			return nil, err
		}
		if op.Result != topology.ResultDone {
			return nil, &fault.Error{Kind: fault.Failed, Code: string(op.Result), What: "the switchover before the restart was not done", Server: r.Name,
				Cause: op.Detail, State: switchoverState(op), Do: "replctl history " + op.ID}
		}
		tell(p, "switchover", r.Name, "done", op.NewMaster+" is the master")
	}
	if err := ch.restartServer(ctx, g, &s, p); err != nil {
		return nil, err
	}
	id := ch.operation(topology.Operation{Cluster: cluster, Kind: topology.OpRestart, Server: r.Name, Epoch: ch.store.Cluster(cluster).Epoch, StartedAt: begun,
		Evidence: []string{"a person ordered it"}, Detail: quoted(s.RestartCommand)})
	return &api.Result{Changed: true, Operation: id, Text: fmt.Sprintf("%s was restarted and is in service again, as %s", r.Name, roleNow(ch.store.Cluster(cluster), r.Name))}, nil
}

func tell(p api.Progress, name, server, status, text string) {
	if p != nil {
		p(api.Event{Step: name, Server: server, Status: status, Text: text})
	}
}

func roleNow(c *topology.Cluster, name string) string {
	if c.Master == name {
		return "the master"
	}
	return "a slave"
}

// planRestart says what would be done, or why it is refused.
func (ch *changer) planRestart(c *topology.Cluster, g *guard, r api.RestartRequest) (*api.Plan, error) {
	s := c.Servers[r.Name]
	refuse := func(kind fault.Kind, code, what, cause, do string) (*api.Plan, error) {
		return nil, &fault.Error{Kind: kind, Code: code, What: what, Server: r.Name, Cause: cause, State: "nothing was changed", Do: do}
	}
	switch {
	case s == nil:
		return refuse(fault.Usage, "unknown_server", fmt.Sprintf("cluster %s has no server %s", c.Name, r.Name), "the name is not among its servers", "replctl status")
	case r.InPlace && c.Master != r.Name:
		return refuse(fault.Usage, "not_the_master", r.Name+" is not the master", "--in-place is for a master that is not to be replaced", "leave --in-place out")
	case c.Intent != nil:
		return refuse(fault.Refused, "intent_open", "a "+string(c.Intent.Kind)+" of the cluster is under way", "repld may be changing this server right now", "replctl status")
	case s.Joining:
		return refuse(fault.Refused, "joining", r.Name+" is being set up", "its set-up or re-seeding has not ended", "replctl status")
	case len(s.RestartCommand) == 0:
		return refuse(fault.Partly, "restart_needed", "repld does not know how to restart the server", "no restart command is recorded for it",
			"restart it by hand (replctl pause first, if it is the master), or run init again with --restart-command")
	}
	command := api.PlanStep{Server: r.Name, Text: "run " + quoted(s.RestartCommand), Outage: "the server is down until it has started again"}
	plan := &api.Plan{Question: "Restart " + r.Name + "?"}
	switch {
	case c.Master != r.Name:
		question, err := ch.withoutAcker(c, g, r.Name)
		if err != nil {
			return nil, err
		}
		if question != "" {
			plan.Warnings = append(plan.Warnings, r.Name+" is the only acker: commits wait meanwhile")
		}
		plan.Steps = []api.PlanStep{command, {Server: r.Name, Text: "apply what it had received, and let it follow again"}}
	case r.InPlace:
		plan.Question = fmt.Sprintf("Restart the master %s in its place? Nobody can write meanwhile.", r.Name)
		command.Outage = "nobody can write until it has started again and is opened"
		plan.Steps = []api.PlanStep{{Server: r.Name, Text: fmt.Sprintf("take it for no lost master, for %v at most", restartLimit)}, command, {Server: r.Name, Text: "open it again"}}
	default:
		sw, err := g.loop.PlanSwitchover("")
		if err != nil {
			return nil, err
		}
		plan.Question = fmt.Sprintf("Make %s the master in place of %s, and restart that?", sw.Candidate, r.Name)
		plan.Steps = append(switchoverPlan(sw).Steps, command, api.PlanStep{Server: r.Name, Text: "let it follow as a slave; it does not become the master again"})
	}
	return plan, nil
}

// restartServer runs the command and waits until the server is in service again.
func (ch *changer) restartServer(ctx context.Context, g *guard, s *topology.Server, p api.Progress) (err error) {
	cluster := g.loop.Cluster()
	if ch.store.Cluster(cluster).Master == s.Name {
		if err := ch.store.Apply(topology.AwaitRestart{Cluster: cluster, Until: time.Now().Add(restartLimit)}); err != nil {
			return err
		}
		defer func() {
			if clearErr := ch.store.Apply(topology.AwaitRestart{Cluster: cluster}); err == nil {
				err = clearErr
			}
		}()
	}
	in, _ := g.loop.Report()
	before := in.View.Servers[s.Name].LastOK.Started
	tell(p, "restart", s.Name, "start", quoted(s.RestartCommand))
	output, err := provision.RunRestart(ctx, s.RestartCommand, restartLimit)
	if err != nil {
		return &fault.Error{Kind: fault.Failed, Code: "restart_failed", What: "the restart command failed", Server: s.Name, Cause: fmt.Sprintf("%v: %s", err, output),
			State: "repld treats the server as it finds it", Do: "see its error log; then replctl status", Err: err}
	}
	ended := time.Now()
	tell(p, "restart", s.Name, "done", "the command has ended")
	held := s.Held != "" || s.Maintenance
	return await(ctx, g, "the server's return", s.Name, func(in failover.Input, rep failover.Report) bool {
		sv := in.View.Servers[s.Name]
		if sv.Last.Reach != health.ReachOK || sv.Last.Sent.Before(ended) || !before.IsZero() && sv.Last.Started.Sub(before) < uptimePrecision {
			return false
		}
		state := rep.Servers[s.Name].State
		return state == "writable" && in.View.Cluster.Master == s.Name || running(state) || held
	})
}
