package app

import (
	"context"
	"time"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/topology"
)

// memory is what the reading verbs need of the state; *topology.Store has it.
type memory interface {
	Cluster(name string) *topology.Cluster
	Operations(cluster string, limit int) ([]topology.Operation, error)
}

// reporter tells what a cluster's loop knows now; ok is false if none runs.
type reporter interface {
	Report(cluster string) (in failover.Input, r failover.Report, ok bool)
}

// service answers the control API.
type service struct {
	memory memory
	// loops is nil while no cluster is watched.
	loops reporter
	// mode and durability are what is configured, for a cluster that is not
	// there yet.
	mode       string
	durability topology.Durability
}

// Status implements [api.Reader].
func (s *service) Status(_ context.Context, cluster string) (*api.Status, error) {
	c := s.memory.Cluster(cluster)
	if c == nil {
		if cluster != api.DefaultCluster {
			return nil, api.UnknownCluster(cluster)
		}
		c = &topology.Cluster{Name: cluster, Durability: s.durability}
	}
	if s.loops != nil {
		if in, r, ok := s.loops.Report(cluster); ok {
			return buildStatus(in.View, r, s.mode), nil
		}
	}
	// Nobody watches it: everything that is observed is unknown.
	v := &health.View{Now: time.Now(), Cluster: c, Servers: map[string]*health.ServerView{}}
	for name := range c.Servers {
		v.Servers[name] = &health.ServerView{}
	}
	return buildStatus(v, failover.Assess(failover.Input{View: v, Verdict: health.Verdict{State: health.StateUnknown}}), s.mode), nil
}

// History implements [api.Reader].
func (s *service) History(_ context.Context, cluster string, limit int) ([]api.Operation, error) {
	list, err := s.operations(cluster, limit)
	if err != nil {
		return nil, err
	}
	out := make([]api.Operation, 0, len(list))
	for i := range list {
		out = append(out, operation(&list[i]))
	}
	return out, nil
}

// Operation implements [api.Reader].
func (s *service) Operation(_ context.Context, cluster, id string) (*api.Operation, error) {
	list, err := s.operations(cluster, 0)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].ID == id {
			op := operation(&list[i])
			return &op, nil
		}
	}
	return nil, api.UnknownOperation(id)
}

// operations are a cluster's; one that was removed keeps its history.
func (s *service) operations(cluster string, limit int) ([]topology.Operation, error) {
	list, err := s.memory.Operations(cluster, limit)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 && cluster != api.DefaultCluster && s.memory.Cluster(cluster) == nil {
		return nil, api.UnknownCluster(cluster)
	}
	return list, nil
}

func operation(o *topology.Operation) api.Operation {
	out := api.Operation{
		ID: o.ID, Kind: string(o.Kind), Result: string(o.Result), Server: word(o.Server), OldMaster: word(o.OldMaster), NewMaster: word(o.NewMaster),
		StartedAt: api.FormatTime(o.StartedAt), DetectedMS: o.DetectedMS, OpenedMS: o.OpenedMS, TotalMS: o.TotalMS, WriteOutageMS: o.WriteOutageMS,
		Steps: make([]api.Step, 0, len(o.Steps)), LostTransactions: o.LostTransactions, RescuedTransactions: o.RescuedTransactions,
		Evidence: append([]string{}, o.Evidence...), Detail: o.Detail,
	}
	if o.Epoch != 0 {
		out.Epoch = &o.Epoch
	}
	for _, s := range o.Steps {
		out.Steps = append(out.Steps, api.Step{Name: s.Name, Server: word(s.Server), MS: s.MS, Result: s.Result, Output: s.Output})
	}
	return out
}

// word is null for a name that is not there.
func word(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
