package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/repld/repld/binlog"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/internal/provision"
	"github.com/repld/repld/topology"
)

// sameness is what came of comparing one transaction on two servers.
type sameness int

const (
	same sameness = iota
	differs
	// incomparable: one of the two has it no longer in its binary log.
	incomparable
)

// findPatience bounds the search for a transaction, for which a server reads a
// whole binary log file.
const findPatience = time.Minute

// Compare implements [failover.Rejoiner].
func (r *rejoiner) Compare(ctx context.Context, cluster, server string, g gtid.GTID) error {
	c := r.g.store.Cluster(cluster)
	if c.Servers[server] == nil {
		return nil
	}
	is, why, err := r.compare(ctx, c, server, g)
	if err != nil {
		return err
	}
	switch is {
	case incomparable:
		r.g.log.Info("a former master's last transaction cannot be compared", logServer, server, "gtid", g, logWhy, why)
	case differs:
		return r.operation(c, server, why, func(op *topology.Operation) error { return r.reused(ctx, c, server, g, op) })
	}
	return nil
}

// compare looks whether transaction g is the same one on a server and on the
// master: by when it began, which replication keeps.
func (r *rejoiner) compare(ctx context.Context, c *topology.Cluster, server string, g gtid.GTID) (sameness, string, error) {
	before := gtid.At(c.Lineage.Before(g))
	var began [2]time.Time
	for i, name := range []string{server, c.Master} {
		s := c.Servers[name]
		login := r.g.members.target(*s)
		tx, err := binlog.Find(ctx, binlog.Options{
			Address: login.Address, User: login.User, Password: login.Password, TLS: login.TLS, Identity: &s.Identity, Silence: findPatience,
		}, before, g)
		if errors.Is(err, binlog.ErrNotInBinlog) || errors.Is(err, binlog.ErrPurged) || errors.Is(err, binlog.ErrDiverged) {
			return incomparable, fmt.Sprintf("%s on %s: %v", g, name, err), nil
		}
		if err != nil {
			return incomparable, "", fmt.Errorf("compare %s of %s: %w", g, name, err)
		}
		began[i] = tx.Began
	}
	if !began[0].Equal(began[1]) {
		return differs, fmt.Sprintf("%s of %s began at %s, %s of %s at %s: numbers were given out again on a server that was restored from an older copy",
			g, server, began[0].UTC().Format(time.DateTime), g, c.Master, began[1].UTC().Format(time.DateTime)), nil
	}
	return same, "", nil
}

// forkOf finds the last transaction that a server which has given out numbers
// again, g among them, shares with the master. Zero if none is found to be.
func (r *rejoiner) forkOf(ctx context.Context, c *topology.Cluster, server string, g gtid.GTID) (gtid.GTID, error) {
	low, high := gtid.GTID{}, g // the same, and not the same
	for high.Seq-low.Seq > 1 {
		mid := c.Lineage.At(g, low.Seq+(high.Seq-low.Seq)/2)
		is, _, err := r.compare(ctx, c, server, mid)
		switch {
		case err != nil:
			return gtid.GTID{}, err
		case is == differs:
			high = mid
		case is == same:
			low = mid
		default: // what is older than the binary logs is not looked for
			if low.IsZero() {
				low = gtid.GTID{Domain: mid.Domain, Server: mid.Server, Seq: mid.Seq}
				continue
			}
			return gtid.GTID{}, nil
		}
	}
	if low.IsZero() {
		return low, nil
	}
	if is, _, err := r.compare(ctx, c, server, low); err != nil || is != same {
		return gtid.GTID{}, err
	}
	return low, nil
}

// reused saves what a server wrote under numbers that the cluster has given to
// others, and keeps it out.
func (r *rejoiner) reused(ctx context.Context, c *topology.Cluster, server string, g gtid.GTID, op *topology.Operation) error {
	fork, err := r.forkOf(ctx, c, server, g)
	if err != nil {
		return err
	}
	from, err := r.reseed.endpoint(c.Name, *c.Servers[server])
	if err != nil {
		return err
	}
	var index provision.ErrantIndex
	err = step(op, "save_extra", server, func() (err error) {
		// All that follows the fork, whatever the master says it has under these names.
		index, err = provision.SaveErrant(ctx, provision.ErrantRequest{Cluster: c.Name, Server: server, From: from, Fork: fork, DataDir: r.dataDir, Now: time.Now()})
		return err
	})
	if err != nil {
		return err
	}
	extra := index.GTIDs()
	op.Result = topology.ResultBlocked
	op.Detail = "kept out as diverged: it was restored from an older copy and has given numbers out again"
	op.Evidence = append(op.Evidence, fmt.Sprintf("%d transactions after %s were saved in %s", len(extra), fork, index.Dir))
	r.g.log.Warn("a restored former master has diverged and is kept out", logServer, server, "fork", fork, "saved", index.Dir)
	if len(extra) == 0 {
		extra = []gtid.GTID{g}
	}
	return r.g.store.Apply(topology.MarkDiverged{Cluster: c.Name, Server: server, Extra: gtid.StateOf(extra...).List()})
}
