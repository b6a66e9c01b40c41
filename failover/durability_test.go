package failover

import (
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/topology"
)

// armed is a cluster whose master db1 waits for db2, which streams.
func armed() (Input, *health.ServerView, *health.ServerView) {
	in, mv, sv := idle()
	c := in.View.Cluster
	c.Durability, c.DurabilityState = topology.SemiSync, topology.DurabilityArmed
	in.Policy = Policy{AckTimeout: 10 * time.Second, ServerTimeout: 30 * time.Second, HangTimeout: 2 * time.Second, Automatic: true}
	mv.Last.SemiSync = health.SemiSync{MasterEnabled: true, MasterOn: true, AfterSync: true, Clients: 1, Timeout: in.Policy.ServerTimeout}
	mv.LastOK = mv.Last
	sv.Last.Slave = &health.SlaveStatus{SourceHost: "a", SourcePort: 1, IO: health.ThreadYes, SQL: health.ThreadYes, UsingGTID: "Slave_Pos",
		Received: sv.Last.SlavePos, HeartbeatPeriod: time.Second / 2}
	sv.Last.SemiSync = health.SemiSync{SlaveEnabled: true, SlaveOn: true}
	sv.LastOK, sv.Advanced = sv.Last, in.View.Now.Add(-time.Second)
	in.Announced = newDecider(in).announcement()
	return in, mv, sv
}

// The connection of an acker that is frozen or cut off stays for many minutes.
// Commits that wait for it are the sign: first status says so, and after
// ack_timeout durability is given up, in semi-sync.
func TestAnAckerThatIsConnectedAndMute(t *testing.T) {
	in, mv, _ := armed()
	if r := Assess(in); r.Health != Healthy {
		t.Fatalf("nothing is wrong: %s %+v", r.Health, r.Problems)
	}
	mv.Last.SemiSync.Waiting = 3
	mv.WaitingSince = in.View.Now.Add(-5 * time.Second)
	if r := Assess(in); r.Health != Degraded || !strings.Contains(r.Problems[0].Text, "no acker answers: 1 are connected, and 3 commits have waited for 5s") {
		t.Errorf("%s %+v", r.Health, r.Problems)
	}
	if a := Decide(in); a.Kind == KindDisarm {
		t.Errorf("before ack_timeout: %+v", a)
	}
	mv.WaitingSince = in.View.Now.Add(-10 * time.Second)
	a := Decide(in)
	if a.Kind != KindDisarm || len(a.Journal) != 1 || a.Journal[0].(topology.SetDurabilityState).State != topology.DurabilityDegraded {
		t.Errorf("after ack_timeout: %+v", a)
	}
	in.View.Cluster.Durability = topology.Lossless
	mv.Last.SemiSync.Timeout = Endless
	in.View.Cluster.Endless = true
	if a := Decide(in); a.Kind == KindDisarm {
		t.Errorf("lossless gives durability up: %+v", a)
	}
}

// A degraded master waits again for an acker that hears it, not for one whose IO
// thread only has not noticed yet that it hears nothing.
func TestOnlyAnAckerThatHearsTheMasterArmsIt(t *testing.T) {
	in, mv, sv := armed()
	in.View.Cluster.DurabilityState = topology.DurabilityDegraded
	mv.Last.SemiSync.MasterEnabled, mv.Last.SemiSync.MasterOn = false, false
	in.Announced = newDecider(in).announcement()
	sv.Advanced = in.View.Now.Add(-3 * time.Second)
	if a := Decide(in); a.Kind == KindArm {
		t.Errorf("it has heard nothing for 3 s: %+v", a)
	}
	sv.Advanced = in.View.Now.Add(-1900 * time.Millisecond)
	if a := Decide(in); a.Kind != KindArm {
		t.Errorf("%+v", a)
	}
}
