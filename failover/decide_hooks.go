package failover

import (
	"fmt"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/topology"
)

// The rules about the user's programs. A program's end is kept in
// [Input.Effects] like that of an effect on a server, under a key that names the
// operation, so that an answer given for one failover never counts for another.
// What must be known after a crash of repld is journaled; what is not is run
// again.

// hookKey is where Effects keeps a run of a hook; no server's name has a colon.
func hookKey(h Hook, operation string) string { return "hook:" + string(h) + ":" + operation }

func (d *decider) hookRun(h Hook, operation string) Effect {
	return d.in.Effects[hookKey(h, operation)]
}

// succeeded tells whether the last run of a hook ended with exit 0.
func (e Effect) succeeded() bool { return e.Running == "" && e.Last == KindHook && e.Failed == 0 }

// failedAt tells whether the last run of a hook that ended, ended otherwise.
func (e Effect) failedHook() bool { return e.Last == KindHook && e.Failed > 0 }

func (d *decider) runHook(h Hook, operation string, why ...string) Action {
	return Action{Kind: KindHook, Hook: h, For: operation, Servers: []string{hookKey(h, operation)}, Why: why}
}

// askFirst lets hooks.pre_failover veto a failover before anything is changed. A
// veto is no end: it is asked again as long as the master stays lost.
func (d *decider) askFirst(in *topology.Intent) (Action, bool) {
	if !d.p.Hooks.PreFailover || !in.Allowed.IsZero() {
		return Action{}, false
	}
	if d.in.Verdict.State == health.StateVetoed {
		return d.endIntent(in, topology.ResultRolledBack, "a slave receives from the master again, and nothing was changed yet"), true
	}
	e := d.hookRun(HookPreFailover, in.ID)
	if e.succeeded() {
		return Action{Kind: KindJournal, Why: []string{"hooks.pre_failover lets the failover go on"},
			Journal: []topology.Command{topology.AllowFailover{Cluster: d.c.Name, Intent: in.ID, At: e.At}}}, true
	}
	left := hookPause - d.now.Sub(e.At)
	if e.Running == "" && (e.Failed == 0 || left <= 0) {
		return d.runHook(HookPreFailover, in.ID, "it may veto the failover"), true
	}
	a := wait(0, "hooks.pre_failover is asked")
	if e.failedHook() {
		a = d.blocked(Problem{Code: "vetoed_by_hook", Server: in.OldMaster, Do: "see what hooks.pre_failover says; it is asked again by itself",
			Text: fmt.Sprintf("hooks.pre_failover vetoes the failover (asked %s): %s", times(e.Failed), e.Err)})
		a.RecheckIn = max(0, left)
	}
	return a, true
}

// fencedByHook tells whether hooks.fence has made sure that the old master of a
// failover accepts no writes any more. It then acknowledges nothing either:
// whoever is still connected to it as an acker can hold what it acknowledged
// before, and nothing new.
func (d *decider) fencedByHook(in *topology.Intent) bool { return in != nil && !in.Fenced.IsZero() }

// unfencedWithoutHook is what would hold a failover back without hooks.fence.
func (d *decider) unfencedWithoutHook() []Problem {
	e := *d
	e.p.Hooks.Fence = false
	return e.unfenced()
}

// fenceBeside runs hooks.fence beside the other stages of a failover, and
// journals its success. One that failed is tried again while the failover lasts.
func (d *decider) fenceBeside(in *topology.Intent) (Action, bool) {
	if !d.p.Hooks.Fence || d.fencedByHook(in) || d.closed(in.OldMaster) {
		return Action{}, false
	}
	e := d.hookRun(HookFence, in.ID)
	switch {
	case e.succeeded():
		return Action{Kind: KindJournal, Why: []string{"hooks.fence: the old master can no longer accept writes"},
			Journal: []topology.Command{topology.RecordFenced{Cluster: d.c.Name, Intent: in.ID, At: e.At}}}, true
	case e.Running == "" && (e.Failed == 0 || d.now.Sub(e.At) >= hookPause):
		return d.runHook(HookFence, in.ID, in.OldMaster+" is to accept no writes any more"), true
	}
	return Action{}, false
}

