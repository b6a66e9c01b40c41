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

// fakes are probers whose answers a test chooses; time is the bubble's.
type fakes struct {
	mu     sync.Mutex
	answer map[string]func(ctx context.Context) Observation
	sent   map[string][]time.Time
	closed map[string]int
}

type fake struct {
	all  *fakes
	name string
}

func (f *fake) Probe(ctx context.Context) Observation {
	f.all.mu.Lock()
	f.all.sent[f.name] = append(f.all.sent[f.name], time.Now())
	answer := f.all.answer[f.name]
	f.all.mu.Unlock()
	if answer == nil {
		return Observation{Reach: ReachOK}
	}
	return answer(ctx)
}

func (f *fake) Close() error {
	f.all.mu.Lock()
	defer f.all.mu.Unlock()
	f.all.closed[f.name]++
	return nil
}

// set chooses a server's answers from now on.
func (f *fakes) set(name string, answer func(context.Context) Observation) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer[name] = answer
}

func always(o Observation) func(context.Context) Observation {
	return func(context.Context) Observation { return o }
}

func hangs(ctx context.Context) Observation {
	<-ctx.Done()
	return Observation{Reach: ReachTimeout}
}

// since gives how often a server was probed after t.
func (f *fakes) since(name string, t time.Time) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, at := range f.sent[name] {
		if at.After(t) {
			n++
		}
	}
	return n
}

func three() *topology.Cluster {
	c := &topology.Cluster{Name: "main", Master: "db1", Lineage: gtid.Lineage{{Epoch: 1, Server: 1, First: 1}}, Servers: map[string]*topology.Server{}}
	for i, name := range []string{"db1", "db2", "db3"} {
		c.Servers[name] = &topology.Server{Name: name, Address: name + ":1", Identity: topology.Identity{ServerID: uint32(i + 1)}, Role: topology.RoleSlave, Source: "db1"}
	}
	c.Servers["db1"].Role, c.Servers["db1"].Source = topology.RoleMaster, ""
	return c
}

// watch runs a monitor of three servers inside a bubble of fake time.
func watch(t *testing.T, test func(t *testing.T, m *Monitor, f *fakes)) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakes{answer: map[string]func(context.Context) Observation{}, sent: map[string][]time.Time{}, closed: map[string]int{}}
		m := NewMonitor(MonitorConfig{Interval: 100 * time.Millisecond, Timeout: time.Second,
			NewProber: func(_ string, s topology.Server) Prober { return &fake{f, s.Name} }}, three(), time.Now())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { m.Run(ctx); close(done) }()
		test(t, m, f)
		cancel()
		<-done // Run waits for its workers: nothing may be left in the bubble
		for _, name := range []string{"db1", "db2", "db3"} {
			if f.closed[name] == 0 {
				t.Errorf("the prober of %s was not closed", name)
			}
		}
	})
}

func TestEachServerIsProbedAtTheInterval(t *testing.T) {
	watch(t, func(t *testing.T, _ *Monitor, f *fakes) {
		begun := time.Now()
		time.Sleep(2*time.Second + 50*time.Millisecond)
		for _, name := range []string{"db1", "db2", "db3"} {
			if n := f.since(name, begun); n != 20 {
				t.Errorf("%s was probed %d times in 2 s, want 20", name, n)
			}
		}
	})
}

func TestAStuckServerDelaysNobody(t *testing.T) {
	watch(t, func(t *testing.T, m *Monitor, f *fakes) {
		f.set("db2", hangs)
		begun := time.Now()
		time.Sleep(10*time.Second + 50*time.Millisecond)
		if n := f.since("db1", begun); n != 100 {
			t.Errorf("the master was probed %d times in 10 s, want 100", n)
		}
		if n := f.since("db2", begun); n < 9 || n > 11 {
			t.Errorf("the stuck server was probed %d times in 10 s, want one each probe_timeout", n)
		}
		v := m.View().Servers["db2"]
		if v.Last.Reach != ReachTimeout || v.Last.At.Sub(v.Last.Sent) != time.Second || v.FailingSince.IsZero() {
			t.Errorf("the stuck server: %+v", v.Last)
		}
	})
}

