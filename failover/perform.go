package failover

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/repld/repld/topology"
)

// limits are the deadlines of effects. An effect that misses its deadline may
// still happen later, which is why Open carries its own on the server.
var limits = map[Kind]time.Duration{
	KindStopIO: 4 * time.Second, KindStopSQL: 4 * time.Second, KindStartSQL: 4 * time.Second, KindDrain: 5 * time.Second, KindFetch: 5 * time.Second, KindEndFetch: 5 * time.Second,
	KindDetach: 4 * time.Second, KindArm: 2 * time.Second, KindDisarm: 2 * time.Second, KindOpen: 2 * time.Second,
	KindFence: 15 * time.Second, KindShut: 10 * time.Second, KindAttach: 10 * time.Second, KindAnnounce: time.Minute, KindRejoin: 24 * time.Hour, KindCompare: time.Hour,
	KindEvents: time.Minute, KindLookEvents: 3 * time.Second,
}

// refreshLimit bounds the look at a server after an effect on it.
const refreshLimit = 2 * time.Second

// perform journals and starts an action. It returns false if the journal could
// not be written: then nothing was done.
func (l *Loop) perform(ctx context.Context, in Input, a Action) bool {
	if a.Kind == KindBegin {
		return l.begin(a)
	}
	if len(a.Journal) > 0 {
		if !l.journaled(a, l.cfg.Journal.Apply(a.Journal...)) {
			return false
		}
		l.cfg.Observer.SetCluster(l.cfg.Journal.Cluster(l.cfg.Cluster))
		l.record(in, a)
	}
	if a.Kind == KindJournal {
		return true
	}
	if in.View.Cluster.Intent != nil {
		l.cfg.Observer.Hurry(time.Second)
	}
	level := slog.LevelInfo
	if a.Kind == KindLookEvents {
		level = slog.LevelDebug
	}
	l.cfg.Log.Log(ctx, level, "acting", logCluster, l.cfg.Cluster, logAction, a.Kind, logServer, a.Servers, logWhy, a.Why)
	switch a.Kind {
	case KindHook:
		l.startHook(ctx, in, a)
	case KindEvents, KindLookEvents:
		l.startEvents(ctx, in, a)
	case KindAnnounce:
		l.start(ctx, announceKey, a, func(ctx context.Context) error { return l.announce(ctx, in) })
	case KindProbe:
		for _, name := range a.Servers {
			l.start(ctx, name, a, func(context.Context) error { return nil })
		}
	default:
		for _, name := range a.Servers {
			s := in.View.Cluster.Servers[name]
			if s == nil {
				continue
			}
			l.start(ctx, name, a, func(ctx context.Context) error { return l.effect(ctx, a, in.View.Cluster, *s) })
		}
	}
	return true
}

// begin gives an intent its operation and journals it.
func (l *Loop) begin(a Action) bool {
	in := a.Intent.Clone()
	kind := map[topology.IntentKind]topology.OperationKind{
		topology.IntentFailover: topology.OpFailover, topology.IntentReopen: topology.OpRestart, topology.IntentSwitchover: topology.OpSwitchover,
	}[in.Kind]
	detected := ms(in.Begun.Sub(in.Symptom))
	op, err := l.cfg.Journal.NewOperation(topology.Operation{
		Cluster: l.cfg.Cluster, Kind: kind, Result: topology.ResultRunning, OldMaster: in.OldMaster, Epoch: in.Epoch,
		StartedAt: in.Symptom, DetectedMS: &detected, Evidence: a.Why,
	})
	if err == nil {
		in.ID = op.ID
		err = l.cfg.Journal.Apply(topology.BeginIntent{Cluster: l.cfg.Cluster, Intent: *in})
	}
	if !l.journaled(a, err) {
		return false
	}
	l.op, l.order = op, nil
	l.forgetHooks()
	l.cfg.Log.Warn("begun", logCluster, l.cfg.Cluster, logAction, in.Kind, logEpoch, in.Epoch, logWhy, a.Why)
	l.cfg.Observer.Hurry(2 * time.Second)
	c := l.cfg.Journal.Cluster(l.cfg.Cluster)
	l.cfg.Observer.SetCluster(c)
	l.tellOperation(EventBegun, c, op)
	return true
}

// start runs an effect beside the loop and then observes the server anew, so
// that the next decision sees what it did.
func (l *Loop) start(ctx context.Context, key string, a Action, run func(context.Context) error) {
	e := l.effects[key]
	e.Running = a.Kind
	l.effects[key] = e
	word := ""
	if a.Kind == KindAnnounce {
		word = l.lastAnnouncement()
	}
	l.wg.Go(func() {
		begun := time.Now()
		ctx, cancel := context.WithTimeout(ctx, limitOf(a.Kind))
		defer cancel()
		err := run(ctx)
		ended := time.Now()
		if key != announceKey {
			look, done := context.WithTimeout(context.WithoutCancel(ctx), refreshLimit)
			l.cfg.Observer.Refresh(look, key)
			done()
		}
		l.results <- result{server: key, kind: a.Kind, begun: begun, ended: ended, err: err, word: word}
	})
}

