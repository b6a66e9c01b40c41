package health

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// script is a server as the monitor sees it: probes answer what it holds. Only
// the pacing is tested with it; what probes find is tested on real servers.
type script struct {
	mu     sync.Mutex
	obs    Observation
	probes []time.Time
	hang   bool
}

func (s *script) Probe(ctx context.Context) Observation {
	s.mu.Lock()
	s.probes = append(s.probes, time.Now())
	obs, hang := s.obs, s.hang
	s.mu.Unlock()
	if hang {
		<-ctx.Done()
		return Observation{Reach: ReachTimeout, Err: "no answer"}
	}
	time.Sleep(time.Millisecond)
	return obs
}

func (s *script) Close() error { return nil }

func (s *script) set(f func(*script)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

// since counts the probes after t.
func (s *script) since(t time.Time) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.probes {
		if at.After(t) {
			n++
		}
	}
	return n
}

// watched runs a monitor of a master and a slave inside a bubble of time of its
// own, and counts the changes that it tells.
func watched(t *testing.T, test func(m *Monitor, master, slave *script, told func() int)) {
	synctest.Test(t, func(t *testing.T) {
		servers := map[string]*script{}
		c := &topology.Cluster{Name: "main", Master: "db1", Servers: map[string]*topology.Server{}}
		for _, name := range []string{"db1", "db2"} {
			servers[name] = &script{obs: Observation{Reach: ReachOK}}
			c.Servers[name] = &topology.Server{Name: name, Role: topology.RoleSlave}
		}
		c.Servers["db1"].Role = topology.RoleMaster
		servers["db2"].obs.Slave = &SlaveStatus{IO: ThreadYes, SQL: ThreadYes}
		m := NewMonitor(MonitorConfig{
			Interval: 100 * time.Millisecond, Timeout: time.Second, Quiet: 400 * time.Millisecond,
			NewProber: func(_ string, s topology.Server) Prober { return servers[s.Name] },
		}, c, time.Now())
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var mu sync.Mutex
		count := 0
		wg.Go(func() { m.Run(ctx) })
		wg.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-m.Changed():
					mu.Lock()
					count++
					mu.Unlock()
				}
			}
		})
		m.StreamUp("db1", time.Now())
		test(m, servers["db1"], servers["db2"], func() int { mu.Lock(); defer mu.Unlock(); return count })
		cancel()
		wg.Wait()
	})
}

// between fails unless n is within bounds.
func between(t *testing.T, what string, n, low, high int) {
	t.Helper()
	if n < low || n > high {
		t.Errorf("%s: %d, not %d to %d", what, n, low, high)
	}
}

func TestAQuietClusterIsProbedLessOftenAndToldOfAtEachRound(t *testing.T) {
	watched(t, func(m *Monitor, master, slave *script, told func() int) {
		begun := time.Now()
		time.Sleep(950 * time.Millisecond)
		between(t, "probes in the first second", master.since(begun), 9, 11)
		time.Sleep(2 * time.Second)
		quiet, before := time.Now(), told()
		time.Sleep(4 * time.Second)
		between(t, "probes of the master in 4 quiet seconds", master.since(quiet), 9, 11)
		between(t, "probes of the slave in 4 quiet seconds", slave.since(quiet), 9, 11)
		between(t, "changes told in 4 quiet seconds", told()-before, 9, 11)
		if age := time.Since(m.View().Servers["db2"].Last.At); age > 500*time.Millisecond {
			t.Errorf("the slave was seen %v ago", age)
		}
	})
}

func TestATransactionEndsTheQuietAtOnce(t *testing.T) {
	watched(t, func(m *Monitor, master, slave *script, _ func() int) {
		time.Sleep(3 * time.Second)
		for i := range 4 {
			time.Sleep(7 * time.Millisecond * time.Duration(i))
			// Wait for a round to have begun, then let something happen.
			n := slave.since(time.Time{})
			for slave.since(time.Time{}) == n {
				time.Sleep(time.Millisecond)
			}
			at := time.Now()
			m.StreamEvent("db1", at, gtid.GTID{Seq: uint64(i + 1)}, "", 0)
			time.Sleep(120 * time.Millisecond)
			between(t, "probes of the slave within 120 ms", slave.since(at), 1, 2)
			time.Sleep(3 * time.Second)
		}
	})
}

