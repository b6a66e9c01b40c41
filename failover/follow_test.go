package failover

import (
	"testing"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// idle is a cluster in which nobody writes: db1 is the master, db2 was just made
// a copy of it and replicates from nobody yet. Both are observed side by side.
func idle() (Input, *health.ServerView, *health.ServerView) {
	now := time.Unix(5000, 0)
	pos := gtid.At(gtid.GTID{Server: 1, Seq: 9})
	master := health.Observation{Sent: now.Add(-300 * time.Millisecond), At: now.Add(-299 * time.Millisecond), Reach: health.ReachOK, LogBin: true,
		LogSlaveUpdates: true, BinlogPos: pos, BinlogState: gtid.StateOf(gtid.GTID{Server: 1, Seq: 9})}
	slave := health.Observation{Sent: master.Sent, At: master.At, Reach: health.ReachOK, LogBin: true, LogSlaveUpdates: true, ReadOnly: true, SlavePos: pos}
	mv, sv := &health.ServerView{Last: master, LastOK: master}, &health.ServerView{Last: slave, LastOK: slave}
	c := &topology.Cluster{Name: "main", Epoch: 1, Master: "db1", Durability: topology.Async, Lineage: gtid.Lineage{{Epoch: 1, Server: 1, First: 1}},
		Servers: map[string]*topology.Server{
			"db1": {Name: "db1", Address: "a:1", Role: topology.RoleMaster, Promotion: topology.PromotionNeutral},
			"db2": {Name: "db2", Address: "b:1", Role: topology.RoleSlave, Source: "db1", Promotion: topology.PromotionNeutral},
		}}
	return Input{View: &health.View{Cluster: c, Now: now, Servers: map[string]*health.ServerView{"db1": mv, "db2": sv}},
		Verdict: health.Verdict{State: health.StateAlive}}, mv, sv
}

// A detached server follows the master also if the master is never observed
// after it: in a cluster in which nobody writes no event would ever wake the loop.
func TestADetachedServerFollowsAnIdleMaster(t *testing.T) {
	in, mv, sv := idle()
	if a := Decide(in); a.Kind != KindAttach {
		t.Errorf("%+v", a)
	}
	// One that is ahead of what was seen of the master has to wait for a newer look.
	ahead := gtid.GTID{Server: 1, Seq: 10}
	sv.Last.BinlogPos, sv.Last.BinlogState = gtid.At(ahead), gtid.StateOf(ahead)
	sv.LastOK = sv.Last
	if a := Decide(in); a.Kind == KindAttach {
		t.Errorf("attached although it may have diverged: %+v", a)
	}
	mv.Last.Sent, mv.Last.At = sv.Last.At.Add(time.Millisecond), sv.Last.At.Add(2*time.Millisecond)
	mv.LastOK = mv.Last
	if a := Decide(in); a.Kind != KindRejoin {
		t.Errorf("it has diverged: %+v", a)
	}
}

// A master that began as a copy has no older transactions in its binary log.
// That the others have them does not make them diverged.
func TestAMasterThatBeganAsACopyHasTheHistoryInItsData(t *testing.T) {
	in, mv, sv := idle()
	in.View.Cluster.Lineage = gtid.Lineage{{Epoch: 1, Server: 2, First: 1}, {Epoch: 2, Server: 1, First: 9}}
	old := gtid.GTID{Server: 2, Seq: 8}
	sv.LastOK.BinlogPos, sv.LastOK.BinlogState = gtid.At(old), gtid.StateOf(old)
	sv.Last = sv.LastOK
	mv.LastOK.Sent, mv.LastOK.At = sv.Last.At.Add(time.Millisecond), sv.Last.At.Add(2*time.Millisecond)
	mv.Last = mv.LastOK
	if a := Decide(in); a.Kind != KindAttach {
		t.Errorf("%+v", a)
	}
	// A tail that reaches into the new era is off the lineage.
	tail := gtid.GTID{Server: 2, Seq: 9}
	sv.LastOK.BinlogPos, sv.LastOK.BinlogState = gtid.At(tail), gtid.StateOf(tail)
	sv.Last = sv.LastOK
	if a := Decide(in); a.Kind != KindRejoin {
		t.Errorf("a tail: %+v", a)
	}
}

// A former master that was never fenced never followed its successor: it cannot
// have acknowledged anything to it, is not waited for when that is lost too, and
// does not make its transactions doubtful.
func TestAnUnfencedFormerMasterIsNoWitness(t *testing.T) {
	in, _, _ := idle()
	c := in.View.Cluster
	c.Durability, c.DurabilityState = topology.SemiSync, topology.DurabilityArmed
	c.Servers["db3"] = &topology.Server{Name: "db3", Address: "c:1", Role: topology.RoleSlave, Promotion: topology.PromotionNeutral}
	in.View.Servers["db3"] = &health.ServerView{Last: health.Observation{Reach: health.ReachRefused}}
	intent := &topology.Intent{Kind: topology.IntentFailover, OldMaster: "db1", Armed: true, Opening: &topology.Opening{Server: "db2"}}
	for _, must := range []bool{false, true} {
		c.Servers["db3"].MustFence = must
		d := newDecider(in)
		m := d.member("db3")
		if unseen := len(d.unseen(intent)) > 0; unseen == must {
			t.Errorf("must fence %v: unseen %v", must, unseen)
		}
		m.sv.Ceiling = gtid.GTID{Server: 1, Seq: 9}
		intent.Opening.Applied = gtid.GTID{Server: 1, Seq: 8}
		if unseen := len(d.unseen(intent)) > 0; unseen == must {
			t.Errorf("must fence %v, down since beyond the fork: unseen %v", must, unseen)
		}
		intent.Opening.Applied = m.sv.Ceiling
		if len(d.unseen(intent)) > 0 {
			t.Error("a server that was down before the fork was written counts as unseen")
		}
		m.sv.Ceiling = gtid.GTID{}
		// It was observed as a server that could acknowledge.
		m.sv.LastOK = health.Observation{Reach: health.ReachOK, LogBin: true, LogSlaveUpdates: true}
		if holds := d.couldHoldMore(intent, d.member("db3"), nil); holds == must {
			t.Errorf("must fence %v: could hold more: %v", must, holds)
		}
	}
}

// While a server that may have acknowledged the tail of a returned master is out,
// the master is not judged; when it was asked, or has a tail itself, it is.
func TestAReturnedMasterWaitsForWhoMayHaveAcknowledged(t *testing.T) {
	for name, c := range map[string]struct {
		change func(in *Input, b *topology.Break)
		waits  bool
	}{
		"db3 is out":    {func(*Input, *topology.Break) {}, true},
		"db3 was asked": {func(_ *Input, b *topology.Break) { b.Unseen = nil }, false},
		"db3 has diverged": {func(in *Input, _ *topology.Break) {
			in.View.Servers["db3"].Last = health.Observation{Reach: health.ReachOK, ReadOnly: true}
			in.View.Cluster.Servers["db3"].Diverged = []gtid.GTID{{Server: 2, Seq: 9}}
		}, false},
	} {
		in, mv, sv := idle()
		in.Policy.UndoUnacknowledged = true
		cl := in.View.Cluster
		cl.Lineage, cl.Epoch = gtid.Lineage{{Epoch: 1, Server: 2, First: 1}, {Epoch: 2, Server: 1, First: 9}}, 2
		cl.Servers["db3"] = &topology.Server{Name: "db3", Address: "c:1", Role: topology.RoleSlave, Source: "db1", Promotion: topology.PromotionNeutral}
		in.View.Servers["db3"] = &health.ServerView{Last: health.Observation{Reach: health.ReachTimeout}}
		tail := gtid.GTID{Server: 2, Seq: 10}
		sv.LastOK.SlavePos, sv.LastOK.BinlogPos, sv.LastOK.BinlogState = gtid.Position{}, gtid.At(tail), gtid.StateOf(tail)
		sv.Last = sv.LastOK
		mv.LastOK.Sent, mv.LastOK.At = sv.Last.At.Add(time.Millisecond), sv.Last.At.Add(2*time.Millisecond)
		mv.Last = mv.LastOK
		b := &topology.Break{Master: "db2", Armed: true, Unseen: []string{"db3"}}
		cl.Losses = []*topology.Break{b}
		c.change(&in, b)
		a := Decide(in)
		if waits := a.Kind != KindRejoin; waits != c.waits {
			t.Errorf("%s: %+v", name, a)
		}
		codes := ""
		for _, p := range Assess(in).Servers["db2"].Problems {
			codes += p.Code
		}
		if want := map[bool]string{true: "awaits_acker", false: "diverged"}[c.waits]; codes != want {
			t.Errorf("%s: problems %s, want %s", name, codes, want)
		}
	}
}
