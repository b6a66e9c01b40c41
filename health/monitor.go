package health

import (
	"context"
	"sync"
	"time"

	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// MonitorConfig paces a monitor.
type MonitorConfig struct {
	// Interval is the time between probes of one server; Timeout bounds each.
	Interval, Timeout time.Duration
	// NewProber makes the prober of a server. The monitor closes it.
	NewProber func(cluster string, s topology.Server) Prober
	// Lag computes how far a server is behind the given master, from their
	// observations; nil leaves the view's lag unknown.
	Lag func(s, master *ServerView, now time.Time)
}

// Urgent pacing: while something is wrong with the master, or an intent is
// open, servers are probed each urgentInterval so that a failover does not wait
// for the next ordinary probe.
const (
	urgentInterval = 8 * time.Millisecond
	stallLimit     = 500 * time.Millisecond
	wakeInterval   = 100 * time.Millisecond
)

// Monitor watches the servers of one cluster: a worker with a connection of
// its own for each, so that one stuck server never delays another.
type Monitor struct {
	cfg     MonitorConfig
	started time.Time
	changed chan struct{}

	mu      sync.Mutex
	cluster *topology.Cluster
	servers map[string]*ServerView
	workers map[string]*worker
	stream  StreamView
	urgent  time.Time // until then
	awake   time.Time
	beat    time.Time
	ctx     context.Context
	wg      sync.WaitGroup
}

// NewMonitor makes a monitor for a cluster; Run starts it.
func NewMonitor(cfg MonitorConfig, c *topology.Cluster, now time.Time) *Monitor {
	return &Monitor{
		cfg: cfg, started: now, awake: now, beat: now, cluster: c,
		changed: make(chan struct{}, 1),
		servers: map[string]*ServerView{}, workers: map[string]*worker{},
	}
}

// Run watches until the context ends, then waits for all workers.
func (m *Monitor) Run(ctx context.Context) {
	m.mu.Lock()
	m.ctx = ctx
	m.reconcile()
	m.mu.Unlock()
	ticker := time.NewTicker(wakeInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			m.mu.Lock()
			for _, w := range m.workers {
				w.cancel()
			}
			m.mu.Unlock()
			m.wg.Wait()
			return
		case <-ticker.C:
			m.keepAwake(time.Now())
		}
	}
}

// keepAwake notices that the daemon itself did not run for a while.
func (m *Monitor) keepAwake(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now.Sub(m.beat) > stallLimit {
		m.awake = now
	}
	m.beat = now
}

// Changed receives after each observation and each change of the stream;
// bursts are merged into one.
func (m *Monitor) Changed() <-chan struct{} { return m.changed }

func (m *Monitor) notify() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// SetCluster tells the monitor what is recorded now. Workers are started and
// ended accordingly; a server whose address or identity changed gets a new one.
func (m *Monitor) SetCluster(c *topology.Cluster) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cluster = c
	if m.ctx != nil && m.ctx.Err() == nil {
		m.reconcile()
	}
	m.notify()
}

// reconcile starts and ends workers. The lock is held.
func (m *Monitor) reconcile() {
	for name, w := range m.workers {
		s := m.cluster.Servers[name]
		if s == nil || s.Address != w.server.Address || s.Identity != w.server.Identity {
			w.cancel()
			delete(m.workers, name)
			delete(m.servers, name)
		}
	}
	for name, s := range m.cluster.Servers {
		if m.workers[name] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(m.ctx)
		w := &worker{m: m, server: *s, cancel: cancel, kick: make(chan chan struct{}, 16)}
		w.prober = m.cfg.NewProber(m.cluster.Name, *s)
		m.workers[name] = w
		m.servers[name] = &ServerView{}
		m.wg.Go(func() { w.run(ctx) })
	}
}

// Hurry makes the monitor probe at its urgent pace for the given time.
func (m *Monitor) Hurry(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hurry(time.Now().Add(d))
}

func (m *Monitor) hurry(until time.Time) {
	if until.After(m.urgent) {
		wake := m.urgent.Before(time.Now())
		m.urgent = until
		if wake {
			for _, w := range m.workers {
				w.poke(nil)
			}
		}
	}
}

// Refresh probes servers anew and waits until each was observed by a probe
// that began after the call, or the context ends.
func (m *Monitor) Refresh(ctx context.Context, names ...string) {
	var waits []chan struct{}
	m.mu.Lock()
	for _, name := range names {
		if w := m.workers[name]; w != nil {
			done := make(chan struct{})
			if w.poke(done) {
				waits = append(waits, done)
			}
		}
	}
	m.mu.Unlock()
	for _, done := range waits {
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}

// View takes a snapshot.
func (m *Monitor) View() *View {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	v := &View{
		Now: now, Cluster: m.cluster, Stream: m.stream, Started: m.started, AwakeSince: m.awake,
		Servers: make(map[string]*ServerView, len(m.servers)),
	}
	for name, s := range m.servers {
		c := *s
		if master := m.servers[m.cluster.Master]; m.cfg.Lag != nil && master != nil {
			m.cfg.Lag(&c, master, now)
		}
		v.Servers[name] = &c
	}
	return v
}

// StreamUp says that the binlog stream of a server is connected.
func (m *Monitor) StreamUp(server string, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stream.Server != server {
		m.stream = StreamView{Server: server}
	}
	m.stream.Connected, m.stream.Since, m.stream.Err, m.stream.LastEvent = true, at, "", at
	m.notify()
}

// StreamEvent says that the stream received a heartbeat (g is zero) or the end
// of a transaction.
func (m *Monitor) StreamEvent(server string, at time.Time, g gtid.GTID, file string, pos uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stream.Server != server {
		return
	}
	m.stream.LastEvent = at
	if !g.IsZero() {
		m.stream.Last, m.stream.LastTx = g, at
	}
	if file != "" {
		m.stream.File, m.stream.Pos = file, pos
	}
}

// StreamDown says that the stream of a server broke: often the first symptom,
// so every server is asked at once.
func (m *Monitor) StreamDown(server string, at time.Time, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stream.Server != server {
		m.stream = StreamView{Server: server}
	}
	if m.stream.Connected || m.stream.Since.IsZero() {
		m.stream.Connected, m.stream.Since = false, at
		m.hurry(at.Add(time.Second))
	}
	m.stream.Err = err.Error()
	m.notify()
}
