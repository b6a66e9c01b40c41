package failover

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// underHooks is a cluster of two whose master is lost; the failover, operation
// 7, began half a second ago and every IO thread is stopped.
func underHooks(state health.State) (Input, *topology.Intent) {
	in, mv, sv := idle()
	now := in.View.Now
	in.Verdict = health.Verdict{State: state, Since: now.Add(-time.Second)}
	in.Effects = map[string]Effect{"db2": {Last: KindStopIO, At: now.Add(-300 * time.Millisecond)}}
	mv.Last = health.Observation{Sent: now.Add(-10 * time.Millisecond), At: now.Add(-10 * time.Millisecond), Reach: health.ReachRefused}
	if state == health.StateHung {
		mv.Last.Reach = health.ReachTimeout
	}
	sv.Last.Sent, sv.Last.At = now.Add(-100*time.Millisecond), now.Add(-99*time.Millisecond)
	sv.LastOK = sv.Last
	i := &topology.Intent{ID: "7", Kind: topology.IntentFailover, Epoch: 2, OldMaster: "db1", Symptom: now.Add(-time.Second), Begun: now.Add(-500 * time.Millisecond),
		Bound: gtid.GTID{Server: 1, Seq: 9}}
	in.View.Cluster.Intent = i
	return in, i
}

func (in Input) hookEnded(h Hook, failed int, ago time.Duration, err string) {
	in.Effects[hookKey(h, "7")] = Effect{Last: KindHook, Failed: failed, At: in.View.Now.Add(-ago), Err: err}
}

func code(a Action) string {
	if len(a.Blocked) == 0 {
		return ""
	}
	return a.Blocked[0].Code
}

func TestPreFailoverVetoesBeforeAnythingChanges(t *testing.T) {
	in, i := underHooks(health.StateDead)
	in.Policy.Hooks.PreFailover = true
	if a := Decide(in); a.Kind != KindHook || a.Hook != HookPreFailover || a.For != "7" {
		t.Fatalf("first %+v", a)
	}
	in.Effects[hookKey(HookPreFailover, "7")] = Effect{Running: KindHook}
	if a := Decide(in); a.Kind != KindWait || len(a.Blocked) > 0 {
		t.Errorf("while it runs: %+v", a)
	}
	in.hookEnded(HookPreFailover, 2, 3*time.Second, "exit status 1: not now")
	a := Decide(in)
	if a.Kind != KindWait || code(a) != "vetoed_by_hook" || !strings.Contains(a.Blocked[0].Text, "not now") || a.RecheckIn != hookPause-3*time.Second {
		t.Errorf("vetoed: %+v", a)
	}
	if h := Assess(in).Health; h != Blocked {
		t.Errorf("vetoed, health is %s", h)
	}
	in.hookEnded(HookPreFailover, 2, hookPause, "exit status 1: not now")
	if a := Decide(in); a.Kind != KindHook {
		t.Errorf("after the pause: %+v", a)
	}
	// An answer that was given for another failover does not count.
	in.Effects[hookKey(HookPreFailover, "6")] = Effect{Last: KindHook, At: in.View.Now}
	if a := Decide(in); a.Kind != KindHook {
		t.Errorf("an older failover's answer: %+v", a)
	}
	in.hookEnded(HookPreFailover, 0, 0, "")
	if a := Decide(in); a.Kind != KindJournal {
		t.Fatalf("allowed: %+v", a)
	} else if _, ok := a.Journal[0].(topology.AllowFailover); !ok {
		t.Errorf("allowed: %+v", a.Journal)
	}
	i.Allowed = in.View.Now
	delete(in.Effects, hookKey(HookPreFailover, "7")) // repld restarted
	if a := Decide(in); a.Kind == KindHook {
		t.Errorf("asked again after a restart of repld: %+v", a)
	}
}

// A veto may last. If a slave hears the master meanwhile, it lives.
func TestAVetoedFailoverIsCalledOffWhenTheMasterLives(t *testing.T) {
	in, _ := underHooks(health.StateVetoed)
	in.Policy.Hooks.PreFailover = true
	in.hookEnded(HookPreFailover, 0, 0, "")
	if a := Decide(in); a.Ends != topology.ResultRolledBack {
		t.Errorf("%+v", a)
	}
}

