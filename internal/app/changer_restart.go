package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
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
	err = ch.restartServer(ctx, g, &s, p)
	done := topology.Operation{Cluster: cluster, Kind: topology.OpRestart, Server: r.Name, Epoch: ch.store.Cluster(cluster).Epoch, StartedAt: begun,
		Evidence: []string{"a person ordered it"}, Detail: quoted(s.RestartCommand), Result: topology.ResultDone}
	if err != nil {
		done.Result, done.Detail = topology.ResultFailed, fault.Brief(err)
		ch.operation(done)
		return nil, err
	}
	return &api.Result{Changed: true, Operation: ch.operation(done), Text: fmt.Sprintf("%s was restarted and is in service again, as %s", r.Name, roleNow(ch.store.Cluster(cluster), r.Name))}, nil
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
		return nil, unknownServer(c.Name, r.Name, "replctl status")
	case r.InPlace && c.Master != r.Name:
		return refuse(fault.Usage, "not_the_master", r.Name+" is not the master", "--in-place is for a master that is not to be replaced", "leave --in-place out")
	case c.Intent != nil:
		return refuse(fault.Refused, "intent_open", "a "+string(c.Intent.Kind)+" of the cluster is under way", "repld may be changing this server right now", "replctl status")
	case s.Joining:
		return refuse(fault.Refused, "joining", r.Name+" is being set up", "its set-up or re-seeding has not ended", "replctl status")
	case s.MustFence:
		return refuse(fault.Refused, "must_fence", "the server has not been fenced yet", "it was the master and has not been seen read-only", "replctl status")
	case len(s.RestartCommand) == 0:
		return refuse(fault.Partly, "restart_needed", "repld does not know how to restart the server", "no restart command is recorded for it",
			"restart it by hand (replctl pause first, if it is the master), or run init again with --restart-command")
	}
	if err := notPaused(g, r.Name); err != nil {
		return nil, err
	}
	command := api.PlanStep{Server: r.Name, Text: "run " + quoted(s.RestartCommand), Outage: "the server is down until it has started again"}
	plan := &api.Plan{Question: "Restart " + r.Name + "?"}
	switch {
	case c.Master != r.Name:
		plan.Warnings = onlyAcker(c, g, r.Name)
		plan.Steps = []api.PlanStep{command, {Server: r.Name, Text: "apply what it had received, and let it follow again"}}
	case r.InPlace:
		if err := isOpen(g, r.Name); err != nil {
			return nil, err
		}
		plan.Question = fmt.Sprintf("Restart the master %s in its place? Nobody can write meanwhile.", r.Name)
		command.Outage = "nobody can write until it has started again and is opened"
		plan.Steps = []api.PlanStep{{Server: r.Name, Text: fmt.Sprintf("take it for no lost master, for %v at most", restartLimit)}, command, {Server: r.Name, Text: "open it again"}}
	default:
		sw, err := g.loop.PlanSwitchover("")
		if err != nil {
			return nil, err
		}
		if c.Durability != topology.Async && len(couldReplace(c, sw.Candidate)) == 0 {
			plan.Warnings = append(plan.Warnings, r.Name+" is then the only acker: commits wait while it is down")
		}
		plan.Question = fmt.Sprintf("Make %s the master in place of %s, and restart that?", sw.Candidate, r.Name)
		plan.Steps = append(switchoverPlan(sw).Steps, command, api.PlanStep{Server: r.Name, Text: "let it follow as a slave; it does not become the master again"})
	}
	return plan, nil
}

// unknownServer refuses a name that no server of the cluster has.
func unknownServer(cluster, name, do string) error {
	return &fault.Error{Kind: fault.Usage, Code: "unknown_server", What: fmt.Sprintf("cluster %s has no server %s", cluster, name),
		Cause: "the name is not among its servers", State: "nothing was changed", Do: do}
}

// onlyAcker warns that commits will wait. That is no refusal, not in lossless
// either: a restart ends by itself.
func onlyAcker(c *topology.Cluster, g *guard, name string) []string {
	_, r := g.loop.Report()
	if c.Durability == topology.Async || len(r.Ackers) != 1 || r.Ackers[0] != name {
		return nil
	}
	return []string{name + " is the only acker: commits wait while it is down"}
}

