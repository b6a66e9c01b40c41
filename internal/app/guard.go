package app

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/config"
	"github.com/repld/repld/topology"
)

// guard watches over one cluster: a monitor, the stream of its master, the
// cluster's lock on its servers, and the loop that decides. The loop runs only
// while no other repld is seen to manage the cluster.
type guard struct {
	name    string
	store   *topology.Store
	log     *slog.Logger
	policy  failover.Policy
	members *members
	monitor *health.Monitor
	loop    *failover.Loop
	stream  *follower
	lock    *locks
}

func newGuard(name string, store *topology.Store, cfg *config.Config, log *slog.Logger, r reseeder, h *hooks) *guard {
	g := &guard{name: name, store: store, log: log.With(logCluster, name), policy: policy(cfg), members: newMembers(name, store, cfg.DataDir)}
	g.stream = newFollower(g.members, g.log, cfg.Failover.HangTimeout)
	g.monitor = health.NewMonitor(health.MonitorConfig{
		Interval: cfg.Failover.ProbeInterval, Timeout: cfg.Failover.ProbeTimeout, Quiet: quietPause(cfg.Failover),
		NewProber: g.members.prober, Lag: g.stream.lag,
	}, store.Cluster(name), time.Now())
	g.stream.monitor = g.monitor
	g.lock = newLocks(g, instanceName(store, cfg.DataDir))
	g.loop = failover.NewLoop(failover.LoopConfig{
		Cluster: name, Journal: store, Observer: g.monitor, Server: g.members.server,
		Rejoiner: &rejoiner{g: g, dataDir: cfg.DataDir, reseed: r, hooks: h}, Policy: g.policy, Hooks: h, Log: log,
	})
	return g
}

// run guards the cluster until the context ends.
func (g *guard) run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { g.monitor.Run(ctx) })
	wg.Go(func() { g.followChanges(ctx) })
	wg.Go(func() { g.stream.run(ctx) })
	g.lock.run(ctx, g.loop.Run)
	wg.Wait()
	g.members.close()
}

// followChanges tells the monitor and the stream of every change of the state.
func (g *guard) followChanges(ctx context.Context) {
	changed, stop := g.store.Changed()
	defer stop()
	for {
		if c := g.store.Cluster(g.name); c != nil {
			g.monitor.SetCluster(c)
			g.stream.point(c)
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// quietPause is the time between probes while nothing happens: four times the
// ordinary one, but so that what is known of a server that answers stays younger
// than two ordinary pauses and the longest probe, and so that several looks fall
// into hang_timeout.
func quietPause(f config.Failover) time.Duration {
	return min(4*f.ProbeInterval, f.ProbeInterval+f.ProbeTimeout, f.HangTimeout/4)
}
