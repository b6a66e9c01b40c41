package failover

import (
	"slices"
	"testing"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

var chainNow = time.Unix(50000, 0)

// chain is an armed cluster: db1 the master, db2 a slave of it, db3 a slave of
// db2, db4 another slave of db1. All replicate and have everything.
func chain() Input {
	g := gtid.GTID{Server: 1, Seq: 9}
	c := &topology.Cluster{Name: "main", Epoch: 1, Master: "db1", Durability: topology.SemiSync, DurabilityState: topology.DurabilityArmed,
		Lineage: gtid.Lineage{{Epoch: 1, Server: 1, First: 1}}, Servers: map[string]*topology.Server{}}
	v := &health.View{Cluster: c, Now: chainNow, Started: chainNow.Add(-time.Hour), AwakeSince: chainNow.Add(-time.Hour), Servers: map[string]*health.ServerView{}}
	zero := time.Duration(0)
	for name, source := range map[string]string{"db1": "", "db2": "db1", "db3": "db2", "db4": "db1"} {
		s := &topology.Server{Name: name, Address: name + ":3306", Role: topology.RoleSlave, Source: source, Promotion: topology.PromotionNeutral, Followed: 1}
		o := health.Observation{Sent: chainNow.Add(-20 * time.Millisecond), At: chainNow.Add(-19 * time.Millisecond), Reach: health.ReachOK, LogBin: true,
			LogSlaveUpdates: true, ReadOnly: true, BinlogPos: gtid.At(g), BinlogState: gtid.StateOf(g)}
		if source == "" {
			s.Role, o.ReadOnly, o.Slave = topology.RoleMaster, false, nil
			o.SemiSync = health.SemiSync{MasterEnabled: true, MasterOn: true, Clients: 2, AfterSync: true}
		} else {
			o.SlavePos = gtid.At(g)
			o.Slave = &health.SlaveStatus{SourceHost: source, SourcePort: 3306, IO: health.ThreadYes, SQL: health.ThreadYes, UsingGTID: "Slave_Pos", Received: gtid.At(g),
				SourceLogFile: "b.1", ExecLogFile: "b.1"}
			o.SemiSync = health.SemiSync{SlaveEnabled: source == "db1", SlaveOn: source == "db1"}
		}
		c.Servers[name] = s
		v.Servers[name] = &health.ServerView{Last: o, LastOK: o, RunningSince: chainNow.Add(-time.Hour), RunningAt: o.At, Applied: o.At, Advanced: o.At, LagApplied: &zero}
	}
	return Input{View: v, Verdict: health.Verdict{State: health.StateAlive}, Effects: map[string]Effect{}, Policy: Policy{HangTimeout: 2 * time.Second}, Announced: Announcement(c, []string{"db2", "db4"}),
		Events: EventsSeen{Server: "db1", At: chainNow}}
}

// seen changes what a server was last seen as.
func seen(in Input, name string, change func(sv *health.ServerView, o *health.Observation, st *health.SlaveStatus)) {
	sv := in.View.Servers[name]
	o := sv.Last
	var st health.SlaveStatus
	if o.Slave != nil {
		st = *o.Slave
		o.Slave = &st
	}
	change(sv, &o, &st)
	sv.Last = o
	if o.Reach == health.ReachOK {
		sv.LastOK = o
	}
}

// gone is a server that refuses connections since a time; what it fed connects.
func gone(in Input, name string, since time.Duration) {
	seen(in, name, func(sv *health.ServerView, o *health.Observation, _ *health.SlaveStatus) {
		o.Reach, sv.RunningSince, sv.RunningAt, sv.FailingSince, sv.Refusals = health.ReachRefused, time.Time{}, chainNow.Add(-since), chainNow.Add(-since), 9
	})
	for n := range in.View.Servers {
		seen(in, n, func(_ *health.ServerView, o *health.Observation, st *health.SlaveStatus) {
			if o.Slave != nil && st.SourceHost == name {
				st.IO = health.ThreadConnecting
			}
		})
	}
}

func at(seq uint64) gtid.Position { return gtid.At(gtid.GTID{Server: 1, Seq: seq}) }

// The source of a chained slave, and what is done to bring it there.
func TestAChainedSlaveReadsFromWhoCanPassOn(t *testing.T) {
	reads := func(in Input, name, source string) {
		seen(in, name, func(_ *health.ServerView, _ *health.Observation, st *health.SlaveStatus) { st.SourceHost = source })
	}
	for _, c := range []struct {
		name   string
		change func(in Input)
		source string
		kind   Kind
	}{
		{"the recorded one, if all is well", func(Input) {}, "db2", KindWait},
		{"the recorded one while it may be restarting", func(in Input) { gone(in, "db2", relayGrace-time.Millisecond) }, "db2", KindWait},
		{"the next one above, when it is gone for longer", func(in Input) { gone(in, "db2", relayGrace) }, "db1", KindAttach},
		{"the next one above, when its threads do not run", func(in Input) {
			seen(in, "db2", func(sv *health.ServerView, _ *health.Observation, st *health.SlaveStatus) {
				st.SQL, st.SQLErrno, sv.RunningAt = health.ThreadNo, 1062, chainNow.Add(-relayGrace)
			})
		}, "db1", KindAttach},
		{"the next one above at once, when the recorded one passes nothing on", func(in Input) {
			seen(in, "db2", func(_ *health.ServerView, o *health.Observation, _ *health.SlaveStatus) { o.LogSlaveUpdates = false })
		}, "db1", KindAttach},
		{"not one that has diverged", func(in Input) { in.View.Cluster.Servers["db2"].Diverged = []gtid.GTID{{Server: 2, Seq: 10}} }, "db1", KindAttach},
		{"not one that is seeded anew", func(in Input) { in.View.Cluster.Servers["db2"].Joining = true }, "db1", KindAttach},
		{"not one that refuses its position", func(in Input) {
			seen(in, "db3", func(_ *health.ServerView, _ *health.Observation, st *health.SlaveStatus) {
				st.IO, st.IOErrno = health.ThreadNo, errPosition
			})
		}, "db1", KindAttach},
		{"the old one, until what it received from the relay is applied", func(in Input) {
			gone(in, "db2", relayGrace)
			seen(in, "db3", func(_ *health.ServerView, o *health.Observation, _ *health.SlaveStatus) { o.SlavePos = at(7) })
		}, "db1", KindWait},
		{"the master until a relay that came back is steady", func(in Input) {
			reads(in, "db3", "db1")
			in.View.Servers["db2"].RunningSince = chainNow.Add(-relaySteady + time.Millisecond)
		}, "db1", KindWait},
		{"the relay again, when it is steady: it stops first, to be not ahead of it", func(in Input) { reads(in, "db3", "db1") }, "db2", KindStopIO},
		{"what it reads from, while the relay is far behind", func(in Input) {
			reads(in, "db3", "db1")
			far := time.Minute
			in.View.Servers["db2"].LagApplied = &far
		}, "db2", KindWait},
		{"nobody, stopped, until the relay has what it has", func(in Input) {
			reads(in, "db3", "db1")
			in.View.Cluster.Stopped = []string{"db3"}
			seen(in, "db3", func(_ *health.ServerView, _ *health.Observation, st *health.SlaveStatus) { st.IO = health.ThreadNo })
			seen(in, "db2", func(_ *health.ServerView, o *health.Observation, _ *health.SlaveStatus) {
				o.SlavePos, o.BinlogPos = at(8), at(8)
			})
		}, "db2", KindWait},
		{"the relay, once that has what it has", func(in Input) {
			reads(in, "db3", "db1")
			in.View.Cluster.Stopped = []string{"db3"}
			seen(in, "db3", func(_ *health.ServerView, _ *health.Observation, st *health.SlaveStatus) { st.IO = health.ThreadNo })
		}, "db2", KindAttach},
		{"where a person stopped it", func(in Input) {
			gone(in, "db2", time.Hour)
			seen(in, "db3", func(_ *health.ServerView, _ *health.Observation, st *health.SlaveStatus) {
				st.IO, st.SQL = health.ThreadNo, health.ThreadNo
			})
		}, "db1", KindWait},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := chain()
			c.change(in)
			d := newDecider(in)
			if got := d.sourceFor("db3"); got != c.source {
				t.Errorf("reads from %s, want %s", got, c.source)
			}
			a := Decide(in)
			if a.Kind != c.kind || a.Kind != KindWait && !slices.Contains(a.Servers, "db3") {
				t.Errorf("%s %v %v", a.Kind, a.Servers, a.Why)
			}
			if a.Kind == KindAttach && (a.Attach["db3"].Source != c.source || a.Attach["db3"].Acker) {
				t.Errorf("attached as %+v", a.Attach["db3"])
			}
			if a.Kind == KindStopIO && !slices.Contains(a.Journal, topology.Command(topology.OweStart{Cluster: "main", Server: "db3"})) {
				t.Error("a crash would leave it stopped for good")
			}
		})
	}
}

