package failover

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// Log keys.
const (
	logCluster = "cluster"
	logServer  = "server"
	logAction  = "action"
	logWhy     = "why"
	logMS      = "ms"
	logError   = "error"
	logEpoch   = "epoch"
	logProblem = "problem"
)

// Journal is where decisions are written before they are carried out;
// *topology.Store implements it.
type Journal interface {
	Cluster(name string) *topology.Cluster
	Apply(cmds ...topology.Command) error
	NewOperation(op topology.Operation) (*topology.Operation, error)
	SaveOperation(op *topology.Operation) error
	Operations(cluster string, limit int) ([]topology.Operation, error)
	Instance() string
}

// Observer is what the loop needs of a monitor; *health.Monitor implements it.
type Observer interface {
	View() *health.View
	Changed() <-chan struct{}
	SetCluster(c *topology.Cluster)
	Refresh(ctx context.Context, names ...string)
	Hurry(d time.Duration)
}

// Rejoiner brings a former master, which has extra transactions and replicates
// from nobody, back into the cluster, or keeps it out: it saves the extra
// transactions first, then undoes them if policy and proof allow, else journals
// the server as diverged. A server that is journaled as reseeding it makes a
// copy of the master: whatever it still has was saved before.
type Rejoiner interface {
	Rejoin(ctx context.Context, cluster, server string, extra []gtid.GTID) error
	// Compare looks whether g, the last transaction of a former master, is the one
	// that the master has under this name. If not, it saves what the server wrote
	// and journals it as diverged.
	Compare(ctx context.Context, cluster, server string, g gtid.GTID) error
}

// LoopConfig is what a loop works with.
type LoopConfig struct {
	Cluster  string
	Journal  Journal
	Observer Observer
	// Server gives the effects on a server.
	Server   func(s topology.Server) Server
	Rejoiner Rejoiner
	Policy   Policy
	// Hooks runs the user's programs; nil if there are none.
	Hooks Hooks
	Log   *slog.Logger
}

// Loop observes, decides, journals, acts, and observes again, for one cluster.
// It never waits for an effect: each runs beside it, at most one on each
// server, and its end is one more event.
type Loop struct {
	cfg     LoopConfig
	results chan result
	orders  chan Order
	wg      sync.WaitGroup

	// Only Run's goroutine touches these.
	effects   map[string]Effect
	announced string
	events    EventsSeen
	order     *Order
	op        *topology.Operation
	lastWhy   string
	outage    outage
	told      alarms

	mu   sync.Mutex
	last Input
	// unwritten is why the journal could not be written the last time, "" if it was.
	unwritten string
}

// outage is what is needed to tell how long no write was acknowledged.
type outage struct {
	op     *topology.Operation
	lastTx time.Time
}

type result struct {
	server string
	kind   Kind
	begun  time.Time
	ended  time.Time
	err    error
	word   string // the announcement that was written
	hook   *hookEnd
	events *EventsSeen
}

// NewLoop makes a loop; Run starts it.
func NewLoop(cfg LoopConfig) *Loop {
	if cfg.Hooks == nil {
		cfg.Hooks = noHooks{}
	}
	return &Loop{
		cfg: cfg, results: make(chan result, 64), orders: make(chan Order),
		effects: map[string]Effect{},
	}
}

// Cluster is the name of the loop's cluster.
func (l *Loop) Cluster() string { return l.cfg.Cluster }

// maxSteps bounds how many actions are taken before new events are looked at;
// a decision that never waits would be a bug, and must not hang the daemon.
const maxSteps = 64

// Run works until the context ends, then waits for the effects under way.
func (l *Loop) Run(ctx context.Context) {
	l.resume()
	effects, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		// A statement under way gets a moment to be answered: cutting it off would
		// only leave its outcome unknown.
		stop := time.AfterFunc(2*time.Second, cancel)
		l.wg.Wait()
		stop.Stop()
		cancel()
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.cfg.Observer.Changed():
		case r := <-l.results:
			l.finish(r)
		case o := <-l.orders:
			l.order = &o
		case <-timer.C:
		}
		l.drainResults()
		if pause := l.step(ctx, effects); pause > 0 {
			timer.Reset(pause)
		}
	}
}

func (l *Loop) drainResults() {
	for {
		select {
		case r := <-l.results:
			l.finish(r)
		default:
			return
		}
	}
}