// closed tells whether a server is seen to accept no writes.
func (d *decider) closed(name string) bool {
	sv := d.v.Servers[name]
	return sv.Reachable() && sv.Last.ReadOnly
}

// awaitFence holds the opening back until hooks.fence has ended for the first
// time, and until it has succeeded where nothing else keeps the old master from
// acknowledging writes.
func (d *decider) awaitFence(in *topology.Intent) (Action, bool) {
	if d.fencedByHook(in) || d.closed(in.OldMaster) {
		return Action{}, false
	}
	e := d.hookRun(HookFence, in.ID)
	needed := in.NeedsFence && !in.Manual
	switch {
	case d.p.Hooks.Fence && e.Running != "" && e.Failed == 0:
		return wait(0, "hooks.fence is running"), true
	case needed && !d.p.Hooks.Fence:
		if ps := d.unfenced(); len(ps) > 0 {
			return d.blocked(ps...), true
		}
	case needed:
		a := d.blocked(Problem{Code: "fence_failed", Server: in.OldMaster, Do: "see to it that it is off, then: replctl failover", Text: fmt.Sprintf(
			"%s could go on to tell clients OK, durability is %s, and hooks.fence did not stop it (tried %d times): %s",
			in.OldMaster, d.c.DurabilityState, e.Failed, e.Err)})
		a.RecheckIn = max(time.Millisecond, hookPause-d.now.Sub(e.At))
		return a, true
	}
	return Action{}, false
}

// onlyItHas tells whether a master that is back after its fence has transactions
// that no other member has: it is then the only place of what its clients may
// have been told OK for, and the failover is called off as if it had not been
// fenced.
func (d *decider) onlyItHas(mv *health.ServerView, ms []*member) bool {
	best := d.mostReceived(ms)
	return mv.Last.Reach == health.ReachOK && (best == nil || !d.c.Lineage.Contains(best.received, mv.Last.BinlogPos.Of(d.domain)))
}

// backThoughFenced goes on with a failover whose old master answers again after
// hooks.fence has cut it off from its clients: to call the failover off would
// leave them without a master. What it still accepts by mistake is ended first.
func (d *decider) backThoughFenced(in *topology.Intent) (Action, bool) {
	if mv := d.v.Servers[in.OldMaster]; mv.Reachable() && !mv.Last.ReadOnly {
		return d.act(KindFence, in.OldMaster, "hooks.fence has ended its service, and it answers repld and accepts writes"), true
	}
	return Action{}, false
}

// tellAfter runs hooks.post_failover for a change of master. Nothing waits for it.
func (d *decider) tellAfter() (Action, bool) {
	if len(d.c.Changes) == 0 {
		return Action{}, false
	}
	ch := d.c.Changes[0]
	e := d.hookRun(HookPostFailover, ch.Operation)
	switch {
	case e.Running != "":
		return Action{}, false
	case e.Last == KindHook || !d.p.Hooks.PostFailover:
		return Action{Kind: KindJournal, Journal: []topology.Command{topology.MarkTold{Cluster: d.c.Name, Operation: ch.Operation}}}, true
	}
	return d.runHook(HookPostFailover, ch.Operation, ch.NewMaster+" is the master now"), true
}

// writable lists the members that are seen to accept writes, the master first.
func (d *decider) writable() []string {
	var out []string
	for _, name := range d.c.Names() {
		sv := d.v.Servers[name]
		if !sv.Reachable() || sv.Last.ReadOnly || d.c.Servers[name].Joining {
			continue
		}
		if name == d.c.Master {
			out = append([]string{name}, out...)
		} else {
			out = append(out, name)
		}
	}
	return out
}

// twoWritable is the worst that can be: more than one member accepts writes.
func (d *decider) twoWritable() []Problem {
	list := d.writable()
	if len(list) < 2 {
		return nil
	}
	return []Problem{{Code: "two_writable", Server: list[1], Do: "replctl history",
		Text: fmt.Sprintf("%d servers accept writes: %v; the master of epoch %d is %s, the others are being closed", len(list), list, d.c.Epoch, d.c.Master)}}
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
