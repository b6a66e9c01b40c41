package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/internal/provision"
	"github.com/repld/repld/topology"
)

func (ch *changer) initSlave(ctx context.Context, cluster string, r api.InitRequest, p api.Progress) (*api.Result, error) {
	begun := time.Now()
	req := provision.SlaveRequest{
		Request: request(cluster, r), Source: r.Slave.Source, Clone: provision.CloneMode(r.Slave.Clone), ReplaceData: r.Slave.ReplaceData,
		Delay: time.Duration(r.Slave.DelayMS) * time.Millisecond, ReplicateDoDB: r.Slave.ReplicateDoDB, SkipErrors: r.Slave.SkipErrors,
	}
	res, err := ch.provisioner(p).InitSlave(ctx, req, func(_ context.Context, s topology.Server) error {
		return ch.store.Apply(topology.PutServer{Cluster: cluster, Server: s})
	})
	if err != nil {
		return nil, err
	}
	if r.DryRun {
		return &api.Result{Plan: planOf(res.Plan)}, nil
	}
	if !res.Changed && res.Repoint == "" {
		return &api.Result{Text: fmt.Sprintf("%s is a slave of %s already: nothing to do", r.Name, cluster)}, nil
	}
	if res.Changed {
		if err := ch.store.SavePending(cluster, r.Name, nil); err != nil {
			return nil, err
		}
	}
	if res.Repoint != "" {
		return ch.repointed(ctx, cluster, r.Name, res.Repoint, begun, p)
	}
	detail := "started from " + res.StartAt.String()
	if res.Copied != nil {
		detail = "copied the master's data; " + detail
	}
	id := ch.operation(topology.Operation{Cluster: cluster, Kind: topology.OpInit, Server: r.Name, StartedAt: begun, Detail: detail})
	return &api.Result{Changed: true, Operation: id, Warnings: warningsOf(res.Plan),
		Text: fmt.Sprintf("%s is a slave of %s", r.Name, res.Server.Source)}, nil
}

// Adopt implements [api.Changer].
func (ch *changer) Adopt(ctx context.Context, cluster string, r api.AdoptRequest, p api.Progress) (*api.Result, error) {
	release, err := ch.exclusive(cluster)
	if err != nil {
		return nil, err
	}
	defer release()
	if c := ch.store.Cluster(cluster); c != nil && c.Servers[r.Name] != nil && (c.ConfirmNeeded != "" || c.Master != r.Name) {
		return ch.adoptKnown(c, r)
	}
	if c := ch.store.Cluster(cluster); c != nil && c.Master == r.Name && c.Servers[r.Name] != nil && r.Address == "" {
		return &api.Result{Plan: planIf(r.DryRun), Text: fmt.Sprintf("%s is the master of %s already: nothing to do", r.Name, cluster)}, nil
	}
	if r.Address == "" { // by its name alone only a server of the cluster is known
		return nil, unknownServer(cluster, r.Name, "replctl status; to take over a set-up that repld does not know give --address and the flags of init")
	}
	begun := time.Now()
	res, err := ch.provisioner(p).Adopt(ctx, provision.AdoptRequest{Request: request(cluster, r.InitRequest)})
	if err != nil {
		return nil, err
	}
	if r.DryRun {
		plan := planOf(res.Plan)
		for _, slave := range res.SlavePlans {
			more := planOf(slave)
			plan.Steps = append(plan.Steps, more.Steps...)
			plan.Warnings = append(plan.Warnings, more.Warnings...)
			if plan.Question == "" {
				plan.Question = more.Question
			}
		}
		return &api.Result{Plan: plan}, nil
	}
	if !res.Changed {
		return &api.Result{Text: fmt.Sprintf("%s is the master of %s already: nothing to do", r.Name, cluster)}, nil
	}
	if err := ch.recordMaster(cluster, &res.MasterResult); err != nil {
		return nil, err
	}
	for _, s := range res.Slaves {
		if err := ch.store.Apply(topology.PutServer{Cluster: cluster, Server: s}); err != nil {
			return nil, err
		}
		if err := ch.store.SavePending(cluster, s.Name, nil); err != nil {
			return nil, err
		}
	}
	id := ch.operation(topology.Operation{Cluster: cluster, Kind: topology.OpAdopt, Server: r.Name, NewMaster: r.Name, Epoch: 1, StartedAt: begun})
	return &api.Result{Changed: true, Operation: id, Text: fmt.Sprintf("%s and its %d slaves are cluster %s now", r.Name, len(res.Slaves), cluster)}, nil
}

// Remove implements [api.Changer].
func (ch *changer) Remove(ctx context.Context, cluster string, r api.RemoveRequest, p api.Progress) (*api.Result, error) {
	release, err := ch.exclusive(cluster)
	if err != nil {
		return nil, err
	}
	defer release()
	if ch.store.Cluster(cluster) == nil {
		return nil, api.UnknownCluster(cluster)
	}
	begun := time.Now()
	req := provision.RemoveRequest{Cluster: cluster, Name: r.Name, PurgeConfig: r.PurgeConfig, Confirmed: r.Confirmed, DryRun: true}
	pv := ch.provisioner(p)
	res, err := pv.Remove(ctx, req)
	if err != nil {
		return nil, err
	}
	if r.DryRun {
		return &api.Result{Plan: planOf(res.Plan), Warnings: res.Warnings}, nil
	}
	// Meanwhile the loop must not attach it again.
	hold := func(joining bool) error {
		return ch.store.Apply(topology.MarkJoining{Cluster: cluster, Server: r.Name, Joining: joining})
	}
	req.DryRun = false
	if r.Confirmed {
		if err := ch.orphan(ctx, cluster, r.Name, p); err != nil {
			return nil, err
		}
		if err := hold(true); err != nil {
			return nil, err
		}
	}
	if res, err = pv.Remove(ctx, req); err != nil {
		if r.Confirmed {
			err = errors.Join(err, hold(false))
		}
		return nil, err
	}
	if err := ch.forget(cluster, r.Name); err != nil {
		return nil, err
	}
	id := ch.operation(topology.Operation{Cluster: cluster, Kind: topology.OpRemove, Server: r.Name, StartedAt: begun})
	return &api.Result{Changed: true, Operation: id, Text: fmt.Sprintf("%s is no member of %s any more", r.Name, cluster), Warnings: res.Warnings}, nil
}

// forget removes a server from the state, and its cluster with the last one.
func (ch *changer) forget(cluster, name string) error {
	if err := ch.store.SavePending(cluster, name, nil); err != nil {
		return err
	}
	if len(ch.store.Cluster(cluster).Servers) > 1 {
		return ch.store.Apply(topology.RemoveServer{Cluster: cluster, Name: name})
	}
	if err := ch.store.Apply(topology.RemoveServer{Cluster: cluster, Name: name}, topology.DropCluster{Name: cluster}); err != nil {
		return err
	}
	return ch.store.DropAccounts(cluster)
}
