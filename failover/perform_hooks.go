package failover

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/topology"
)

// startHook runs one of the user's programs beside the loop.
func (l *Loop) startHook(ctx context.Context, in Input, a Action) {
	key, call := hookKey(a.Hook, a.For), hookCall(in, a)
	e := l.effects[key]
	e.Running = KindHook
	l.effects[key] = e
	l.wg.Go(func() {
		begun := time.Now()
		output, err := l.cfg.Hooks.Run(ctx, a.Hook, call)
		l.results <- result{server: key, kind: KindHook, begun: begun, ended: time.Now(), err: err,
			hook: &hookEnd{hook: a.Hook, operation: a.For, output: output}}
	})
}

// hookEnd is what the end of a hook has beyond that of another effect.
type hookEnd struct {
	hook      Hook
	operation string
	output    string
}

// finishHook writes the run of a hook into the history of the operation that it
// was for. Runs that fail one after the other are one step.
func (l *Loop) finishHook(r result) {
	word := "ok"
	if r.err != nil {
		word = r.err.Error()
		if n := l.effects[r.server].Failed; n > 1 {
			word = fmt.Sprintf("%s (%d times)", word, n)
		}
	}
	st := topology.Step{Name: "hook:" + string(r.hook.hook), MS: ms(r.ended.Sub(r.begun)), Result: word, Output: r.hook.output}
	op := l.op
	if op == nil || op.ID != r.hook.operation {
		if op = l.past(r.hook.operation); op == nil {
			return
		}
	}
	op.Steps = withHookStep(op.Steps, st)
	l.save(op)
}

// withHookStep adds the step of a hook; a failure takes the place of the failure
// before it, so that a veto of hours is not thousands of steps.
func withHookStep(steps []topology.Step, st topology.Step) []topology.Step {
	for i := len(steps) - 1; i >= 0; i-- {
		if steps[i].Name != st.Name {
			continue
		}
		if steps[i].Result != "ok" && st.Result != "ok" {
			steps[i] = st
			return steps
		}
		break
	}
	return append(steps, st)
}

// past finds an operation that has ended.
func (l *Loop) past(id string) *topology.Operation {
	if op := l.outage.op; op != nil && op.ID == id {
		return op // it is still written to
	}
	ops, err := l.cfg.Journal.Operations(l.cfg.Cluster, 50)
	if err != nil {
		l.cfg.Log.Error("history cannot be read", logCluster, l.cfg.Cluster, logError, err)
	}
	if i := slices.IndexFunc(ops, func(o topology.Operation) bool { return o.ID == id }); i >= 0 {
		return &ops[i]
	}
	return nil
}

// forgetHooks drops what is known of the hooks of former operations.
func (l *Loop) forgetHooks() {
	for key, e := range l.effects {
		if strings.HasPrefix(key, "hook:") && e.Running == "" {
			delete(l.effects, key)
		}
	}
}

// alarms is what was last told to HookEvent.
type alarms struct {
	health   Health
	writable string
	declined string
	episode  episode
}

// watchOver tells HookEvent, and the log, what has changed since the last look.
func (l *Loop) watchOver(in Input, a Action) {
	if in.View.Cluster.Master == "" {
		return
	}
	l.watchWriters(in)
	if a.Kind != KindWait || in.Verdict.State == health.StateUnknown {
		return
	}
	l.watchDeclined(in, a)
	l.watchEpisode(in, a)
	r := Assess(in)
	if r.Health == l.told.health {
		return
	}
	call := newCall(EventHealth, in)
	call.Health, call.Previous, call.Problems, call.AtRisk = r.Health, l.told.health, noNil(r.Problems), r.Forecast.AtRisk
	call.Evidence = noNil(in.Verdict.Evidence)
	l.told.health = r.Health
	l.cfg.Log.Info("health", logCluster, l.cfg.Cluster, "is", call.Health, "was", call.Previous)
	l.cfg.Hooks.Notify(call)
}

// watchWriters raises the loudest alarm.
func (l *Loop) watchWriters(in Input) {
	ps := newDecider(in).twoWritable()
	text := ""
	if len(ps) > 0 {
		text = ps[0].Text
	}
	if text == l.told.writable {
		return
	}
	event := EventWritable
	if text == "" {
		event = EventOneWritable
		l.cfg.Log.Warn("one server accepts writes again", logCluster, l.cfg.Cluster, logServer, in.View.Cluster.Master)
	} else {
		l.cfg.Log.Error("two servers accept writes", logCluster, l.cfg.Cluster, logProblem, text)
	}
	l.told.writable = text
	call := newCall(event, in)
	call.Problems = noNil(ps)
	l.cfg.Hooks.Notify(call)
}

// watchDeclined tells of a failover that is called for and held back before it
// begins.
func (l *Loop) watchDeclined(in Input, a Action) {
	codes := ""
	if in.View.Cluster.Intent == nil && in.Verdict.Lost() {
		for _, p := range a.Blocked {
			codes += p.Code + " " + p.Server + ";"
		}
	}
	if codes == l.told.declined {
		return
	}
	l.told.declined = codes
	if codes == "" {
		return
	}
	call := newCall(EventDeclined, in)
	call.OldMaster = hookServer(in.View.Cluster, in.View.Cluster.Master)
	call.Problems, call.Evidence = noNil(a.Blocked), noNil(a.Why)
	l.cfg.Hooks.Notify(call)
}

// tellOperation tells HookEvent that an operation begins or has ended.
func (l *Loop) tellOperation(event string, c *topology.Cluster, op *topology.Operation) {
	if c == nil {
		return // it was removed meanwhile
	}
	call := HookCall{Event: event, Cluster: l.cfg.Cluster, Time: time.Now().UTC(), Master: c.Master, Epoch: op.Epoch, Durability: c.DurabilityState,
		OldMaster: hookServer(c, op.OldMaster), NewMaster: hookServer(c, op.NewMaster), Operation: OperationOf(op),
		Problems: []Problem{}, Evidence: noNil(op.Evidence)}
	l.cfg.Hooks.Notify(call)
}

// tellDurability tells HookEvent that commits wait for an acker no longer, or
// again.
func (l *Loop) tellDurability(in Input, op *topology.Operation, state topology.DurabilityState) {
	call := newCall(EventRearmed, in)
	if state != topology.DurabilityArmed {
		call.Event = EventDegraded
	}
	call.Master, call.Epoch = op.Server, op.Epoch
	call.Durability, call.Operation, call.Evidence = state, OperationOf(op), noNil(op.Evidence)
	call.AtRisk = Assess(in).Forecast.AtRisk
	l.cfg.Hooks.Notify(call)
}

func noNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
