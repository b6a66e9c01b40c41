package app

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/internal/provision"
	"github.com/repld/repld/topology"
)

// reseeder makes a server an exact copy of its cluster's master again, so that
// the loop can attach it. What the server alone has is lost by that: the caller
// has saved it.
type reseeder interface {
	reseed(ctx context.Context, cluster, server string) error
	// endpoint is how a server is entered by the account for copies.
	endpoint(cluster string, s topology.Server) (provision.Endpoint, error)
}

// rejoiner brings a former master with extra transactions back, or keeps it out.
type rejoiner struct {
	g       *guard
	dataDir string
	reseed  reseeder
	hooks   *hooks
}

var _ failover.Rejoiner = (*rejoiner)(nil)

// Rejoin implements [failover.Rejoiner].
func (r *rejoiner) Rejoin(ctx context.Context, cluster, server string, extra []gtid.GTID) error {
	c := r.g.store.Cluster(cluster)
	why, work := "its data was given up for a copy of the master's", r.replace
	if !c.Servers[server].Reseeding {
		if len(extra) == 0 {
			return nil // ordered by a view from before the copy ended: it is done
		}
		why, work = fmt.Sprintf("%s has transactions that %s does not have: %s", server, c.Master, joinGTIDs(extra)), r.work
	}
	return r.operation(c, server, why, func(op *topology.Operation) error { return work(ctx, c, server, op) })
}

// operation runs work as an operation of the history.
func (r *rejoiner) operation(c *topology.Cluster, server, why string, work func(*topology.Operation) error) error {
	begun := time.Now()
	op, err := r.g.store.NewOperation(topology.Operation{
		Cluster: c.Name, Kind: topology.OpRejoin, Result: topology.ResultRunning, Server: server, Epoch: c.Epoch, StartedAt: begun,
		Evidence: []string{why},
	})
	if err != nil {
		return err
	}
	err = work(op)
	total := millis(time.Since(begun))
	op.EndedAt, op.TotalMS = time.Now(), &total
	if err != nil {
		op.Result, op.Detail = topology.ResultFailed, err.Error()
	}
	if saveErr := r.g.store.SaveOperation(op); saveErr != nil && err == nil {
		err = saveErr
	}
	r.hooks.ended(r.g.store.Cluster(c.Name), op)
	return err
}

// work saves what the server alone has, then undoes it or keeps the server out.
func (r *rejoiner) work(ctx context.Context, c *topology.Cluster, server string, op *topology.Operation) error {
	if fork := r.fork(c, server); !fork.IsZero() {
		// Has it lost the end of its own era, and written it anew?
		is, why, err := r.compare(ctx, c, server, fork)
		if err != nil {
			return err
		}
		if is == differs {
			op.Evidence = append(op.Evidence, why)
			return r.reused(ctx, c, server, fork, op)
		}
	}
	var index provision.ErrantIndex
	err := step(op, "save_extra", server, func() (err error) {
		index, err = r.save(ctx, c, server)
		return err
	})
	if err != nil {
		return err
	}
	extra := index.GTIDs()
	if len(extra) == 0 {
		// An error, so that it is tried again with growing pauses.
		return fmt.Errorf("rejoin %s: its binary log holds nothing that %s does not have", server, c.Master)
	}
	op.Evidence = append(op.Evidence, fmt.Sprintf("%d transactions were saved in %s", len(extra), index.Dir))
	may, why := failover.MayUndo(c, server, tailOf(index), r.g.policy.UndoUnacknowledged)
	op.Evidence = append(op.Evidence, why...)
	if index.Incomplete != "" {
		may = false
		op.Evidence = append(op.Evidence, index.Incomplete)
	}
	if !may {
		op.Result = topology.ResultBlocked
		op.Detail = "kept out as diverged: " + strings.Join(why, "; ")
		r.g.log.Warn("a former master has diverged and is kept out", logServer, server, "extra", joinGTIDs(extra), "saved", index.Dir, logWhy, why)
		return r.g.store.Apply(topology.MarkDiverged{Cluster: c.Name, Server: server, Extra: extra})
	}
	r.g.log.Warn("a former master's unacknowledged transactions are undone", logServer, server, "extra", joinGTIDs(extra), "saved", index.Dir)
	if err := r.g.store.Apply(topology.MarkReseeding{Cluster: c.Name, Server: server, Reseeding: true}); err != nil {
		return err
	}
	if err := r.replace(ctx, c, server, op); err != nil {
		return err
	}
	op.Detail = fmt.Sprintf("%d transactions that nobody was told OK for were saved and undone", len(extra))
	return nil
}

// save copies the server's own transactions into data_dir/errant.
func (r *rejoiner) save(ctx context.Context, c *topology.Cluster, server string) (provision.ErrantIndex, error) {
	from, err := r.reseed.endpoint(c.Name, *c.Servers[server])
	if err != nil {
		return provision.ErrantIndex{}, err
	}
	return provision.SaveErrant(ctx, provision.ErrantRequest{
		Cluster: c.Name, Server: server, From: from, DataDir: r.dataDir, Now: time.Now(),
		Fork: r.fork(c, server), Has: r.g.monitor.View().Servers[c.Master].LastOK.BinlogState,
	})
}

// fork is the last transaction that a server shares with the cluster.
func (r *rejoiner) fork(c *topology.Cluster, server string) gtid.GTID {
	if b := c.Loss(server); b != nil {
		return b.Fork
	}
	left := c.Lineage.Common(r.g.monitor.View().Servers[server].LastOK.BinlogState, c.Servers[server].Followed)
	if !left.IsZero() && left.Seq < c.Floor.Seq {
		// It was lost more than one era ago: what came after that it never had.
		return left
	}
	return c.Floor
}

// replace makes a server that is journaled as reseeding a copy of the master.
func (r *rejoiner) replace(ctx context.Context, c *topology.Cluster, server string, op *topology.Operation) error {
	err := step(op, "reseed", server, func() error { return r.reseed.reseed(ctx, c.Name, server) })
	if err != nil {
		return err
	}
	op.Result = topology.ResultDone
	return r.g.store.Apply(topology.MarkReseeding{Cluster: c.Name, Server: server})
}

// tailOf is what MayUndo looks at.
func tailOf(index provision.ErrantIndex) failover.Tail {
	t := failover.Tail{Extra: index.GTIDs()}
	for _, tx := range index.Transactions {
		if !tx.BeforeRestart {
			break
		}
		t.BeforeRestart++
	}
	return t
}

// step times one part of an operation.
func step(op *topology.Operation, name, server string, run func() error) error {
	begun := time.Now()
	err := run()
	result := "ok"
	if err != nil {
		result = err.Error()
	}
	op.Steps = append(op.Steps, topology.Step{Name: name, Server: server, MS: millis(time.Since(begun)), Result: result})
	return err
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func joinGTIDs(list []gtid.GTID) string {
	words := make([]string, len(list))
	for i, g := range list {
		words[i] = g.String()
	}
	return strings.Join(words, ", ")
}
