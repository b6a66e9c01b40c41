package app

import (
	"context"
	"log/slog"
	"sync"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/internal/config"
	"github.com/repld/repld/topology"
)

// guards holds the guard of every cluster that is recorded.
type guards struct {
	store *topology.Store
	cfg   *config.Config
	log   *slog.Logger
	// reseed makes a former master an exact copy of the present one.
	reseed reseeder
	hooks  *hooks

	mu   sync.Mutex
	list map[string]*guarded
}

// guarded is a running guard.
type guarded struct {
	guard  *guard
	cancel context.CancelFunc
	done   chan struct{}
}

func newGuards(store *topology.Store, cfg *config.Config, log *slog.Logger, r reseeder, h *hooks) *guards {
	return &guards{store: store, cfg: cfg, log: log, reseed: r, hooks: h, list: map[string]*guarded{}}
}

// run guards every cluster, also those that are recorded later, until the
// context ends; then it waits for all of them.
func (gs *guards) run(ctx context.Context) {
	changed, stop := gs.store.Changed()
	defer stop()
	for {
		gs.reconcile(ctx)
		select {
		case <-ctx.Done():
			for _, g := range gs.all() {
				<-g.done
			}
			return
		case <-changed:
		}
	}
}

func (gs *guards) all() []*guarded {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	out := make([]*guarded, 0, len(gs.list))
	for _, g := range gs.list {
		out = append(out, g)
	}
	return out
}

// reconcile starts guards for new clusters and ends those of forgotten ones.
func (gs *guards) reconcile(ctx context.Context) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	wanted := map[string]bool{}
	for _, name := range gs.store.Clusters() {
		wanted[name] = true
		if gs.list[name] != nil || ctx.Err() != nil {
			continue
		}
		gctx, cancel := context.WithCancel(ctx)
		g := &guarded{guard: newGuard(name, gs.store, gs.cfg, gs.log, gs.reseed, gs.hooks), cancel: cancel, done: make(chan struct{})}
		gs.list[name] = g
		go func() {
			defer close(g.done)
			g.guard.run(gctx)
		}()
	}
	for name, g := range gs.list {
		if !wanted[name] {
			g.cancel()
			<-g.done
			delete(gs.list, name)
		}
	}
}

// of gives a cluster's guard, nil if it has none.
func (gs *guards) of(cluster string) *guard {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if g := gs.list[cluster]; g != nil {
		return g.guard
	}
	return nil
}

// Report implements reporter.
func (gs *guards) Report(cluster string) (failover.Input, failover.Report, bool) {
	g := gs.of(cluster)
	if g == nil {
		return failover.Input{}, failover.Report{}, false
	}
	in, r := g.loop.Report()
	if rival := g.lock.rival(); rival != "" {
		r.Problems = append([]failover.Problem{{Code: "managed_by_another", Text: "another repld manages this cluster; this one does nothing: " + rival}}, r.Problems...)
		r.Health = failover.Blocked
	}
	return in, r, true
}
