package app

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/internal/provision"
	"github.com/repld/repld/topology"
)

// Rejoin implements [api.Changer]: it lets a stopped slave follow again, and
// re-seeds a diverged or broken one.
func (ch *changer) Rejoin(ctx context.Context, cluster string, r api.RejoinRequest, p api.Progress) (*api.Result, error) {
	release, err := ch.exclusive(cluster)
	if err != nil {
		return nil, err
	}
	defer release()
	c, g := ch.store.Cluster(cluster), ch.guards.of(cluster)
	if c == nil || g == nil {
		return nil, api.UnknownCluster(cluster)
	}
	s := c.Servers[r.Name]
	if s == nil {
		return nil, unknownServer(cluster, r.Name, "replctl status")
	}
	if err := mayRejoin(c, s, r); err != nil {
		return nil, err
	}
	in, report, _ := ch.guards.Report(cluster)
	state := report.Servers[r.Name].State
	sv := in.View.Servers[r.Name]
	switch {
	case !sv.Reachable():
		return nil, &fault.Error{Kind: fault.Failed, Code: "unreachable", What: "the server cannot be reached", Server: r.Name, Cause: sv.Last.Err,
			State: "nothing was changed", Do: "start it; it is brought back by itself"}
	case len(s.Diverged) == 0 && (state == "streaming" || state == "catching_up" || state == "lagging"):
		return &api.Result{Text: r.Name + " follows " + c.Master + " already: nothing to do"}, nil
	case len(s.Diverged) == 0 && state == "stopped":
		return ch.startAgain(ctx, cluster, r)
	case state == "broken" && sv.Last.Slave.SQLErrno == 0 && chainFault(report.Servers[r.Name]) != "":
		return nil, &fault.Error{Kind: fault.Refused, Code: "source_unusable", What: "the server itself is in order, what it replicates from is not", Server: r.Name,
			Cause: chainFault(report.Servers[r.Name]), State: "nothing was changed", Do: "put that one right; or: replctl init slave " + r.Name + " without --source"}
	case (state == "diverged" || alone(s, report)) && !r.DiscardErrant:
		return nil, notDiscarded(c, r.Name, joinGTIDs(report.Servers[r.Name].Errant), "what it alone has is saved first")
	}
	return ch.rejoinByCopy(ctx, g, c, r, p)
}

// alone tells whether a server is seen to have transactions of its own that were
// not saved yet, also one whose set-up was interrupted. (Half of a copy has none:
// what the server had before was saved before.)
func alone(s *topology.Server, r failover.Report) bool {
	return len(r.Servers[s.Name].Errant) > 0 && len(s.Diverged) == 0 && !s.Reseeding
}

// mayRejoin refuses what must not, or cannot, be done.
func mayRejoin(c *topology.Cluster, s *topology.Server, r api.RejoinRequest) error {
	refuse := func(code, what, cause, do string) error {
		return &fault.Error{Kind: fault.Refused, Code: code, What: what, Server: r.Name, Cause: cause, State: "nothing was changed", Do: do}
	}
	switch {
	case c.Master == r.Name:
		return &fault.Error{Kind: fault.Usage, Code: "is_master", What: r.Name + " is the master", Server: r.Name, Cause: "only a slave or a former master can rejoin", State: "nothing was changed", Do: "replctl status"}
	case c.Intent != nil:
		return refuse("intent_open", "a "+string(c.Intent.Kind)+" of the cluster is under way", "repld may be changing this server right now", "wait until it has ended: replctl status")
	case s.MustFence:
		return refuse("must_fence", "the server has not been fenced yet", "it was the master and has not been seen read-only", "replctl status")
	case len(s.Diverged) > 0 && !r.DiscardErrant:
		return notDiscarded(c, r.Name, joinGTIDs(s.Diverged), "look at what was saved")
	}
	return nil
}

// notDiscarded refuses to give up what a server alone has unless that was said.
func notDiscarded(c *topology.Cluster, name, extra, first string) error {
	return &fault.Error{Kind: fault.Refused, Code: "diverged", Server: name, State: "nothing was changed", Cause: extra,
		What: "the server has transactions that the cluster does not have, and somebody may have been told OK for them",
		Do:   fmt.Sprintf("%s under data_dir/errant/%s/%s; then: replctl rejoin %s --discard-errant", first, c.Name, name, name)}
}

func problemTexts(ps []failover.Problem) string {
	words := make([]string, len(ps))
	for i, p := range ps {
		words[i] = p.Text
	}
	return strings.Join(words, "; ")
}

