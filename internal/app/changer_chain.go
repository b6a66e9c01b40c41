package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/topology"
)

// repointLimit is how long a verb waits until slaves follow another server; repld
// goes on by itself.
const repointLimit = 2 * time.Minute

// repointed points a member to another one, and ends as init slave does.
func (ch *changer) repointed(ctx context.Context, cluster, name, source string, begun time.Time, p api.Progress) (*api.Result, error) {
	if err := ch.repoint(ctx, cluster, source, p, name); err != nil {
		return nil, err
	}
	id := ch.operation(topology.Operation{Cluster: cluster, Kind: topology.OpInit, Server: name, StartedAt: begun, Detail: "replicates from " + source + " now"})
	return &api.Result{Changed: true, Operation: id, Text: fmt.Sprintf("%s is a slave of %s", name, source)}, nil
}

// repoint records from whom members are meant to replicate, and waits until they
// do: the loop stops and attaches them. One that cannot be reached, or that a
// person has stopped, follows when it is back.
func (ch *changer) repoint(ctx context.Context, cluster, source string, p api.Progress, names ...string) error {
	in, report, ok := ch.guards.Report(cluster)
	if !ok {
		return api.UnknownCluster(cluster)
	}
	if i := slices.IndexFunc(report.Problems, func(p failover.Problem) bool { return p.Code == "paused" }); i >= 0 {
		return &fault.Error{Kind: fault.Refused, Code: "paused", What: "automatic action is paused", Server: names[0], Cause: report.Problems[i].Text,
			State: "no slave was pointed elsewhere", Do: "replctl resume, then run the command again"}
	}
	var cmds []topology.Command
	for _, name := range names {
		cmds = append(cmds, topology.SetSource{Cluster: cluster, Server: name, Source: source}, topology.OweStart{Cluster: cluster, Server: name})
		p(api.Event{Step: "repoint", Server: name, Status: "start", Text: "replicate from " + source})
	}
	if err := ch.store.Apply(cmds...); err != nil {
		if errors.Is(err, topology.ErrIntentOpen) {
			return &fault.Error{Kind: fault.Refused, Code: "intent_open", What: "a change of master is under way", Server: names[0],
				Cause: "who replicates from whom is about to change", State: "no slave was pointed elsewhere", Do: "wait until it has ended: replctl status", Err: err}
		}
		return err
	}
	for _, name := range names {
		if !in.View.Servers[name].Reachable() { // also if it is nil
			p(api.Event{Step: "repoint", Server: name, Status: "warning", Text: "it cannot be reached: it replicates from " + source + " once it is back"})
			continue
		}
		if s := in.View.Cluster.Servers[name]; s != nil && (s.Held != "" || s.Maintenance) {
			p(api.Event{Step: "repoint", Server: name, Status: "warning", Text: "a person has stopped it or works on it: it replicates from " + source + " after that"})
			continue
		}
		if err := ch.awaitSource(ctx, cluster, name, source); err != nil {
			return err
		}
		p(api.Event{Step: "repoint", Server: name, Status: "done", Text: "it replicates from " + source})
	}
	return nil
}

// orphan points the slaves of a relay that is about to be removed to its source.
func (ch *changer) orphan(ctx context.Context, cluster, relay string, p api.Progress) error {
	c := ch.store.Cluster(cluster)
	children := c.Children(relay)
	if len(children) == 0 || c.Master == relay {
		return nil
	}
	return ch.repoint(ctx, cluster, c.Servers[relay].Source, p, children...)
}

// awaitSource waits until a slave is seen replicating from a server.
func (ch *changer) awaitSource(ctx context.Context, cluster, name, source string) error {
	begun := time.Now()
	for {
		in, report, ok := ch.guards.Report(cluster)
		state := report.Servers[name].State
		if ok && in.View.Cluster.Servers[name] != nil && readsFrom(in.View, name) == source && (state == "streaming" || state == "catching_up" || state == "lagging") {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("point %s to %s: %w", name, source, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Since(begun) > repointLimit {
			return &fault.Error{Kind: fault.Timeout, Code: "timeout", What: "the server does not replicate from " + source + " yet", Server: name,
				Cause: problemTexts(report.Servers[name].Problems), State: "it is recorded, and repld goes on trying", Do: "replctl status"}
		}
	}
}

// readsFrom names the member that a slave is seen configured to read from.
func readsFrom(v *health.View, name string) string {
	sv := v.Servers[name]
	if !sv.Reachable() || sv.Last.Slave == nil {
		return ""
	}
	return v.Cluster.At(sv.Last.Slave.SourceHost, sv.Last.Slave.SourcePort)
}

// chainFault says why a chained slave cannot read from where it is meant to; "" if
// it can, or is none.
func chainFault(r failover.ServerReport) string {
	for _, p := range r.Problems {
		if p.Code == "source_unusable" {
			return p.Text
		}
	}
	return ""
}
