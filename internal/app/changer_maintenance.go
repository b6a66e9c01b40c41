package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/topology"
)

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
		if err := mayBeSilent(c, g, r.Name); err != nil {
			return nil, err
		}
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
	if r.On {
		if err := ch.retire(ctx, g, r.Name); err != nil {
			return nil, err
		}
	}
	return &api.Result{Changed: true, Text: fmt.Sprintf("maintenance of %s is %s", r.Name, onOff(r.On))}, nil
}

// couldReplace lists the servers that could be promoted instead of one, now or
// when they are back. Only they could be opened without what it holds.
func couldReplace(c *topology.Cluster, name string) []string {
	var out []string
	for _, other := range c.Names() {
		if other != name && other != c.Master && len(c.Servers[other].NeverPromotable()) == 0 {
			out = append(out, other)
		}
	}
	return out
}

// mayBeSilent refuses the maintenance of a server that repld does not reach and
// that could still acknowledge commits: a failover would pass over it later. One
// that refuses connections is down, and never connects to its master by itself.
func mayBeSilent(c *topology.Cluster, g *guard, name string) error {
	in, _ := g.loop.Report()
	sv := in.View.Servers[name]
	if sv.Reachable() || sv.Refusals > 0 || c.Durability == topology.Async || len(couldReplace(c, name)) == 0 {
		return nil
	}
	return &fault.Error{Kind: fault.Refused, Code: "acker_unreachable", Server: name, Cause: "repld cannot make sure of that: " + unreachableText(sv),
		What:  name + " must acknowledge no more before it is taken out of service",
		State: "nothing was changed", Do: "stop its server, or let repld reach it, then again"}
}

// retire waits until a server in maintenance acknowledges nothing any more and
// is not the only one that has what it acknowledged; else it takes the
// maintenance back.
func (ch *changer) retire(ctx context.Context, g *guard, name string) error {
	r := retirement{name: name, begun: time.Now()}
	err := await(ctx, g, "the maintenance", name, func(in failover.Input, rep failover.Report) bool { return r.done(in, rep) })
	if err == nil {
		return ch.store.Apply(topology.MarkRetired{Cluster: g.loop.Cluster(), Server: name})
	}
	back := ch.store.Apply(topology.SetMaintenance{Cluster: g.loop.Cluster(), Server: name})
	f := &fault.Error{Kind: fault.Failed, Code: "not_retired", What: name + " could not be taken out of service", Server: name,
		Cause: r.missing, State: "it is in service as before", Do: "replctl status", Err: err}
	if back != nil {
		f.State, f.Err = "it could not be put back into service: "+back.Error(), errors.Join(err, back)
	}
	return f
}

// retirement follows how a server that goes into maintenance ends to matter.
type retirement struct {
	name  string
	begun time.Time
	// silent is when the server was known to acknowledge nothing any more, upTo
	// how far the master was after that: whatever the server has acknowledged is
	// not beyond it. (A position from before could miss what it acknowledged last.)
	silent  time.Time
	upTo    uint64
	known   bool
	missing string // what is still missing, for a person
}

func (r *retirement) done(in failover.Input, rep failover.Report) bool {
	v, c := in.View, in.View.Cluster
	if c.Servers[r.name] == nil || !c.Servers[r.name].Maintenance {
		r.missing = "its maintenance is not recorded yet"
		return false
	}
	if !r.isSilent(in) {
		r.missing = "it still acknowledges commits, or it is not known whether it does"
		return false
	}
	others := couldReplace(c, r.name)
	if len(others) == 0 || c.Durability == topology.Async {
		return true // nobody could be opened without what it has, or nothing was acknowledged
	}
	domain := c.Lineage.Domain()
	if mv := v.Servers[c.Master]; !r.known {
		if !mv.Reachable() || !mv.Last.Sent.After(r.silent) {
			r.missing = "the master was not observed since it acknowledges no more"
			return false
		}
		r.upTo, r.known = mv.Last.BinlogPos.Of(domain).Seq, true
	}
	var behind []string
	for _, other := range others {
		ov := v.Servers[other]
		if !ov.Reachable() || !rep.Servers[other].Promotable {
			behind = append(behind, other+" cannot be promoted")
			continue
		}
		has := ov.Last.SlavePos.Of(domain).Seq
		if st := ov.Last.Slave; st != nil {
			has = max(has, st.Received.Of(domain).Seq)
		}
		if has >= r.upTo {
			return true
		}
		behind = append(behind, fmt.Sprintf("%s lacks %d transactions", other, r.upTo-has))
	}
	r.missing = "no other slave has all yet that it may have acknowledged: " + strings.Join(behind, ", ")
	return false
}

// isSilent tells whether the server acknowledges nothing: it was seen so since
// the maintenance was ordered, or its server is down, and does not connect to
// the master when it starts.
func (r *retirement) isSilent(in failover.Input) bool {
	if !r.silent.IsZero() {
		return true
	}
	switch sv := in.View.Servers[r.name]; {
	case sv.Reachable() && sv.Last.Sent.After(r.begun) && !sv.Last.SemiSync.SlaveOn:
		r.silent = sv.Last.At
	case !sv.Reachable() && sv.Refusals > 0 && sv.Last.Sent.After(r.begun):
		r.silent = sv.Last.At
	case in.View.Cluster.Durability == topology.Async, !sv.Reachable() && len(couldReplace(in.View.Cluster, r.name)) == 0:
		r.silent = in.View.Now
	}
	return !r.silent.IsZero()
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