// Chains may have several stages, and a loop in the record harms nobody.
func TestALongChainAndALoop(t *testing.T) {
	in := chain()
	c := in.View.Cluster
	c.Servers["db4"].Source = "db3"
	seen(in, "db4", func(_ *health.ServerView, _ *health.Observation, st *health.SlaveStatus) { st.SourceHost = "db3" })
	if d := newDecider(in); d.sourceFor("db4") != "db3" || !d.streams("db4") {
		t.Error("a chain of two stages does not stream")
	}
	gone(in, "db3", relayGrace)
	if d := newDecider(in); d.sourceFor("db4") != "db2" || d.streams("db4") {
		t.Errorf("%s", d.sourceFor("db4"))
	}
	gone(in, "db2", relayGrace)
	if d := newDecider(in); d.sourceFor("db4") != "db1" {
		t.Error("both relays are gone")
	}
	c.Servers["db2"].Source = "db4"
	if d := newDecider(in); d.sourceFor("db4") != "db1" || d.streams("db4") {
		t.Error("a loop")
	}
}

// A chained slave is no acker: the master does not wait for what it received
// from a relay. A relay that is promoted makes its children ackers.
func TestAChainedSlaveIsNoAcker(t *testing.T) {
	in := chain()
	d := newDecider(in)
	if d.acker("db3") || !d.acker("db2") || !slices.Equal(d.activeAckers(), []string{"db2", "db4"}) {
		t.Errorf("ackers: %v", d.activeAckers())
	}
	if !d.ackerOf("db3", "db2") || d.ackerOf("db3", "db4") {
		t.Error("below a promoted relay it is a slave of the master, below another one it is not")
	}
	if r := Assess(in).Servers["db3"]; !r.Promotable || r.State != "streaming" {
		t.Errorf("%+v", r)
	}
	for name, want := range map[string]bool{"db3": true, "db2": false} {
		e := Explain(in, name)
		if told := slices.ContainsFunc(e.Rules, func(r Rule) bool { return r.Code == "chained" }); told != want || !e.Promotable {
			t.Errorf("%s is explained as %+v", name, e)
		}
	}
	seen(in, "db3", func(_ *health.ServerView, o *health.Observation, _ *health.SlaveStatus) { o.SemiSync.SlaveOn = true })
	if a := Decide(in); a.Kind != KindAttach || a.Attach["db3"].Acker {
		t.Errorf("it still acknowledges: %+v", a)
	}
}

