package failover

import (
	"testing"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/topology"
)

// A slave that could not be asked when the failover began and is found receiving
// from the old master calls it off, before its IO thread is stopped; one that
// only seems connected does not.
func TestASlaveThatStillReceivesCallsAFailoverOff(t *testing.T) {
	in, mv, sv := armed()
	now := in.View.Now
	begun := now.Add(-5 * time.Second)
	in.View.Cluster.Intent = &topology.Intent{ID: "7", Kind: topology.IntentFailover, Epoch: 2, OldMaster: "db1", Symptom: begun, Begun: begun, Armed: true}
	mv.Last = health.Observation{Sent: now.Add(-1100 * time.Millisecond), At: now.Add(-100 * time.Millisecond), Reach: health.ReachTimeout}
	mv.LastOK.At, mv.FailingSince = begun.Add(-3*time.Second), begun.Add(-2*time.Second)
	sv.Last.Sent, sv.Last.At = now.Add(-2*time.Millisecond), now.Add(-time.Millisecond)
	sv.LastOK = sv.Last
	policy := health.DetectPolicy{HangTimeout: in.Policy.HangTimeout}

	sv.Advanced = now.Add(-3 * time.Second)
	if in.Verdict = health.Detect(in.View, policy); in.Verdict.State != health.StateHung {
		t.Fatalf("%+v", in.Verdict)
	}
	if a := Decide(in); a.Kind != KindStopIO {
		t.Errorf("connected and silent for longer than hang_timeout: %+v", a)
	}
	sv.Advanced = sv.Last.At
	if in.Verdict = health.Detect(in.View, policy); in.Verdict.State != health.StateVetoed {
		t.Fatalf("%+v", in.Verdict)
	}
	if a := Decide(in); a.Ends != topology.ResultRolledBack {
		t.Errorf("it receives from the master: %+v", a)
	}
	// Once its thread is stopped it speaks for nobody.
	sv.Last.Slave.IO = health.ThreadNo
	if in.Verdict = health.Detect(in.View, policy); Decide(in).Ends != "" {
		t.Errorf("stopped: %+v", Decide(in))
	}
}
