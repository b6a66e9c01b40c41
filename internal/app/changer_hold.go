package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/topology"
)

// holdPatience is how long a slave's threads are waited for.
const holdPatience = 30 * time.Second

// slaveOf finds a slave that a person wants to do something with.
func (ch *changer) slaveOf(cluster, name string) (*topology.Cluster, *topology.Server, *guard, error) {
	g, err := ch.guardOf(cluster)
	if err != nil {
		return nil, nil, nil, err
	}
	c := ch.store.Cluster(cluster)
	s := c.Servers[name]
	switch {
	case s == nil:
		return nil, nil, nil, &fault.Error{Kind: fault.Usage, Code: "unknown_server", What: fmt.Sprintf("cluster %s has no server %s", cluster, name),
			Cause: "the name is not among its servers", State: "nothing was changed", Do: "replctl status"}
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
	return c, s, g, nil
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
	if err := await(ctx, g, "the stop", r.Name, func(_ failover.Input, rep failover.Report) bool { return rep.Servers[r.Name].AsHeld }); err != nil {
		return nil, err
	}
	in, _ := g.loop.Report()
	return &api.Result{Changed: true, Text: fmt.Sprintf("%s is stopped at %s, and stays so until: replctl start %s",
		r.Name, in.View.Servers[r.Name].LastOK.SlavePos, r.Name)}, nil
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
		return nil, &fault.Error{Kind: fault.Failed, Code: "unreachable", What: "the server cannot be reached", Server: r.Name, Cause: sv.Last.Err,
			State: "nothing was changed", Do: "start the server, then run the command again"}
	case r.DryRun:
		return &api.Result{Plan: &api.Plan{Steps: []api.PlanStep{{Server: r.Name, Text: "apply what it received, start both threads, and leave them to repld again"}}}}, nil
	}
	if err := ch.store.Apply(topology.SetHeld{Cluster: cluster, Server: r.Name}); err != nil {
		return nil, err
	}
	if err := await(ctx, g, "the start", r.Name, func(_ failover.Input, rep failover.Report) bool { return running(rep.Servers[r.Name].State) }); err != nil {
		return nil, err
	}
	return &api.Result{Changed: true, Text: r.Name + " replicates again"}, nil
}

// running tells whether a state is one of a slave that replicates.
func running(state string) bool {
	return state == "streaming" || state == "catching_up" || state == "lagging"
}

// Maintenance implements [api.Changer].
func (ch *changer) Maintenance(ctx context.Context, cluster string, r api.MaintenanceRequest, _ api.Progress) (*api.Result, error) {
	release, err := ch.exclusive(cluster)
	if err != nil {
		return nil, err
	}
	defer release()
	c, s, g, err := ch.slaveOf(cluster, r.Name)
	if err != nil {
		return nil, err
	}
	if s.Maintenance == r.On && s.Retired == r.On {
		return &api.Result{Plan: planIf(r.DryRun), Text: fmt.Sprintf("maintenance of %s is %s already: nothing to do", r.Name, onOff(r.On))}, nil
	}
	plan := &api.Plan{Steps: []api.PlanStep{{Server: r.Name, Text: "treat it as any other slave again"}}}
	if r.On {
		plan.Steps[0].Text = "let it acknowledge no more, then leave it alone: no action, no promotion, no alarm"
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
	if err := ch.store.Apply(topology.SetMaintenance{Cluster: cluster, Server: r.Name, On: r.On}); err != nil {
		return nil, err
	}
	out := &api.Result{Changed: true, Text: fmt.Sprintf("maintenance of %s is %s", r.Name, onOff(r.On))}
	if r.On {
		warning, err := ch.retire(ctx, g, r.Name)
		if err != nil {
			return nil, err
		}
		if warning != "" {
			out.Warnings = append(out.Warnings, warning)
		}
	}
	return out, nil
}

// retire waits until a server in maintenance acknowledges nothing any more and
// is not the only one that has what it acknowledged. If that does not come about
// it takes the maintenance back; a server that cannot be reached stays in it, but
// a failover will ask for it.
func (ch *changer) retire(ctx context.Context, g *guard, name string) (warning string, err error) {
	begun := time.Now()
	var upTo uint64
	err = await(ctx, g, "the maintenance", name, func(in failover.Input, rep failover.Report) bool {
		c, mv := in.View.Cluster, in.View.Servers[in.View.Cluster.Master]
		if !silent(in, rep, name, begun) {
			return false
		}
		domain := c.Lineage.Domain()
		if upTo == 0 {
			upTo = mv.Last.BinlogPos.Of(domain).Seq
		}
		others := 0
		for other, s := range c.Servers {
			if other == name || other == c.Master || len(s.NeverPromotable()) > 0 {
				continue
			}
			others++
			ov := in.View.Servers[other]
			if rep.Servers[other].Promotable && ov.Reachable() && max(ov.Last.SlavePos.Of(domain).Seq, receivedSeq(ov.Last.Slave, domain)) >= upTo {
				return true
			}
		}
		return others == 0 // then nobody is promoted in its place either
	})
	if err == nil {
		return "", ch.store.Apply(topology.MarkRetired{Cluster: g.loop.Cluster(), Server: name})
	}
	if in, _ := g.loop.Report(); !in.View.Servers[name].Reachable() {
		return name + " cannot be reached, and may still acknowledge commits or be the only one that has some: a failover will wait for it", nil
	}
	f := &fault.Error{Kind: fault.Failed, Code: "not_retired", What: name + " could not be taken out of service", Server: name,
		Cause: "no other slave has all yet that it may have acknowledged", State: "it is in service as before", Do: "replctl status", Err: err}
	if back := ch.store.Apply(topology.SetMaintenance{Cluster: g.loop.Cluster(), Server: name}); back != nil {
		f.State = "it could not be put back into service: " + back.Error()
	}
	return "", f
}

// silent tells whether a server in maintenance is seen, since a time, to
// acknowledge nothing: itself, or by the master, which has no other ackers than
// those that can be asked.
func silent(in failover.Input, rep failover.Report, name string, since time.Time) bool {
	v, c := in.View, in.View.Cluster
	mv, sv, s := v.Servers[c.Master], v.Servers[name], c.Servers[name]
	if s == nil || !s.Maintenance || !mv.Reachable() || mv.Last.Sent.Before(since) || rep.Servers[name].Acks {
		return false
	}
	if sv.Reachable() {
		return sv.Last.Sent.After(since) && !sv.Last.SemiSync.SlaveOn
	}
	known := 0
	for other, ov := range v.Servers {
		if other != c.Master && ov.Reachable() && ov.Last.SemiSync.SlaveOn {
			known++
		}
	}
	return mv.Last.SemiSync.Clients <= known
}

func receivedSeq(st *health.SlaveStatus, domain uint32) uint64 {
	if st == nil {
		return 0
	}
	return st.Received.Of(domain).Seq
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// quoted joins a command for a text.
func quoted(argv []string) string { return strings.Join(argv, " ") }
