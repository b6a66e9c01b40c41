package failover

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// three is an armed cluster without chains: db1 the master at 0-1-100, db2 and
// db4 its slaves, all in order.
func three() Input {
	in := chain()
	delete(in.View.Cluster.Servers, "db3")
	delete(in.View.Servers, "db3")
	seen(in, "db1", func(_ *health.ServerView, o *health.Observation, _ *health.SlaveStatus) {
		o.BinlogPos, o.BinlogState = at(100), gtid.StateOf(gtid.GTID{Server: 1, Seq: 100})
	})
	return in
}

// slaveAs changes how db2 of three() is seen: its threads, and what it received
// and applied of the 100 transactions of the master.
func slaveAs(in Input, io, sql health.Thread, received, applied uint64) {
	seen(in, "db2", func(_ *health.ServerView, o *health.Observation, st *health.SlaveStatus) {
		st.IO, st.SQL, st.Received = io, sql, at(received)
		o.SlavePos, o.BinlogPos, o.BinlogState = at(applied), at(applied), gtid.StateOf(gtid.GTID{Server: 1, Seq: applied})
	})
}

// What repld does next with a slave that a person wants stopped, and whether it
// is then as wanted. Nothing received is ever left unapplied with both threads
// down, nothing is started that was stopped.
func TestASlaveThatAPersonStops(t *testing.T) {
	const yes, no, connecting = health.ThreadYes, health.ThreadNo, health.ThreadConnecting
	for name, c := range map[string]struct {
		held              topology.Held
		io, sql           health.Thread
		received, applied uint64
		change            func(st *health.SlaveStatus)
		want              Kind
		asHeld            bool
	}{
		"runs":                             {topology.HeldAll, yes, yes, 100, 100, nil, KindStopIO, false},
		"runs and lags":                    {topology.HeldAll, yes, yes, 100, 90, nil, KindStopIO, false},
		"applies what it received":         {topology.HeldAll, no, yes, 100, 90, nil, KindWait, false},
		"has applied it":                   {topology.HeldAll, no, yes, 100, 100, nil, KindStopSQL, false},
		"is stopped":                       {topology.HeldAll, no, no, 100, 100, nil, KindWait, true},
		"connects":                         {topology.HeldAll, connecting, yes, 100, 100, nil, KindStopIO, false},
		"its SQL thread was stopped first": {topology.HeldAll, yes, no, 100, 90, nil, KindStartSQL, false},
		"SQL thread stopped, none pending": {topology.HeldAll, yes, no, 100, 100, nil, KindStopIO, false},
		"its SQL thread failed":            {topology.HeldAll, yes, no, 100, 90, func(st *health.SlaveStatus) { st.SQLErrno = 1062 }, KindWait, false},
		"both were stopped by hand":        {topology.HeldAll, no, no, 100, 90, nil, KindWait, false},
		"drained by a failover": {topology.HeldAll, no, yes, 0, 100, func(st *health.SlaveStatus) {
			st.UsingGTID, st.SQLState = "No", "Slave has read all relay log; waiting for more updates"
		}, KindWait, true},
		"only the SQL thread, runs":       {topology.HeldSQL, yes, yes, 100, 90, nil, KindStopSQL, false},
		"only the SQL thread, connecting": {topology.HeldSQL, connecting, yes, 100, 90, nil, KindWait, false},
		"only the SQL thread, stopped":    {topology.HeldSQL, yes, no, 100, 50, nil, KindWait, true},
	} {
		t.Run(name, func(t *testing.T) {
			in := three()
			in.View.Cluster.Servers["db2"].Held = c.held
			slaveAs(in, c.io, c.sql, c.received, c.applied)
			if c.change != nil {
				seen(in, "db2", func(_ *health.ServerView, _ *health.Observation, st *health.SlaveStatus) { c.change(st) })
			}
			a := Decide(in)
			kind := KindWait
			for _, s := range a.Servers {
				if s == "db2" {
					kind = a.Kind
				}
			}
			if kind != c.want {
				t.Errorf("%s %v, not %s", a.Kind, a.Servers, c.want)
			}
			if r := Assess(in).Servers["db2"]; r.AsHeld != c.asHeld {
				t.Errorf("as wanted: %v", r.AsHeld)
			}
		})
	}
}

// A stopped slave is started again when that is wanted, by the way that drops
// nothing.
func TestASlaveThatAPersonStartsAgain(t *testing.T) {
	const yes, no = health.ThreadYes, health.ThreadNo
	for name, c := range map[string]struct {
		io, sql           health.Thread
		received, applied uint64
		want              Kind
	}{
		"nothing to apply":                {no, no, 100, 100, KindAttach},
		"only the SQL thread was stopped": {yes, no, 100, 50, KindStartSQL},
		"both, with something to apply":   {no, no, 100, 50, KindDrain},
		"the IO thread, still applying":   {no, yes, 100, 50, KindWait},
		"the IO thread":                   {no, yes, 100, 100, KindAttach},
	} {
		t.Run(name, func(t *testing.T) {
			in := three()
			in.View.Cluster.Stopped = []string{"db2"}
			slaveAs(in, c.io, c.sql, c.received, c.applied)
			a, _ := newDecider(in).followAll()
			kind := a.Kind
			if kind == "" {
				kind = KindWait
			}
			if kind != c.want {
				t.Errorf("%s %v, not %s", a.Kind, a.Servers, c.want)
			}
		})
	}
}