func TestTheFenceRunsBesideAndIsAwaitedBeforeTheOpening(t *testing.T) {
	in, i := underHooks(health.StateDead)
	in.Policy.Hooks.Fence = true
	if a := Decide(in); a.Kind != KindHook || a.Hook != HookFence {
		t.Fatalf("first %+v", a)
	}
	in.Effects[hookKey(HookFence, "7")] = Effect{Running: KindHook}
	if a := Decide(in); a.Kind != KindWait || !strings.Contains(a.Why[0], "hooks.fence is running") {
		t.Errorf("while it runs: %+v", a)
	}
	// It costs nothing before: a slave whose IO thread runs is stopped meanwhile.
	sv := in.View.Servers["db2"]
	sv.Last.Slave = &health.SlaveStatus{IO: health.ThreadYes, SQL: health.ThreadYes, UsingGTID: "Slave_Pos", Received: sv.Last.SlavePos}
	sv.LastOK = sv.Last
	if a := Decide(in); a.Kind != KindStopIO {
		t.Errorf("while it runs: %+v", a)
	}
	sv.Last.Slave = nil
	sv.LastOK = sv.Last
	// Where the old master is known dead, a fence that fails holds nothing up.
	in.hookEnded(HookFence, 1, time.Second, "exit status 1")
	if a := Decide(in); a.Kind != KindOpen {
		t.Errorf("failed: %+v", a)
	}
	in.hookEnded(HookFence, 0, 0, "")
	if a := Decide(in); a.Kind != KindJournal {
		t.Fatalf("succeeded: %+v", a)
	} else if _, ok := a.Journal[0].(topology.RecordFenced); !ok {
		t.Errorf("succeeded: %+v", a.Journal)
	}
	i.Fenced = in.View.Now
	if a := Decide(in); a.Kind != KindOpen {
		t.Errorf("fenced: %+v", a)
	}
}

// Where nothing else keeps the old master from telling clients OK, nobody is
// opened unless the fence has succeeded or a person orders it.
func TestAFailedFenceBlocksWhereOnlyItProtects(t *testing.T) {
	in, i := underHooks(health.StateHung)
	in.View.Cluster.Intent = nil
	in.Policy.Automatic = true
	if a := Decide(in); code(a) != "unfenced" {
		t.Fatalf("without a fence: %+v", a)
	}
	in.Policy.Hooks.Fence = true
	a := Decide(in)
	if a.Kind != KindBegin || !a.Intent.NeedsFence {
		t.Fatalf("with a fence: %+v", a)
	}
	i.NeedsFence = true
	in.View.Cluster.Intent = i
	in.hookEnded(HookFence, 1, 4*time.Second, "exit status 1: no power switch")
	if a := Decide(in); code(a) != "fence_failed" || !strings.Contains(a.Blocked[0].Text, "no power switch") || a.RecheckIn != hookPause-4*time.Second {
		t.Errorf("failed: %+v", a)
	}
	in.Effects[hookKey(HookFence, "7")] = Effect{Running: KindHook, Last: KindHook, Failed: 1}
	if a := Decide(in); code(a) != "fence_failed" {
		t.Errorf("tried again: %+v", a)
	}
	none := in
	none.Policy.Hooks.Fence = false // taken out of the configuration meanwhile
	if a := Decide(none); code(a) != "unfenced" {
		t.Errorf("hook removed: %+v", a)
	}
	in.Order = &Order{}
	if a := Decide(in); a.Kind != KindJournal {
		t.Errorf("ordered: %+v", a)
	} else if _, ok := a.Journal[0].(topology.TakeOver); !ok {
		t.Errorf("ordered: %+v", a.Journal)
	}
	i.Manual, in.Order = true, nil
	if a := Decide(in); a.Kind != KindOpen {
		t.Errorf("taken over: %+v", a)
	}
	i.Manual, i.Fenced = false, in.View.Now
	if a := Decide(in); a.Kind != KindOpen {
		t.Errorf("fenced: %+v", a)
	}
}

