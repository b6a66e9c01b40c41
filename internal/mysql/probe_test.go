package mysql

import (
	"context"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/topology"
)

func TestAnObservationHoldsWhatTheServersSay(t *testing.T) {
	n := rig(t, 2)
	master, slave := n[0], n[1]
	master.lead()
	slave.follow(master, true)
	last := master.write(1, 3)
	slave.applied(last)

	m := master.look()
	if m.ReadOnly || !m.LogBin || !m.LogSlaveUpdates || m.EventScheduler || m.Slave != nil || m.Identity.ServerID != 1 || m.Identity.UID == "" {
		t.Errorf("master: %+v", m)
	}
	if m.BinlogPos.Of(0) != last || !m.BinlogState.Contains(last) {
		t.Errorf("master stands at %s, state %s, want %s", m.BinlogPos, m.BinlogState, last)
	}
	if off := m.ClockOffset; off < -time.Second || off > time.Second {
		t.Errorf("clock offset to the same host is %s", off)
	}
	if age := time.Since(m.Started); age < 0 || age > time.Minute {
		t.Errorf("started %s ago", age)
	}
	s := slave.look()
	if s.Slave == nil {
		t.Fatal("slave has no status")
	}
	if !s.ReadOnly || !s.SemiSync.SlaveEnabled || !s.SemiSync.SlaveOn || !s.Slave.TLS || s.Slave.UsingGTID != "Slave_Pos" ||
		s.Slave.SourceServerID != 1 || int(s.Slave.SourcePort) != master.Port || s.Slave.HeartbeatPeriod != 500*time.Millisecond ||
		s.Slave.Filtered || s.Slave.Delay != 0 || s.Slave.RelayLogFile == "" || s.Slave.RelayLogPos == 0 {
		t.Errorf("slave: %+v %+v", s.SemiSync, s.Slave)
	}
	if s.Slave.Received.Of(0) != last || s.SlavePos.Of(0) != last {
		t.Errorf("slave received %s and applied %s, want %s", s.Slave.Received, s.SlavePos, last)
	}
	before := s.Slave.Heartbeats
	slave.until("another heartbeat", func(o health.Observation) bool { return o.Slave.Heartbeats > before })

	// The memo of parsed positions must not outlive a change.
	next := master.write(4, 4)
	slave.applied(next)
	if got := master.look().BinlogState.High(0, 1); got != next.Seq {
		t.Errorf("binary log state says %d, want %d", got, next.Seq)
	}
}

func TestAProbeTellsKilledFromFrozenFromUnkind(t *testing.T) {
	n := rig(t, 1)[0]
	n.look()
	short := func() health.Observation {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		begun := time.Now()
		o := n.prober.Probe(ctx)
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("a probe with a deadline of 0.3 s took %s", took)
		}
		return o
	}
	n.must(n.Freeze())
	if o := short(); o.Reach != health.ReachTimeout {
		t.Errorf("frozen, open connection: %q %s", o.Reach, o.Err)
	}
	if o := short(); o.Reach != health.ReachTimeout {
		t.Errorf("frozen, new connection: %q %s", o.Reach, o.Err)
	}
	n.must(n.Thaw())
	n.until("ok after the thaw", func(o health.Observation) bool { return o.Reach == health.ReachOK })

	n.must(n.Kill())
	if o := short(); o.Reach != health.ReachBroken {
		t.Errorf("killed, open connection: %q %s", o.Reach, o.Err)
	}
	if o := short(); o.Reach != health.ReachRefused {
		t.Errorf("killed, new connection: %q %s", o.Reach, o.Err)
	}
	n.must(n.StartAgain(bounded(t)))
	n.look()

	n.MustExec(t, "ALTER USER 'repld'@'%' IDENTIFIED BY 'changed'")
	n.prober.mu.Lock()
	n.prober.drop()
	n.prober.mu.Unlock()
	o := short()
	if o.Reach != health.ReachUnkind || o.Errno != 1045 {
		t.Errorf("wrong password: %q %d %s", o.Reach, o.Errno, o.Err)
	}
	if strings.Contains(o.Err, daemonPassword) {
		t.Errorf("the error shows the password: %s", o.Err)
	}
}

func TestTooManyConnectionsIsAliveAndTheOpenConnectionGoesOn(t *testing.T) {
	n := rig(t, 1, "max-connections=10")[0]
	n.look()
	var err error
	for range 30 {
		var c *Conn
		if c, err = Dial(bounded(t), Target{Address: n.Addr(), User: n.AdminUser, Password: n.AdminPassword}); err != nil {
			break
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	if reach, number := Classify(err); reach != health.ReachUnkind || number != 1040 {
		t.Fatalf("%q %d %v", reach, number, err)
	}
	n.look()
}

func TestAForeignServerBehindTheAddressIsNoAnswer(t *testing.T) {
	n := rig(t, 1)[0]
	wrong := n.look().Identity
	wrong.UID = "another"
	p := NewProber(ProberOptions{Server: "db1", Target: n.target, Identity: func() topology.Identity { return wrong }})
	t.Cleanup(func() { _ = p.Close() })
	o := p.Probe(bounded(t))
	if o.Reach != health.ReachForeign || !strings.Contains(o.Err, "server uid was another") {
		t.Errorf("%q %s", o.Reach, o.Err)
	}
}

// TestTheCostOfAnIdleCluster reports what probing three servers each 100 ms
// costs this process, all at the same moment as the monitor does; it fails only
// far above the target, for the machine may be busy.
func TestTheCostOfAnIdleCluster(t *testing.T) {
	n := rig(t, 3)
	n[0].lead()
	n[0].must(n[0].server.Arm(bounded(t), time.Minute))
	n[1].follow(n[0], true)
	n[2].follow(n[0], true)
	for _, one := range n {
		one.look()
	}
	cpu := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	begun, used := time.Now(), cpu()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	const rounds = 30
	for range rounds {
		<-tick.C
		var all sync.WaitGroup
		for _, one := range n {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				if o := one.prober.Probe(ctx); o.Reach != health.ReachOK {
					t.Errorf("%s: %s", o.Server, o.Err)
				}
			})
		}
		all.Wait()
	}
	spent, took := cpu()-used, time.Since(begun)
	used = cpu()
	for range rounds {
		n[1].look()
	}
	t.Logf("the work of a probe of a slave, without waking up: %s", (cpu()-used)/rounds)
	t.Logf("3 servers each 100 ms: %s a probe, %.2f %% of a core", spent/rounds/3, 100*spent.Seconds()/took.Seconds())
	if spent/rounds/3 > 5*time.Millisecond {
		t.Errorf("a probe costs %s", spent/rounds/3)
	}
}