func limitOf(k Kind) time.Duration {
	if d := limits[k]; d > 0 {
		return d
	}
	return 2 * time.Second
}

// effect carries out an action on one server.
func (l *Loop) effect(ctx context.Context, a Action, c *topology.Cluster, s topology.Server) error {
	if a.Kind == KindRejoin {
		return l.cfg.Rejoiner.Rejoin(ctx, c.Name, s.Name, a.Extra)
	}
	if a.Kind == KindCompare {
		return l.cfg.Rejoiner.Compare(ctx, c.Name, s.Name, a.Last)
	}
	srv := l.cfg.Server(s)
	switch a.Kind {
	case KindStopIO:
		return srv.StopIO(ctx)
	case KindStopSQL:
		return srv.StopSQL(ctx)
	case KindStartSQL:
		return srv.StartSQL(ctx)
	case KindDrain:
		return srv.DrainRelayLog(ctx)
	case KindFetch:
		return srv.Fetch(ctx, source(c.Servers[a.From], &s))
	case KindEndFetch:
		return srv.EndFetch(ctx)
	case KindDetach:
		return srv.Detach(ctx)
	case KindArm:
		return srv.Arm(ctx, serverTimeout(c, l.cfg.Policy))
	case KindDisarm:
		return srv.Disarm(ctx)
	case KindOpen:
		return srv.Open(ctx, openWithin)
	case KindFence:
		return srv.Fence(ctx)
	case KindShut:
		return srv.Shut(ctx)
	case KindAttach:
		f := a.Attach[s.Name]
		return srv.Attach(ctx, Attachment{
			Source: source(c.Servers[f.Source], &s), Acker: f.Acker, StartAt: f.StartAt, Delay: s.Delay, DoDB: slices.Clone(s.ReplicateDoDB),
		})
	}
	return fmt.Errorf("unknown action %q", a.Kind)
}

// source is how slave reaches a server.
func source(from, slave *topology.Server) Source {
	host, port := topology.SplitAddress(from.Address)
	return Source{Name: from.Name, Host: host, Port: port, CAFile: slave.CAFile, CertFile: slave.CertFile, KeyFile: slave.KeyFile}
}

func (l *Loop) lastAnnouncement() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return newDecider(l.last).announcement()
}

// announce writes repld.cluster.
func (l *Loop) announce(ctx context.Context, in Input) error {
	d := newDecider(in)
	return l.cfg.Server(*d.c.Servers[d.c.Master]).Announce(ctx, ClusterRow{
		ClusterID: d.c.ID, Cluster: d.c.Name, Epoch: d.c.Epoch, Master: d.c.Master,
		Durability: string(d.c.Durability), Ackers: d.ackerNames(), Instance: l.cfg.Journal.Instance(),
	})
}

// finish takes in the end of an effect.
func (l *Loop) finish(r result) {
	e := l.effects[r.server]
	failed, again := 0, 1
	if e.Last == r.kind {
		failed, again = e.Failed, e.Again+1
	}
	if r.err != nil {
		failed, again = failed+1, 0
	} else {
		failed = 0
	}
	e = Effect{Last: r.kind, Failed: failed, Again: again, At: r.ended}
	if r.err != nil {
		e.Err = r.err.Error()
		if r.hook != nil && r.hook.output != "" {
			e.Err += ": " + r.hook.output
		}
	}
	l.effects[r.server] = e
	took := ms(r.ended.Sub(r.begun))
	word := "ok"
	if r.err != nil {
		word = r.err.Error()
		l.cfg.Log.Warn("failed", logCluster, l.cfg.Cluster, logAction, r.kind, logServer, r.server, logMS, took, logError, r.err)
	} else if r.kind != KindLookEvents {
		l.cfg.Log.Info("done", logCluster, l.cfg.Cluster, logAction, r.kind, logServer, r.server, logMS, took)
	}
	if r.kind == KindAnnounce && r.err == nil {
		l.announced = r.word
		l.noteFirstAck(r.ended)
	}
	if r.events != nil && r.err == nil {
		l.events = *r.events
	}
	if r.hook != nil {
		l.finishHook(r)
	} else if r.kind != KindLookEvents && l.op != nil && r.kind != KindProbe {
		server := r.server
		if server == announceKey || server == eventsKey {
			server = l.op.NewMaster
		}
		l.op.Steps = append(l.op.Steps, topology.Step{Name: string(r.kind), Server: server, MS: took, Result: word})
	}
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