// A master that answers again after the fence has cut it off from its clients
// does not end the failover; if it accepts writes it is closed first.
func TestAFencedMasterThatAnswersDoesNotCallTheFailoverOff(t *testing.T) {
	in, i := underHooks(health.StateAlive)
	mv := in.View.Servers["db1"]
	back := mv.LastOK
	back.Sent, back.At = in.View.Now.Add(-5*time.Millisecond), in.View.Now.Add(-4*time.Millisecond)
	mv.Last, mv.LastOK = back, back
	if a := Decide(in); a.Ends != topology.ResultRolledBack {
		t.Fatalf("unfenced: %+v", a)
	}
	i.Fenced = in.View.Now.Add(-20 * time.Millisecond)
	if a := Decide(in); a.Kind != KindFence || a.Servers[0] != "db1" {
		t.Errorf("fenced and writable: %+v", a)
	}
	mv.Last.ReadOnly, mv.LastOK.ReadOnly = true, true
	if a := Decide(in); a.Kind != KindOpen {
		t.Errorf("fenced and closed: %+v", a)
	}
	mv.Last.BinlogPos = gtid.At(gtid.GTID{Server: 1, Seq: 12})
	mv.LastOK = mv.Last
	if a := Decide(in); a.Ends != topology.ResultRolledBack {
		t.Errorf("fenced, and the only one to have 0-1-12: %+v", a)
	}
}

// A loss may be accepted although the master is only silent, once it is fenced:
// then nobody can acknowledge to it any more.
func TestTheFenceRevokesAnUnreachableAcker(t *testing.T) {
	n := uint64(0)
	in, i := underHooks(health.StateHung)
	in.View.Cluster.Durability, in.View.Cluster.DurabilityState = topology.SemiSync, topology.DurabilityArmed
	in.View.Cluster.Servers["db3"] = &topology.Server{Name: "db3", Address: "c:1", Role: topology.RoleSlave, Source: "db1", Promotion: topology.PromotionNeutral}
	ok := in.View.Servers["db2"].LastOK // seen before the failover began only
	ok.Sent, ok.At = i.Begun.Add(-time.Second), i.Begun.Add(-time.Second)
	in.View.Servers["db3"] = &health.ServerView{LastOK: ok, Last: health.Observation{Reach: health.ReachTimeout, Sent: ok.Sent, At: ok.At}}
	i.Armed, i.AcceptLoss, i.Manual = true, &n, true
	if a := Decide(in); code(a) != "acker_unreachable" {
		t.Fatalf("unfenced: %+v", a)
	}
	i.Fenced = in.View.Now
	if a := Decide(in); len(a.Blocked) > 0 {
		t.Errorf("fenced: %+v", a)
	}
	i.AcceptLoss = nil
	if a := Decide(in); code(a) != "acker_unreachable" {
		t.Errorf("what it acknowledged before may be there alone: %+v", a)
	}
}

// Whoever is to be told of a change of master is told although repld restarts,
// and nothing waits for it.
func TestPostFailoverIsOwedUntilItHasRun(t *testing.T) {
	in, _, _ := idle()
	in.Policy.Hooks.PostFailover = true
	in.Effects = map[string]Effect{}
	in.View.Cluster.Changes = []topology.Change{{Operation: "7", Kind: topology.IntentFailover, Epoch: 1, OldMaster: "db2", NewMaster: "db1"}}
	a := Decide(in)
	if a.Kind != KindHook || a.Hook != HookPostFailover {
		t.Fatalf("%+v", a)
	}
	call := hookCall(in, a)
	if call.NewMaster == nil || *call.NewMaster != (HookServer{"db1", "a:1"}) || call.OldMaster.Name != "db2" || call.Operation.ID != "7" {
		t.Errorf("%+v", call)
	}
	in.Effects[hookKey(HookPostFailover, "7")] = Effect{Running: KindHook}
	if a := Decide(in); a.Kind != KindAttach {
		t.Errorf("while it runs: %+v", a)
	}
	in.hookEnded(HookPostFailover, 1, 0, "exit status 1")
	a = Decide(in)
	if a.Kind != KindJournal {
		t.Fatalf("after it failed: %+v", a)
	}
	st, err := (&topology.State{Clusters: map[string]*topology.Cluster{"main": in.View.Cluster}}).Apply(a.Journal...)
	if err != nil || len(st.Clusters["main"].Changes) != 0 {
		t.Errorf("%v, %+v", err, st)
	}
}