// step decides and acts until there is nothing to do, and says after what time
// to look again (0: only on an event).
func (l *Loop) step(ctx, effects context.Context) time.Duration {
	for range maxSteps {
		if ctx.Err() != nil {
			return 0
		}
		in := l.input()
		a := Decide(in)
		l.remember(in, a)
		l.watchOver(in, a)
		if a.Kind == KindWait {
			// An order that cannot be followed now is void: carried out later, when
			// the person has long turned to something else, it would be a surprise.
			l.order = nil
			return a.RecheckIn
		}
		if !l.perform(effects, in, a) {
			return retryFirst
		}
	}
	l.cfg.Log.Error("decisions do not come to rest", logCluster, l.cfg.Cluster)
	return time.Second
}

// input gathers what Decide looks at.
func (l *Loop) input() Input {
	v := l.cfg.Observer.View()
	effects := make(map[string]Effect, len(l.effects))
	for k, e := range l.effects {
		effects[k] = e
	}
	return Input{
		View:    v,
		Verdict: health.Detect(v, health.DetectPolicy{RefusedGrace: l.cfg.Policy.RefusedGrace, HangTimeout: l.cfg.Policy.HangTimeout}),
		Effects: effects, Policy: l.cfg.Policy, Order: l.order, Announced: l.announced, Events: l.events,
	}
}

// remember keeps the input for Report and logs a wait whose reasons changed.
func (l *Loop) remember(in Input, a Action) {
	l.mu.Lock()
	l.last = in
	l.mu.Unlock()
	if a.Kind != KindWait {
		return
	}
	text := ""
	for _, p := range a.Blocked {
		text += p.Code + " " + p.Server + ": " + p.Text + "; "
	}
	if text == "" && in.View.Cluster.Intent != nil && len(a.Why) > 0 {
		text = a.Why[0]
	}
	switch {
	case text == l.lastWhy || text == "":
	case len(a.Blocked) > 0:
		l.cfg.Log.Warn("held back", logCluster, l.cfg.Cluster, logProblem, text, logWhy, a.Why)
	default:
		l.cfg.Log.Info("waiting", logCluster, l.cfg.Cluster, logWhy, text)
	}
	l.lastWhy = text
}

// Report assesses the cluster as it is known now, by the rules of Decide.
func (l *Loop) Report() (Input, Report) {
	l.mu.Lock()
	in, unwritten := l.last, l.unwritten
	l.mu.Unlock()
	v := l.cfg.Observer.View()
	in.View, in.Policy = v, l.cfg.Policy
	in.Verdict = health.Detect(v, health.DetectPolicy{RefusedGrace: l.cfg.Policy.RefusedGrace, HangTimeout: l.cfg.Policy.HangTimeout})
	r := Assess(in)
	if unwritten != "" {
		// A problem of repld's own, that holds back whatever is called for.
		r.Problems = append([]Problem{{Code: "journal_unwritable", Text: "repld does nothing, for its journal cannot be written: " + unwritten,
			Do: "see that data_dir has space and can be written"}}, r.Problems...)
		if r.Health == Healthy {
			r.Health = Degraded
		}
	}
	return in, r
}

// journaled notes whether the journal could be written.
func (l *Loop) journaled(a Action, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unwritten = ""
	if err != nil {
		l.unwritten = err.Error()
		l.cfg.Log.Error("the journal cannot be written: nothing is done", logCluster, l.cfg.Cluster, logAction, a.Kind, logError, err)
	}
	return err == nil
}

// resume begins with what is journaled, of which the observer may not have heard
// yet, and finds the operation of an intent that a former run left open.
func (l *Loop) resume() {
	c := l.cfg.Journal.Cluster(l.cfg.Cluster)
	if c == nil {
		return
	}
	l.cfg.Observer.SetCluster(c)
	if c.Intent == nil {
		return
	}
	ops, err := l.cfg.Journal.Operations(l.cfg.Cluster, 50)
	if err != nil {
		l.cfg.Log.Error("history cannot be read", logCluster, l.cfg.Cluster, logError, err)
	}
	for i := range ops {
		if ops[i].ID == c.Intent.ID {
			l.op = &ops[i]
			l.op.Steps = append(l.op.Steps, topology.Step{Name: "repld restarted", Result: "ok"})
			if in := c.Intent; !in.Opened.IsZero() && in.Opening.Server != in.OldMaster {
				noteOpened(l.op, in, in.Opened) // the former run wrote that to the journal only
			}
		}
	}
	l.cfg.Log.Warn("an intent is open and goes on", logCluster, l.cfg.Cluster, logAction, c.Intent.Kind, logEpoch, c.Intent.Epoch)
}