func TestALostMasterIsLookedAtUrgently(t *testing.T) {
	watch(t, func(t *testing.T, m *Monitor, f *fakes) {
		time.Sleep(350 * time.Millisecond)
		f.set("db1", always(Observation{Reach: ReachRefused}))
		time.Sleep(100 * time.Millisecond) // noticed by the ordinary probe
		begun := time.Now()
		time.Sleep(400 * time.Millisecond)
		for _, name := range []string{"db1", "db2", "db3"} {
			if n := f.since(name, begun); n < 45 {
				t.Errorf("%s was probed %d times in 400 ms, want one each 8 ms", name, n)
			}
		}
		if v := m.View().Servers["db1"]; v.Refusals < 45 || v.Last.At.Sub(v.RefusedFirst) < 400*time.Millisecond {
			t.Errorf("%d refusals since %v", v.Refusals, v.RefusedFirst)
		}
		f.set("db1", nil)
		time.Sleep(1100 * time.Millisecond)
		begun = time.Now()
		time.Sleep(time.Second)
		if n := f.since("db2", begun); n > 11 {
			t.Errorf("db2 was probed %d times in 1 s after the master was back", n)
		}
		if v := m.View().Servers["db1"]; v.Refusals != 0 || !v.FailingSince.IsZero() {
			t.Errorf("the master is back: %d refusals, failing since %v", v.Refusals, v.FailingSince)
		}
	})
}

func TestABrokenStreamAsksEverybodyAtOnce(t *testing.T) {
	watch(t, func(t *testing.T, m *Monitor, f *fakes) {
		m.StreamUp("db1", time.Now())
		m.StreamEvent("db1", time.Now(), gtid.GTID{Server: 1, Seq: 7}, "binlog.000001", 99)
		time.Sleep(250 * time.Millisecond)
		broken := time.Now()
		m.StreamDown("db1", broken, errors.New("EOF"))
		synctest.Wait()
		v := m.View()
		for name, sv := range v.Servers {
			if sv.Last.Sent.Before(broken) {
				t.Errorf("%s was not asked when the stream broke", name)
			}
		}
		if st := v.Stream; st.Connected || !st.Since.Equal(broken) || st.Last.Seq != 7 || st.Err != "EOF" {
			t.Errorf("stream: %+v", st)
		}
		time.Sleep(time.Second)
		m.StreamDown("db1", time.Now(), errors.New("refused"))
		if st := m.View().Stream; !st.Since.Equal(broken) || st.Err != "refused" {
			t.Errorf("a stream that fails to connect again moved the time of its break: %+v", st)
		}
	})
}

func TestRefreshWaitsForAProbeThatBeganAfterIt(t *testing.T) {
	watch(t, func(t *testing.T, m *Monitor, f *fakes) {
		f.set("db3", func(context.Context) Observation {
			time.Sleep(300 * time.Millisecond)
			return Observation{Reach: ReachOK}
		})
		time.Sleep(150 * time.Millisecond) // a slow probe is under way
		begun := time.Now()
		m.Refresh(t.Context(), "db3", "nobody")
		if sent := m.View().Servers["db3"].Last.Sent; sent.Before(begun) {
			t.Errorf("refreshed by a probe that began %v before", begun.Sub(sent))
		}
		f.set("db3", hangs)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		begun = time.Now()
		m.Refresh(ctx, "db3")
		if took := time.Since(begun); took != 50*time.Millisecond {
			t.Errorf("Refresh took %v beyond its context", took)
		}
	})
}

func TestServersComeAndGo(t *testing.T) {
	watch(t, func(t *testing.T, m *Monitor, f *fakes) {
		time.Sleep(time.Second)
		c := three()
		delete(c.Servers, "db3")
		c.Servers["db2"].Address = "elsewhere:1"
		m.SetCluster(c)
		synctest.Wait()
		left := time.Now()
		time.Sleep(time.Second)
		if n := f.since("db3", left); n > 0 || f.closed["db3"] != 1 {
			t.Errorf("a removed server was probed %d times, closed %d times", n, f.closed["db3"])
		}
		if f.closed["db2"] != 1 || f.since("db2", left) == 0 {
			t.Error("a server with a new address did not get a new prober")
		}
		if v := m.View(); v.Servers["db3"] != nil || v.Servers["db2"] == nil {
			t.Errorf("view: %v", v.Servers)
		}
	})
}

