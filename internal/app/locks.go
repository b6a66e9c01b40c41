package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/repld/repld/internal/mysql"
	"github.com/repld/repld/topology"
)

// Pacing of the cluster's lock.
const (
	lockEvery   = 2 * time.Second
	lockTimeout = time.Second
)

// locks holds the cluster's named lock on every reachable server, and lets the
// loop run only while no other repld holds it on any of them.
type locks struct {
	g        *guard
	instance string

	mu   sync.Mutex
	held map[string]*mysql.Lock
	// epoch is the highest epoch that repld.cluster was seen to hold.
	epoch uint64
	// other says which other repld is seen to manage the cluster; "" if none is.
	other string
}

func newLocks(g *guard, instance string) *locks {
	return &locks{g: g, instance: instance, held: map[string]*mysql.Lock{}}
}

// instanceName tells this repld from one that runs on a copy of its state.
func instanceName(store *topology.Store, dataDir string) string {
	if abs, err := filepath.Abs(dataDir); err == nil {
		dataDir = abs
	}
	sum := sha256.Sum256([]byte(dataDir))
	return store.Instance() + "-" + hex.EncodeToString(sum[:4])
}

// run keeps the locks, and act running while there is no rival.
func (l *locks) run(ctx context.Context, act func(context.Context)) {
	var wg sync.WaitGroup
	stop := func() {}
	acting := false
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			stop()
			wg.Wait()
			l.release()
			return
		case <-timer.C:
		}
		rival := l.round(ctx)
		switch {
		case rival == "" && !acting && ctx.Err() == nil:
			l.recognise(ctx)
			var actx context.Context
			actx, stop = context.WithCancel(ctx)
			wg.Go(func() { act(actx) })
			acting = true
		case rival != "" && acting:
			l.g.log.Error("another repld manages this cluster: standing back", "other", rival)
			stop()
			wg.Wait()
			acting = false
		}
		timer.Reset(lockEvery)
	}
}

// round takes or checks the lock on every server, all at once, and says who
// else holds it.
func (l *locks) round(ctx context.Context) string {
	c := l.g.store.Cluster(l.g.name)
	if c == nil {
		return ""
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	rival := ""
	for _, s := range c.Servers {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, lockTimeout)
			defer cancel()
			if err := l.keep(ctx, c.ID, *s); errors.Is(err, mysql.ErrManaged) {
				mu.Lock()
				rival = fmt.Sprintf("%s: %v", s.Name, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.other = rival
	for name, lock := range l.held {
		if c.Servers[name] == nil {
			_ = lock.Close()
			delete(l.held, name)
		}
	}
	return rival
}

func (l *locks) keep(ctx context.Context, id string, s topology.Server) error {
	l.mu.Lock()
	lock := l.held[s.Name]
	l.mu.Unlock()
	if lock != nil {
		if lock.Check(ctx) == nil {
			return nil
		}
		_ = lock.Close()
		l.set(s.Name, nil)
	}
	lock, err := mysql.TakeLock(ctx, l.g.members.target(s), id, l.instance, l.g.members.sessionsOf(s))
	if err != nil {
		return err
	}
	l.set(s.Name, lock)
	return nil
}

func (l *locks) set(name string, lock *mysql.Lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lock == nil {
		delete(l.held, name)
		return
	}
	l.held[name] = lock
}

func (l *locks) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, lock := range l.held {
		_ = lock.Close()
		delete(l.held, name)
	}
}

// rival says which other repld manages the cluster, "" if none does.
func (l *locks) rival() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.other
}

// epochSeen is the highest epoch that the servers' repld.cluster was seen to hold.
func (l *locks) epochSeen() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.epoch
}

// recognise compares what is recorded with repld.cluster on the servers: a
// state file that is older than what they say, or was rebuilt, must be confirmed
// by a person before anything is done by itself.
func (l *locks) recognise(ctx context.Context) {
	c := l.g.store.Cluster(l.g.name)
	if c == nil || c.Master == "" || c.ConfirmNeeded != "" {
		return
	}
	for _, name := range c.Names() {
		why := l.contradiction(ctx, c, *c.Servers[name])
		if why == "" {
			continue
		}
		l.g.log.Error("the state file contradicts the servers: automatic action is off", logServer, name, "why", why)
		if err := l.g.store.Apply(topology.RequireConfirmation{Cluster: c.Name, Why: why}); err != nil {
			l.g.log.Error("the journal cannot be written", logError, err)
		}
		return
	}
}

// contradiction says how a server's repld.cluster contradicts the state.
func (l *locks) contradiction(ctx context.Context, c *topology.Cluster, s topology.Server) string {
	ctx, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	conn, err := mysql.Dial(ctx, l.g.members.target(s))
	if err != nil {
		return ""
	}
	defer conn.Close()
	rows, err := mysql.ReadCluster(ctx, conn)
	if err != nil {
		return ""
	}
	for _, row := range rows {
		if row.ClusterID == c.ID {
			l.mu.Lock()
			l.epoch = max(l.epoch, row.Epoch)
			l.mu.Unlock()
		}
		switch {
		case row.ClusterID != c.ID:
		case row.Epoch > c.Epoch+1, row.Epoch == c.Epoch+1 && c.Intent == nil:
			return fmt.Sprintf("repld.cluster on %s says epoch %d with master %s, this state file says epoch %d with master %s: the file is older",
				s.Name, row.Epoch, row.Master, c.Epoch, c.Master)
		case row.Epoch == c.Epoch && row.Master != c.Master:
			return fmt.Sprintf("repld.cluster on %s says that %s is master of epoch %d, this state file says %s", s.Name, row.Master, row.Epoch, c.Master)
		case row.Epoch >= c.Epoch && row.Instance != l.g.store.Instance():
			return fmt.Sprintf("repld.cluster on %s was last written by another repld (%s)", s.Name, row.Instance)
		}
	}
	return ""
}