// startAgain lets the loop attach a slave that somebody has stopped.
func (ch *changer) startAgain(ctx context.Context, cluster string, r api.RejoinRequest) (*api.Result, error) {
	if r.DryRun {
		return &api.Result{Plan: &api.Plan{Steps: []api.PlanStep{{Server: r.Name, Text: "apply what it received and let it follow the master again"}}}}, nil
	}
	begun := time.Now()
	if err := ch.store.Apply(topology.OweStart{Cluster: cluster, Server: r.Name}); err != nil {
		return nil, err
	}
	if err := ch.awaitFollowing(ctx, cluster, r.Name, startLimit); err != nil {
		return nil, err
	}
	id := ch.operation(topology.Operation{Cluster: cluster, Kind: topology.OpRejoin, Server: r.Name, StartedAt: begun, Detail: "its threads were started"})
	return &api.Result{Changed: true, Operation: id, Text: r.Name + " follows the master again"}, nil
}

const startLimit = 30 * time.Second

// awaitFollowing waits until a server is seen following the master; limit 0
// waits as long as the context allows.
func (ch *changer) awaitFollowing(ctx context.Context, cluster, name string, limit time.Duration) error {
	begun := time.Now()
	for {
		_, report, ok := ch.guards.Report(cluster)
		if state := report.Servers[name].State; ok && (state == "streaming" || state == "catching_up") {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("rejoin %s: %w", name, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
		if limit > 0 && time.Since(begun) > limit {
			return &fault.Error{Kind: fault.Timeout, Code: "timeout", What: "the server does not follow yet", Server: name, Cause: fmt.Sprintf("waited %s", limit),
				State: "repld goes on trying", Do: "replctl status"}
		}
	}
}

// rejoinByCopy saves what a server has alone and lets the loop make it a copy
// of the master.
func (ch *changer) rejoinByCopy(ctx context.Context, g *guard, c *topology.Cluster, r api.RejoinRequest, p api.Progress) (*api.Result, error) {
	question := fmt.Sprintf("Replace all data on %s with a copy of %s's?", r.Name, c.Master)
	if r.DryRun {
		return &api.Result{Plan: &api.Plan{Question: question, Steps: []api.PlanStep{
			{Server: r.Name, Text: "save the transactions that it alone has under data_dir/errant, unless that was done"},
			{Server: r.Name, Text: "copy the master's data onto it and let it follow the master", Outage: "its data is not there until the copy has ended"},
		}}}, nil
	}
	if !r.Confirmed {
		return nil, &fault.Error{Kind: fault.Unconfirmed, Code: "not_confirmed", What: question, Server: r.Name, Cause: "its data is destroyed by that", State: "nothing was changed",
			Do: "answer yes, or give --yes"}
	}
	begun := time.Now()
	op := topology.Operation{Cluster: c.Name, Kind: topology.OpRejoin, Server: r.Name, Epoch: c.Epoch, StartedAt: begun, Evidence: []string{"ordered by hand"}}
	_, report, _ := ch.guards.Report(c.Name)
	if alone(c.Servers[r.Name], report) {
		if left := ch.applied(ctx, c.Name, r.Name); left != "" {
			op.Evidence = append(op.Evidence, left)
		}
		index, err := (&rejoiner{g: g, dataDir: ch.cfg.DataDir, reseed: ch}).save(ctx, c, r.Name)
		if err != nil {
			return nil, err
		}
		op.Evidence = append(op.Evidence, fmt.Sprintf("%d transactions were saved in %s", len(index.Transactions), index.Dir))
	}
	if err := ch.store.Apply(topology.MarkReseeding{Cluster: c.Name, Server: r.Name, Reseeding: true}); err != nil {
		return nil, err
	}
	p(api.Event{Step: "reseed", Server: r.Name, Status: "start", Text: "copy the data of " + c.Master})
	if err := ch.awaitFollowing(ctx, c.Name, r.Name, 0); err != nil {
		return nil, err
	}
	return &api.Result{Changed: true, Operation: ch.operation(op), Text: r.Name + " is a copy of " + c.Master + " again and follows it"}, nil
}

// applyPatience is how long a server may take to apply what it received before
// its data is given up: only what is in its binary log can be saved.
const applyPatience = 30 * time.Second

// applied waits until a server has applied what it received; it says what is
// left if its SQL thread does not go on.
func (ch *changer) applied(ctx context.Context, cluster, name string) string {
	begun := time.Now()
	for {
		in, _, _ := ch.guards.Report(cluster)
		sv := in.View.Servers[name]
		if sv == nil || !sv.Reachable() || sv.Last.Slave == nil {
			return ""
		}
		domain := in.View.Cluster.Lineage.Domain()
		has, got := sv.Last.SlavePos.Of(domain), sv.Last.Slave.Received.Of(domain)
		switch {
		case got.Seq <= has.Seq:
			return ""
		case sv.Last.Slave.SQL == health.ThreadNo || time.Since(begun) > applyPatience || ctx.Err() != nil:
			return fmt.Sprintf("%d transactions that it received, up to %s, were not applied and are not among the saved ones", got.Seq-has.Seq, got)
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// reseed implements reseeder.
func (ch *changer) reseed(ctx context.Context, cluster, server string) error {
	_, err := ch.provisioner(nil).Reseed(ctx, provision.ReseedRequest{Cluster: cluster, Server: server})
	return err
}

// endpoint implements reseeder.
func (ch *changer) endpoint(cluster string, s topology.Server) (provision.Endpoint, error) {
	return ch.provisioner(nil).CopyEndpoint(cluster, s)
}

// adoptKnown confirms what the servers say: after a promotion that was made
// outside of repld, or with a state file that is older than the servers.
func (ch *changer) adoptKnown(c *topology.Cluster, r api.AdoptRequest) (*api.Result, error) {
	in, _, ok := ch.guards.Report(c.Name)
	sv := in.View.Servers[r.Name]
	if !ok || !sv.Reachable() {
		return nil, &fault.Error{Kind: fault.Failed, Code: "unreachable", What: "the server cannot be reached", Server: r.Name, Cause: sv.Last.Err,
			State: "nothing was changed", Do: "replctl status"}
	}
	refuse := func(code, what, cause string) (*api.Result, error) {
		return nil, &fault.Error{Kind: fault.Refused, Code: code, What: what, Server: r.Name, Cause: cause, State: "nothing was changed", Do: "replctl status"}
	}
	switch {
	case c.Intent != nil:
		return refuse("intent_open", "a "+string(c.Intent.Kind)+" of the cluster is under way", "repld may have opened another server")
	case sv.Last.ReadOnly || sv.Last.Slave != nil:
		return refuse("not_a_master", "the server does not look like a master", "it is read-only, or a slave of another server")
	}
	for name, other := range in.View.Servers {
		if name != r.Name && other.Reachable() && !other.Last.ReadOnly {
			return refuse("two_writable", "another server accepts writes too: "+name, "two servers may have diverged")
		}
	}
	question := fmt.Sprintf("Take %s for the master of %s from now on?", r.Name, c.Name)
	if r.DryRun {
		return &api.Result{Plan: &api.Plan{Question: question, Steps: []api.PlanStep{
			{Server: r.Name, Text: "begin a new era with it as the master"}, {Text: "let the other servers follow it"}}}}, nil
	}
	if !r.Confirmed {
		return nil, &fault.Error{Kind: fault.Unconfirmed, Code: "not_confirmed", What: question, Server: r.Name, Cause: "it changes the master", State: "nothing was changed", Do: "answer yes, or give --yes"}
	}
	begun := time.Now()
	epoch := max(c.Epoch, ch.guards.of(c.Name).lock.epochSeen()) + 1
	era, floor := eraFrom(c, sv.Last.BinlogState, sv.Last.BinlogPos, c.Servers[r.Name].Identity.ServerID, epoch)
	cmds := []topology.Command{topology.RequireConfirmation{Cluster: c.Name},
		topology.FoundEra{Cluster: c.Name, Master: r.Name, Era: era, Floor: floor, At: time.Now()}}
	if err := ch.store.Apply(cmds...); err != nil {
		return nil, err
	}
	id := ch.operation(topology.Operation{Cluster: c.Name, Kind: topology.OpAdopt, Server: r.Name, OldMaster: c.Master, NewMaster: r.Name, Epoch: epoch, StartedAt: begun})
	return &api.Result{Changed: true, Operation: id, Text: fmt.Sprintf("%s is the master of %s, epoch %d", r.Name, c.Name, epoch)}, nil
}

// eraFrom finds where the era of a server began that was promoted outside of
// repld: right after the last transaction that another server wrote.
func eraFrom(c *topology.Cluster, st gtid.State, pos gtid.Position, serverID uint32, epoch uint64) (gtid.Era, gtid.GTID) {
	domain := c.Lineage.Domain()
	floor := gtid.GTID{}
	for _, g := range st.List() {
		if g.Domain == domain && g.Server != serverID && g.Seq > floor.Seq {
			floor = g
		}
	}
	if last := pos.Of(domain); last.Server != serverID {
		floor = last
	}
	return gtid.Era{Epoch: epoch, Domain: domain, Server: serverID, First: floor.Seq + 1}, floor
}