// masterLost is the chain whose master is dead, with an intent that has stopped all
// reachable slaves.
func masterLost(in Input) *topology.Intent {
	gone(in, "db1", time.Second)
	in.View.Servers["db1"].Last.Sent, in.View.Servers["db1"].Last.At = chainNow.Add(-2*time.Millisecond), chainNow.Add(-time.Millisecond)
	begun := chainNow.Add(-500 * time.Millisecond)
	for _, name := range []string{"db2", "db3", "db4"} {
		seen(in, name, func(_ *health.ServerView, o *health.Observation, st *health.SlaveStatus) {
			if o.Reach == health.ReachOK {
				st.IO = health.ThreadNo
				in.Effects[name] = Effect{Last: KindStopIO, At: begun.Add(time.Millisecond)}
			}
		})
	}
	in.View.Cluster.Intent = &topology.Intent{ID: "1", Kind: topology.IntentFailover, Epoch: 2, OldMaster: "db1", Begun: begun, Symptom: begun, Armed: true,
		Bound: gtid.GTID{Server: 1, Seq: 9}}
	in.View.Cluster.Stopped = []string{"db2", "db3", "db4"}
	return in.View.Cluster.Intent
}

// A chained slave is promoted only if nobody better placed has as much.
func TestAChainedSlaveIsTheLastChoice(t *testing.T) {
	less := func(in Input, name string) {
		seen(in, name, func(_ *health.ServerView, o *health.Observation, st *health.SlaveStatus) {
			o.SlavePos, o.BinlogPos, st.Received = at(8), at(8), at(8)
		})
	}
	for _, c := range []struct {
		name   string
		change func(in Input)
		want   Kind
		server string
		code   string
	}{
		{"the direct ones come first, even if it is preferred", func(in Input) { in.View.Cluster.Servers["db3"].Promotion = topology.PromotionPrefer }, KindDetach, "db2", ""},
		{"one that lacks something is brought it", func(in Input) { gone(in, "db2", time.Second); less(in, "db4") }, KindWait, "", "acker_unreachable"},
		{"what it alone has is fetched from it", func(in Input) {
			in.View.Cluster.Servers["db2"].Promotion = topology.PromotionNever
			less(in, "db2")
			less(in, "db4")
		}, KindFetch, "db4", ""},
		{"with nobody else it is promoted, if the relay was no acker", func(in Input) {
			for _, name := range []string{"db2", "db4"} {
				seen(in, name, func(_ *health.ServerView, o *health.Observation, _ *health.SlaveStatus) {
					o.SemiSync.SlaveEnabled, o.SemiSync.SlaveOn = false, false
				})
				gone(in, name, time.Second)
			}
			in.View.Cluster.Servers["db2"].Promotion, in.View.Cluster.Servers["db4"].Promotion = topology.PromotionNever, topology.PromotionNever
		}, KindDetach, "db3", ""},
		{"with the only acker gone it waits for that", func(in Input) {
			gone(in, "db2", time.Second)
			delete(in.View.Cluster.Servers, "db4")
		}, KindWait, "", "acker_unreachable"},
		{"unless a person accepts the loss", func(in Input) {
			gone(in, "db2", time.Second)
			delete(in.View.Cluster.Servers, "db4")
		}, KindDetach, "db3", "accepted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := chain()
			c.change(in)
			intent := masterLost(in)
			in.Verdict.State = health.StateDead
			if c.code == "accepted" {
				intent.AcceptLoss, c.code = new(uint64), ""
			}
			a := Decide(in)
			code := ""
			if len(a.Blocked) > 0 {
				code = a.Blocked[0].Code
			}
			if a.Kind != c.want || code != c.code || c.server != "" && !slices.Equal(a.Servers, []string{c.server}) {
				t.Errorf("%s %v %v %+v", a.Kind, a.Servers, a.Why, a.Blocked)
			}
		})
	}
}