// An error that the IO thread had when it was stopped does not make a slave that a
// person stopped a broken one: replctl start would be refused for what is past.
func TestAStoppedSlaveIsNotBrokenByAnOldError(t *testing.T) {
	in := three()
	in.View.Cluster.Servers["db2"].Held = topology.HeldAll
	slaveAs(in, health.ThreadNo, health.ThreadNo, 100, 100)
	seen(in, "db2", func(_ *health.ServerView, _ *health.Observation, st *health.SlaveStatus) { st.IOErrno = 2003 })
	if r := Assess(in).Servers["db2"]; r.State != "stopped" {
		t.Errorf("stopped by a person: state %q", r.State)
	}
	in.View.Cluster.Servers["db2"].Held = ""
	in.View.Cluster.Stopped = []string{"db2"}
	if a := Decide(in); a.Kind != KindAttach {
		t.Errorf("started again: %+v", a)
	}
}

// A slave in maintenance is left alone, but for one thing: it acknowledges no
// more, whatever its threads do.
func TestMaintenanceEndsAcknowledging(t *testing.T) {
	const yes, no = health.ThreadYes, health.ThreadNo
	for name, c := range map[string]struct {
		io, sql health.Thread
		applied uint64
		acks    bool
		want    Kind
	}{
		"acknowledges":                 {yes, yes, 100, true, KindAttach},
		"acknowledges and lags":        {yes, yes, 90, true, KindWait},
		"acknowledges, SQL stopped":    {yes, no, 90, true, KindStopIO},
		"does not":                     {yes, yes, 100, false, KindWait},
		"stopped by the one who works": {no, no, 100, false, KindWait},
	} {
		t.Run(name, func(t *testing.T) {
			in := three()
			in.View.Cluster.Servers["db2"].Maintenance = true
			slaveAs(in, c.io, c.sql, 100, c.applied)
			seen(in, "db2", func(_ *health.ServerView, o *health.Observation, _ *health.SlaveStatus) {
				o.SemiSync.SlaveOn, o.SemiSync.SlaveEnabled = c.acks, c.acks
			})
			a, _ := newDecider(in).followAll()
			kind := a.Kind
			if kind == "" {
				kind = KindWait
			}
			if kind != c.want {
				t.Errorf("%s %v, not %s", a.Kind, a.Servers, c.want)
			}
			if kind == KindAttach && a.Attach["db2"].Acker {
				t.Error("it would be attached as an acker")
			}
			if r := Assess(in); len(r.Servers["db2"].Problems) != 1 || r.Servers["db2"].Problems[0].Code != "maintenance" || r.Servers["db2"].Promotable {
				t.Errorf("%+v", r.Servers["db2"])
			}
		})
	}
}

// What a failover makes of slaves that a person has stopped.
func TestStoppedSlavesInAFailover(t *testing.T) {
	held := func(h topology.Held) func(*topology.Server, *health.ServerView) {
		return func(s *topology.Server, _ *health.ServerView) { s.Held = h }
	}
	sqlStopped := func(s *topology.Server, sv *health.ServerView) {
		s.Held, sv.LastOK.Slave.SQL = topology.HeldSQL, health.ThreadNo
		sv.Applied = sv.LastOK.At.Add(-time.Hour)
	}
	for name, c := range map[string]struct {
		slaves []bay
		effect Effect // of db2
		want   string
	}{
		"the other one of equals":               {slaves: []bay{{5000, 5000, held(topology.HeldAll)}, {5000, 5000, nil}}, want: "db3"},
		"the other one, though avoided":         {slaves: []bay{{5000, 5000, held(topology.HeldAll)}, {5000, 5000, promotion(topology.PromotionAvoid)}}, want: "db3"},
		"one that has more, if by a lot":        {slaves: []bay{{5000, 5000, held(topology.HeldAll)}, {1, 1, nil}}, want: "db2"},
		"one alone":                             {slaves: []bay{{5000, 5000, held(topology.HeldAll)}}, want: "db2"},
		"one that has only to apply":            {slaves: []bay{{5000, 10, sqlStopped}}, want: "db2"},
		"one that has to apply, and a better":   {slaves: []bay{{5000, 10, sqlStopped}, {4990, 4990, nil}}, want: "db3"},
		"one whose relay log cannot be applied": {slaves: []bay{{5000, 10, sqlStopped}, {4990, 4990, nil}}, effect: Effect{Last: KindDrain, Failed: 3}, want: "sql_stuck"},
	} {
		t.Run(name, func(t *testing.T) {
			in, intent := lostMaster(true, c.slaves...)
			if c.effect.Last != "" {
				in.Effects["db2"] = c.effect
			}
			d := newDecider(in)
			m, ps := d.pick(intent, d.members("db1"))
			got := ""
			if m != nil {
				got = m.name
			} else if len(ps) > 0 {
				got = ps[0].Code
			}
			if got != c.want {
				t.Errorf("%s, not %s: %+v", got, c.want, ps)
			}
		})
	}
}