func TestASleepOfRepldIsNoticed(t *testing.T) {
	watch(t, func(t *testing.T, m *Monitor, _ *fakes) {
		time.Sleep(time.Second)
		if awake := m.View().AwakeSince; time.Since(awake) < time.Second {
			t.Error("an ordinary second was taken for a sleep")
		}
		late := time.Now().Add(3 * time.Second)
		m.beat(late)
		if !m.View().AwakeSince.Equal(late) {
			t.Error("three seconds without a tick went unnoticed")
		}
	})
}

// A network that was down for all of them comes back for one server first: the
// silence of the others counts from then on.
func TestBeingCutOffIsNoSilenceOfTheMaster(t *testing.T) {
	watch(t, func(t *testing.T, m *Monitor, f *fakes) {
		slave := always(Observation{Reach: ReachOK, Slave: &SlaveStatus{IO: ThreadYes, SQL: ThreadYes}})
		f.set("db2", slave)
		f.set("db3", slave)
		time.Sleep(time.Second)
		for _, name := range []string{"db1", "db2", "db3"} {
			f.set(name, hangs)
		}
		time.Sleep(10 * time.Second)
		policy := DetectPolicy{HangTimeout: 2 * time.Second}
		if v := Detect(m.View(), policy); v.State != StateCutOff {
			t.Errorf("while it is cut off: %+v", v)
		}
		f.set("db2", slave)
		back := time.Now()
		for time.Since(back) < 1900*time.Millisecond {
			time.Sleep(50 * time.Millisecond)
			if v := Detect(m.View(), policy); v.Lost() {
				t.Fatalf("%v after the first server answered: %+v", time.Since(back), v)
			}
		}
		time.Sleep(3 * time.Second)
		if v := Detect(m.View(), policy); v.State != StateHung {
			t.Errorf("long after: %+v", v)
		}
	})
}

// What a server that is down can have received is bounded by where the master
// was at the first look after it was found down.
func TestTheCeilingOfAServerThatIsDown(t *testing.T) {
	watch(t, func(t *testing.T, m *Monitor, f *fakes) {
		at := func(seq uint64) Observation {
			return Observation{Reach: ReachOK, BinlogPos: gtid.At(gtid.GTID{Server: 1, Seq: seq})}
		}
		f.set("db1", always(at(5)))
		f.set("db2", always(Observation{Reach: ReachRefused}))
		time.Sleep(time.Second)
		f.set("db1", always(at(9)))
		time.Sleep(time.Second)
		v := m.View()
		if c := v.Servers["db2"].Ceiling; c.Seq != 5 {
			t.Errorf("ceiling %v, want 0-1-5", c)
		}
		if c := v.Servers["db3"].Ceiling; !c.IsZero() {
			t.Errorf("a server that is up has the ceiling %v", c)
		}
		f.set("db2", always(Observation{Reach: ReachOK}))
		f.set("db1", always(Observation{Reach: ReachRefused}))
		time.Sleep(time.Second)
		f.set("db2", always(Observation{Reach: ReachRefused}))
		time.Sleep(time.Second)
		back := at(7)
		back.ReadOnly = true
		f.set("db1", always(back))
		time.Sleep(5 * time.Second)
		if c := m.View().Servers["db2"].Ceiling; !c.IsZero() {
			t.Errorf("a restarted master, which may have lost more, gives the ceiling %v", c)
		}
		f.set("db2", hangs)
		time.Sleep(3 * time.Second)
		if c := m.View().Servers["db2"].Ceiling; !c.IsZero() {
			t.Errorf("a server that is silent, and may be up, has the ceiling %v", c)
		}
	})
}