// What a chained slave received may have been acknowledged by the relay that
// passed it on: it is never given up as what no acker has.
func TestWhatAChainedSlaveWithholdsIsNotGivenUp(t *testing.T) {
	in := chain()
	intent := masterLost(in)
	seen(in, "db3", func(_ *health.ServerView, o *health.Observation, st *health.SlaveStatus) {
		st.Received, st.SQL, st.SQLErrno = at(12), health.ThreadNo, 1062
	})
	d := newDecider(in)
	if d.givenUp(intent, d.member("db3"), d.member("db2")) {
		t.Error("given up")
	}
}

// A slave that is on its way from the master to a relay may have acknowledged
// what nobody else has.
func TestASlaveThatIsBeingMovedMayHoldMore(t *testing.T) {
	in := chain()
	seen(in, "db3", func(_ *health.ServerView, o *health.Observation, st *health.SlaveStatus) {
		st.SourceHost, o.SemiSync.SlaveOn = "db1", true
	})
	gone(in, "db3", time.Second)
	intent := masterLost(in)
	d := newDecider(in)
	less := d.member("db2")
	less.received.Seq = 8
	if !d.couldHoldMore(intent, d.member("db3"), less) {
		t.Error("left out")
	}
	in = chain()
	gone(in, "db3", time.Second)
	intent = masterLost(in)
	d = newDecider(in)
	if d.couldHoldMore(intent, d.member("db3"), less) {
		t.Error("one that read from a relay never acknowledged anything")
	}
}

// A broken chain is told, whose threads run too.
func TestABrokenChainIsTold(t *testing.T) {
	in := chain()
	seen(in, "db2", func(sv *health.ServerView, _ *health.Observation, st *health.SlaveStatus) {
		st.SQL, st.SQLErrno, sv.RunningSince = health.ThreadNo, 1062, time.Time{}
	})
	r := Assess(in).Servers["db3"]
	if r.State != "broken" || len(r.Problems) != 1 || r.Problems[0].Code != "source_unusable" {
		t.Errorf("%+v", r)
	}
}

// A degrading that was sent by an earlier repld and not answered may still run:
// that the master looks armed is not enough to say so.
func TestAMasterThatLooksArmedIsArmedOnceMoreFirst(t *testing.T) {
	in := chain()
	in.View.Cluster.DurabilityState = topology.DurabilityDegraded
	if a := Decide(in); a.Kind != KindArm {
		t.Errorf("%+v", a)
	}
	in.Effects["db1"] = Effect{Last: KindDisarm, Failed: 1, At: chainNow.Add(-time.Minute)}
	if a := Decide(in); a.Kind != KindArm {
		t.Errorf("%+v", a)
	}
	in.Effects["db1"] = Effect{Last: KindArm, At: chainNow.Add(-time.Minute)}
	if a := Decide(in); a.Kind != KindJournal || len(a.Journal) != 1 {
		t.Errorf("%+v", a)
	}
}
