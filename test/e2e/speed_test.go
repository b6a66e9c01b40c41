package e2e

import (
	"os"
	"testing"
	"time"

	"github.com/repld/repld/test/rig"
	"github.com/repld/repld/test/speed"
)

// startFast makes a healthy cluster of three under programs that are built as
// they are shipped, without the race detector.
func startFast(t *testing.T) *rig.Rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "repld-speed-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := rig.Build(t.Context(), dir, false); err != nil {
		t.Fatal(err)
	}
	r := start(t, rig.Options{Bin: dir, Servers: 3})
	if err := r.InitAll(within(t)); err != nil {
		t.Fatal(err)
	}
	return r
}

// A killed master is replaced within a fraction of a second. The bounds are
// those of docs/performance.md, with the slack of a busy machine; make bench
// measures.
func TestFailoverIsFast(t *testing.T) {
	run, err := speed.Failover(t.Context(), startFast(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("open %v, first acknowledged write %v, other slave following %v after the kill; history says %v; %s",
		run.Open, run.FirstAck, run.Following, run.Said, run.Report)
	for _, c := range []struct {
		what      string
		took, max time.Duration
	}{
		{"the new master was open", run.Open, speed.OpenMedian},
		{"the first write was acknowledged", run.FirstAck, speed.FirstAckMedian},
		{"the other slave followed", run.Following, speed.FollowingMedian},
	} {
		if c.took > speed.Slack*c.max {
			t.Errorf("%s %v after the kill, not within %d times %v", c.what, c.took, speed.Slack, c.max)
		}
	}
	if run.Said <= 0 || run.Said > run.Open+time.Second {
		t.Errorf("history says opened after %v, measured were %v from the kill", run.Said, run.Open)
	}
}

// An idle repld costs next to nothing.
func TestIdleIsCheap(t *testing.T) {
	r := startFast(t)
	use, err := speed.Idle(t.Context(), r.Repld.Pid(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.2f %% of a core, %.1f MB", 100*use.CPU, float64(use.RSS)/(1<<20))
	if use.CPU <= 0 || use.CPU > speed.Slack*speed.IdleCPU {
		t.Errorf("%.2f %% of a core, not within %d times %.2f", 100*use.CPU, speed.Slack, 100*speed.IdleCPU)
	}
	if use.RSS == 0 || use.RSS > speed.Slack*speed.IdleRSS {
		t.Errorf("%d bytes resident, not within %d times %d", use.RSS, speed.Slack, speed.IdleRSS)
	}
}

// Clients meet no other errors in a switchover than read-only and closed
// connections, and lose nothing. How fast it is, make bench measures.
func TestSwitchoverToClients(t *testing.T) {
	runs, report, err := speed.Switchovers(t.Context(), startFast(t), 3)
	if err != nil {
		t.Fatal(err)
	}
	var open, ack []time.Duration
	for _, run := range runs {
		open, ack = append(open, run.Open), append(ack, run.FirstAck)
	}
	t.Logf("open %v, first acknowledged write %v after the closing; %s", open, ack, report)
}