// told is a recorder of events; its programs end as they are told.
type told struct {
	calls []HookCall
	err   error
}

func (r *told) Run(context.Context, Hook, HookCall) (string, error) { return "said so", r.err }
func (r *told) Notify(c HookCall)                                   { r.calls = append(r.calls, c) }

func (r *told) events() []string {
	var out []string
	for _, c := range r.calls {
		out = append(out, strings.TrimSpace(c.Event+" "+string(c.Health)))
	}
	return out
}

// Each change of health is told once, with what was before; two servers that
// accept writes are told whatever else is being done, and are the first problem.
func TestChangesAreToldOnce(t *testing.T) {
	in, mv, sv := idle()
	r := &told{}
	l := NewLoop(LoopConfig{Cluster: "main", Journal: &forgetful{}, Hooks: r, Log: slog.New(slog.DiscardHandler)})
	look := func() { l.watchOver(in, Action{Kind: KindWait}) }
	look()
	look()
	if want := []string{"health degraded"}; !slices.Equal(r.events(), want) {
		t.Fatalf("%v", r.events())
	}
	sv.Last.ReadOnly = false
	sv.LastOK = sv.Last
	l.watchOver(in, Action{Kind: KindFence})
	l.watchOver(in, Action{Kind: KindFence})
	if p := Assess(in).Problems; len(p) == 0 || p[0].Code != "two_writable" {
		t.Errorf("problems: %+v", p)
	}
	mv.Last.ReadOnly = true
	mv.LastOK = mv.Last
	look()
	if want := []string{"health degraded", "two_writable", "one_writable"}; !slices.Equal(r.events()[:3], want) {
		t.Errorf("%v", r.events())
	}
	in, mv, _ = idle()
	mv.Last = health.Observation{Reach: health.ReachRefused, Sent: in.View.Now, At: in.View.Now}
	in.Verdict = health.Verdict{State: health.StateDead, Since: in.View.Now}
	for range 2 {
		l.watchOver(in, Action{Kind: KindWait, Blocked: []Problem{{Code: "manual_mode"}}})
	}
	if n := strings.Count(strings.Join(r.events(), " "), EventDeclined); n != 1 {
		t.Errorf("%d declined failovers in %v", n, r.events())
	}
	text, err := json.Marshal(r.calls[0])
	if err != nil || !strings.Contains(string(text), `"previous":"degraded"`) && strings.Contains(string(text), `"old_master":{`) {
		t.Errorf("%s, %v", text, err)
	}
}

// What a hook printed stands in the history, also while its failover is still
// held back, and failures one after the other are one step.
func TestAHooksOutputIsInTheHistory(t *testing.T) {
	in, _ := underHooks(health.StateDead)
	r := &told{err: errors.New("exit status 1")}
	l := NewLoop(LoopConfig{Cluster: "main", Journal: &forgetful{}, Hooks: r, Log: slog.New(slog.DiscardHandler)})
	l.op = &topology.Operation{ID: "7"}
	for range 3 {
		l.startHook(t.Context(), in, newDecider(in).runHook(HookPreFailover, "7"))
		l.finish(<-l.results)
	}
	want := topology.Step{Name: "hook:pre_failover", Result: "exit status 1 (3 times)", Output: "said so"}
	if len(l.op.Steps) != 1 {
		t.Fatalf("%+v", l.op.Steps)
	}
	if got := l.op.Steps[0]; got.Name != want.Name || got.Result != want.Result || got.Output != want.Output {
		t.Errorf("%+v", got)
	}
	if e := l.effects[hookKey(HookPreFailover, "7")]; e.Err != "exit status 1: said so" || e.Failed != 3 {
		t.Errorf("%+v", e)
	}
}

func TestHowOftenAHookWasAsked(t *testing.T) {
	for n, want := range map[int]string{1: "once", 2: "2 times"} {
		if got := times(n); got != want {
			t.Errorf("%d: %q", n, got)
		}
	}
}