func TestABrokenStreamHurriesEveryProbe(t *testing.T) {
	watched(t, func(m *Monitor, master, slave *script, _ func() int) {
		time.Sleep(3 * time.Second)
		master.set(func(s *script) { s.obs = Observation{Reach: ReachRefused, Err: "refused"} })
		at := time.Now()
		m.StreamDown("db1", at, errors.New("EOF"))
		time.Sleep(12 * time.Millisecond)
		between(t, "probes of the master within 12 ms", master.since(at.Add(-1)), 2, 2)
		between(t, "probes of the slave within 12 ms", slave.since(at.Add(-1)), 2, 2)
		if mv := m.View().Servers["db1"]; mv.Refusals != 2 {
			t.Errorf("%d dials refused", mv.Refusals)
		}
	})
}

func TestAStuckServerDelaysNoOtherAndEndsTheQuiet(t *testing.T) {
	watched(t, func(m *Monitor, master, slave *script, _ func() int) {
		time.Sleep(3 * time.Second)
		slave.set(func(s *script) { s.hang = true })
		time.Sleep(1500 * time.Millisecond) // until the first probe of it has failed
		at := time.Now()
		time.Sleep(2 * time.Second)
		between(t, "probes of the master in 2 s beside a stuck slave", master.since(at), 19, 21)
		if sv := m.View().Servers["db2"]; sv.Last.Reach != ReachTimeout {
			t.Errorf("the stuck slave is %q", sv.Last.Reach)
		}
	})
}

func TestWithoutTheStreamNothingIsQuiet(t *testing.T) {
	watched(t, func(m *Monitor, master, _ *script, _ func() int) {
		m.StreamDown("db1", time.Now(), errors.New("denied"))
		time.Sleep(3 * time.Second)
		at := time.Now()
		time.Sleep(2 * time.Second)
		between(t, "probes in 2 s without the stream", master.since(at), 19, 21)
	})
}

func TestEveryFieldOfAnObservationIsNewsButTime(t *testing.T) {
	base := func() *Observation {
		return &Observation{Reach: ReachOK, Slave: &SlaveStatus{IO: ThreadYes, Received: gtid.At(gtid.GTID{Server: 1, Seq: 5})}}
	}
	for name, change := range map[string]func(*Observation){
		"read_only": func(o *Observation) { o.ReadOnly = true },
		"applied":   func(o *Observation) { o.SlavePos = gtid.At(gtid.GTID{Server: 1, Seq: 6}) },
		"binlog":    func(o *Observation) { o.BinlogPos = gtid.At(gtid.GTID{Server: 1, Seq: 6}) },
		"received":  func(o *Observation) { o.Slave.Received = gtid.At(gtid.GTID{Server: 1, Seq: 6}) },
		"IO thread": func(o *Observation) { o.Slave.IO = ThreadConnecting },
		"relay log": func(o *Observation) { o.Slave.RelayLogPos = 4 },
		"no slave":  func(o *Observation) { o.Slave = nil },
		"rescue":    func(o *Observation) { o.Fetch = &SlaveStatus{} },
		"ackers":    func(o *Observation) { o.SemiSync.Clients = 1 },
		"restart":   func(o *Observation) { o.Started = o.Started.Add(2 * time.Second) },
		"unkind":    func(o *Observation) { o.Reach, o.Err = ReachUnkind, "1040" },
	} {
		o := base()
		change(o)
		if !o.news(base()) {
			t.Errorf("%s: no news", name)
		}
	}
	later := base()
	later.Sent, later.At, later.ClockOffset, later.Slave.Heartbeats = time.Now(), time.Now(), time.Millisecond, 7
	if later.news(base()) {
		t.Error("the passing of time is news")
	}
	refused := &Observation{Reach: ReachRefused}
	if !refused.news(refused) {
		t.Error("a further refusal is no news, although refusals are counted")
	}
}
