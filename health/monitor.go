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
	// Quiet is the time between probes while nothing happens at all; see
	// [Monitor.pause]. Not above Interval means Interval.
	Quiet time.Duration
	// NewProber makes the prober of a server. The monitor closes it.
	NewProber func(cluster string, s topology.Server) Prober
	// Lag computes how far a server is behind the given master, from their
	// observations; nil leaves the view's lag unknown.
	Lag func(s, master *ServerView, now time.Time)
}

// Pacing. While something is wrong with the master, or an intent is open,
// servers are probed each urgentInterval so that a failover does not wait for
// the next ordinary probe. A cluster counts as quiet once nothing has changed
// for quietAfter. The monitor itself runs at least each wakeInterval, and was
// stalled if that came later by stallLimit.
const (
	urgentInterval = 8 * time.Millisecond
	quietAfter     = time.Second
	wakeInterval   = 500 * time.Millisecond
	stallLimit     = 400 * time.Millisecond
)

// Monitor watches the servers of one cluster: a worker with a connection of
// its own for each, so that one stuck server never delays another. All workers
// are set off together: to wake up costs an idle daemon more than to probe.
type Monitor struct {
	cfg     MonitorConfig
	started time.Time
	changed chan struct{}
	wake    chan struct{} // the pace has changed

	mu      sync.Mutex
	cluster *topology.Cluster
	servers map[string]*ServerView
	workers map[string]*worker
	stream  StreamView
	urgent  time.Time // until then
	active  time.Time // since then nothing has changed
	round   time.Time // of probes, when the last one began
	awake   time.Time
	tick    time.Time // when the next one was due
	ctx     context.Context
	wg      sync.WaitGroup
}

// NewMonitor makes a monitor for a cluster; Run starts it.
func NewMonitor(cfg MonitorConfig, c *topology.Cluster, now time.Time) *Monitor {
	return &Monitor{
		cfg: cfg, started: now, awake: now, active: now, tick: now, cluster: c,
		changed: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		servers: map[string]*ServerView{}, workers: map[string]*worker{},
	}
}

// Run watches until the context ends, then waits for all workers.
func (m *Monitor) Run(ctx context.Context) {
	m.mu.Lock()
	m.ctx = ctx
	m.reconcile()
	m.mu.Unlock()
	timer := time.NewTimer(0)
	defer timer.Stop()
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
		case <-timer.C:
		case <-m.wake:
		}
		timer.Reset(m.beat(time.Now()))
	}
}

// beat sets the workers off if it is time, and says when to be called again.
// Whoever waits for changes is woken with them, because some judgements change
// by the passing of time alone.
func (m *Monitor) beat(now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now.Sub(m.tick) > stallLimit {
		m.awake = now // the daemon itself did not run for a while
	}
	pause := m.pause(now)
	if now.Sub(m.round) >= pause {
		m.round = now
		for _, w := range m.workers {
			w.setOff()
		}
		m.notify()
	}
	next := max(min(m.round.Add(pause).Sub(now), wakeInterval), time.Millisecond)
	m.tick = now.Add(next)
	return next
}

// pause is the time between two rounds of probes. It is Quiet only if nothing
// has changed for a while, every server answers, and the stream, by which the
// master's death is seen at once, is connected. The lock is held.
func (m *Monitor) pause(now time.Time) time.Duration {
	if now.Before(m.urgent) {
		return urgentInterval
	}
	if m.cfg.Quiet <= m.cfg.Interval || !m.quiet(now) {
		return m.cfg.Interval
	}
	return m.cfg.Quiet
}

func (m *Monitor) quiet(now time.Time) bool {
	if now.Sub(m.active) < quietAfter || m.cluster.Intent != nil || !m.stream.Connected || m.stream.Server != m.cluster.Master {
		return false
	}
	for _, sv := range m.servers {
		if sv.Last.Reach != ReachOK {
			return false
		}
	}
	return true
}

// stir notes that something has changed, and ends a quiet pause. The lock is
// held.
func (m *Monitor) stir(now time.Time) {
	was := now.Sub(m.active) >= quietAfter
	m.active = now
	if was {
		m.repace()
	}
}

// repace makes Run look at the pace anew.
func (m *Monitor) repace() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Changed receives when an observation or the stream shows something new, and
// at each round of probes; bursts are merged into one.
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
		w := &worker{m: m, server: *s, cancel: cancel, kick: make(chan chan struct{}, 16), beat: make(chan struct{}, 1)}
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
		calm := m.urgent.Before(time.Now())
		m.urgent = until
		if calm {
			m.repace()
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
		m.stir(at)
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