// What status says would happen is what happens: a slave whose SQL thread alone
// is stopped holds no failover back, whoever stopped it.
func TestTheForecastKnowsThatAFailoverApplies(t *testing.T) {
	in := three()
	slaveAs(in, health.ThreadYes, health.ThreadNo, 100, 50)
	seen(in, "db2", func(sv *health.ServerView, _ *health.Observation, _ *health.SlaveStatus) {
		sv.Applied = in.View.Now.Add(-time.Hour)
	})
	in.View.Cluster.Servers["db4"].Promotion = topology.PromotionNever
	if f := Assess(in).Forecast; f.Candidate != "db2" || len(f.Blocked) > 0 {
		t.Errorf("%+v", f)
	}
}

// While the master is restarted on order it is not taken for lost, a person's
// own order aside, and not for longer than that.
func TestARestartOnOrderIsNoLoss(t *testing.T) {
	lost := func() Input {
		in := three()
		in.Verdict = health.Verdict{State: health.StateDead, Evidence: []string{"dials are refused"}, Since: in.View.Now.Add(-time.Second)}
		in.Policy.Automatic, in.Policy.AsyncWithoutFence = true, true
		in.View.Cluster.RestartUntil = in.View.Now.Add(time.Minute)
		gone(in, "db1", time.Second)
		return in
	}
	in := lost()
	if a := Decide(in); a.Kind != KindWait || a.RecheckIn <= 0 || a.RecheckIn > time.Minute {
		t.Errorf("%+v", a)
	}
	in.Order = &Order{}
	if a := Decide(in); a.Kind != KindBegin {
		t.Errorf("ordered: %+v", a)
	}
	in = lost()
	in.View.Now = in.View.Cluster.RestartUntil
	if a := Decide(in); a.Kind != KindBegin {
		t.Errorf("after the time: %+v", a)
	}
}

// Every rule that holds a failover back is one that explain names, broken, and
// the other way round.
// A mistyped name is refused with all four parts of an error.
func TestASwitchoverToWhoIsNoSlave(t *testing.T) {
	l := NewLoop(LoopConfig{Cluster: "main", Observer: &still{*three().View}})
	for _, to := range []string{"db9", "db1"} {
		_, err := l.PlanSwitchover(to)
		var f *fault.Error
		if !errors.As(err, &f) || f.Kind != fault.Usage || f.What == "" || f.Cause == "" || f.State == "" || f.Do == "" {
			t.Errorf("to %s: %#v", to, err)
		}
	}
}

// A pause that holds a failover back is one problem, not two.
func TestAPauseIsToldOnce(t *testing.T) {
	for _, verdict := range []health.State{health.StateAlive, health.StateDead} {
		in := three()
		in.Policy.Automatic = true
		in.Verdict = health.Verdict{State: verdict}
		in.View.Cluster.Paused, in.View.Cluster.PausedUntil = true, in.View.Now.Add(time.Minute)
		var told []Problem
		for _, p := range Assess(in).Problems {
			if p.Code == "paused" {
				told = append(told, p)
			}
		}
		if len(told) != 1 || told[0].Do == "" || !strings.Contains(told[0].Text, "1m0s") {
			t.Errorf("master %s: %+v", verdict, told)
		}
	}
}

func TestExplainAndDecideAgree(t *testing.T) {
	for name, change := range map[string]func(in *Input){
		"nothing": func(*Input) {},
		"paused":  func(in *Input) { in.View.Cluster.Paused = true },
		"manual":  func(in *Input) { in.Policy.Automatic = false },
		"window": func(in *Input) {
			in.View.Cluster.LastFailover, in.Policy.BlockWindow = in.View.Now.Add(-time.Second), time.Minute
		},
		"unfenced": func(in *Input) { in.View.Cluster.Durability, in.Policy.AsyncWithoutFence = topology.Async, false },
		"unproved": func(in *Input) {
			in.View.Cluster.Durability, in.View.Cluster.DurabilityState = topology.Lossless, topology.DurabilityDegraded
		},
		"nobody": func(in *Input) {
			for _, s := range in.View.Cluster.Servers {
				s.Maintenance = true
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := three()
			in.Policy.Automatic, in.Policy.AsyncWithoutFence = true, true
			in.Verdict = health.Verdict{State: health.StateDead}
			change(&in)
			var broken, codes []string
			for _, r := range Explain(in, "").Rules {
				if !r.Holds {
					broken = append(broken, strings.Replace(r.Code, "candidate", "no_candidate", 1))
				}
				if r.Measured == "" || r.Needs == "" || r.Text == "" {
					t.Errorf("%+v", r)
				}
			}
			for _, p := range newDecider(in).beginRules() {
				codes = append(codes, p.Code)
			}
			if b, c := strings.Join(broken, " "), strings.Join(codes, " "); b != c {
				t.Errorf("explain: %q, Decide: %q", b, c)
			}
		})
	}
}