// isOpen refuses to restart a master in its place that is not in order: repld
// opens again only what it knows to have lost nothing.
func isOpen(g *guard, name string) error {
	in, _ := g.loop.Report()
	mv := in.View.Servers[name]
	if in.Verdict.State == health.StateAlive && mv.Reachable() && !mv.Last.ReadOnly {
		return nil
	}
	return &fault.Error{Kind: fault.Refused, Code: "master_not_open", What: "the master is not known to be alive and open", Server: name,
		Cause: strings.Join(in.Verdict.Evidence, "; "), State: "nothing was changed", Do: "replctl status"}
}

// expectLoss lets the loop take the master's restart for no loss, and returns
// once it does. What it gives ends that; if repld itself ends first, the journaled
// time does.
func (ch *changer) expectLoss(ctx context.Context, g *guard, master string) (end func() error, err error) {
	cluster := g.loop.Cluster()
	if err := ch.store.Apply(topology.AwaitRestart{Cluster: cluster, Until: time.Now().Add(restartLimit)}); err != nil {
		return nil, err
	}
	end = func() error {
		if ctx.Err() != nil {
			return nil
		}
		return ch.store.Apply(topology.AwaitRestart{Cluster: cluster})
	}
	err = await(ctx, g, "the loop's knowledge of the restart", master, func(in failover.Input, _ failover.Report) bool {
		return in.View.Cluster.RestartUntil.After(in.View.Now)
	})
	if err != nil {
		return nil, errors.Join(err, end())
	}
	return end, nil
}

// restartServer runs the command and waits until the server is in service again.
func (ch *changer) restartServer(ctx context.Context, g *guard, s *topology.Server, p api.Progress) (err error) {
	if ch.store.Cluster(g.loop.Cluster()).Master == s.Name {
		var end func() error
		if end, err = ch.expectLoss(ctx, g, s.Name); err != nil {
			return err
		}
		defer func() {
			if endErr := end(); err == nil {
				err = endErr
			}
		}()
	}
	in, rep := g.loop.Report()
	before, served := in.View.Servers[s.Name].LastOK.Started, rep.Servers[s.Name].State
	tell(p, "restart", s.Name, "start", quoted(s.RestartCommand))
	output, err := provision.RunRestart(ctx, s.RestartCommand, restartLimit)
	if err != nil {
		return &fault.Error{Kind: fault.Failed, Code: "restart_failed", What: "the restart command failed", Server: s.Name, Cause: fmt.Sprintf("%v: %s", err, cmp.Or(output, "it said nothing")),
			State: "repld treats the server as it finds it", Do: "see its error log; then replctl status", Err: err}
	}
	ended := time.Now()
	tell(p, "restart", s.Name, "done", "the command has ended")
	held := s.Held != "" || s.Maintenance || served != "writable" && !running(served)
	var seen, anew bool
	err = await(ctx, g, "the server's return", s.Name, func(in failover.Input, rep failover.Report) bool {
		sv := in.View.Servers[s.Name]
		seen = sv.Last.Reach == health.ReachOK && sv.Last.Sent.After(ended)
		anew = seen && (before.IsZero() || sv.Last.Started.Sub(before) >= uptimePrecision)
		state := rep.Servers[s.Name].State
		return anew && (state == "writable" && in.View.Cluster.Master == s.Name || running(state) || held)
	})
	in, _ = g.loop.Report()
	switch {
	case err == nil:
		return nil
	case seen && !anew:
		return &fault.Error{Kind: fault.Failed, Code: "not_restarted", What: "the restart command ended, and the server did not restart", Server: s.Name,
			Cause: fmt.Sprintf("it runs since %s as before; the command said: %s", before.Format(time.RFC3339), cmp.Or(output, "nothing")),
			State: "the server is in service as before", Do: "see that this restarts it: " + quoted(s.RestartCommand), Err: err}
	case !seen:
		return &fault.Error{Kind: fault.Failed, Code: "not_back", What: "the restart command ended, and the server does not answer", Server: s.Name,
			Cause: fmt.Sprintf("%s; the command said: %s", unreachableText(in.View.Servers[s.Name]), cmp.Or(output, "nothing")),
			State: "repld treats the server as it finds it", Do: "see its error log; then replctl status", Err: err}
	}
	return err
}

// quoted joins a command for a text.
func quoted(argv []string) string { return strings.Join(argv, " ") }
