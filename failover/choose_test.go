package failover

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// bay is one slave of a lost master in a test of the choice.
type bay struct {
	received, applied uint64
	change            func(s *topology.Server, sv *health.ServerView)
}

// lostMaster is a failover of db1, of which 0-1-5000 was seen, after all IO
// threads were stopped; slaves are db2, db3, …
func lostMaster(armed bool, slaves ...bay) (Input, *topology.Intent) {
	now := time.Unix(5000, 0)
	begun := now.Add(-time.Minute)
	in := &topology.Intent{ID: "1", Kind: topology.IntentFailover, Epoch: 2, OldMaster: "db1", Begun: begun, Symptom: begun, Armed: armed, Bound: gtid.GTID{Server: 1, Seq: 5000}}
	c := &topology.Cluster{Name: "main", Epoch: 1, Master: "db1", Durability: topology.SemiSync, DurabilityState: topology.DurabilityArmed,
		Lineage: gtid.Lineage{{Epoch: 1, Server: 1, First: 1}}, Servers: map[string]*topology.Server{}, Intent: in}
	v := &health.View{Cluster: c, Now: now, Servers: map[string]*health.ServerView{}}
	out := Input{View: v, Verdict: health.Verdict{State: health.StateDead}, Effects: map[string]Effect{}, Policy: Policy{MaxLag: time.Hour}}
	c.Servers["db1"] = &topology.Server{Name: "db1", Address: "h1:1", Role: topology.RoleMaster}
	v.Servers["db1"] = &health.ServerView{Last: health.Observation{Reach: health.ReachRefused, Sent: now, At: now}}
	for i, b := range slaves {
		name := fmt.Sprintf("db%d", i+2)
		s := &topology.Server{Name: name, Address: fmt.Sprintf("h%d:1", i+2), Role: topology.RoleSlave, Source: "db1", Promotion: topology.PromotionNeutral}
		at := gtid.At(gtid.GTID{Server: 1, Seq: b.applied})
		o := health.Observation{Sent: now.Add(-time.Millisecond), At: now, Reach: health.ReachOK, LogBin: true, LogSlaveUpdates: true, ReadOnly: true, Version: "10.11.19-MariaDB",
			SlavePos: at, BinlogPos: at, BinlogState: gtid.StateOf(gtid.GTID{Server: 1, Seq: b.applied}), SemiSync: health.SemiSync{SlaveEnabled: true},
			Slave: &health.SlaveStatus{SourceHost: "h1", SourcePort: 1, IO: health.ThreadNo, SQL: health.ThreadYes, UsingGTID: "Slave_Pos",
				Received: gtid.At(gtid.GTID{Server: 1, Seq: b.received}), SourceLogFile: "b.1", ReadPos: b.received * 1000}}
		sv := &health.ServerView{Last: o, LastOK: o, Applied: now}
		if b.change != nil {
			b.change(s, sv)
			sv.Last = sv.LastOK
		}
		c.Servers[name], v.Servers[name] = s, sv
		out.Effects[name] = Effect{Last: KindStopIO, At: begun.Add(time.Second)}
	}
	return out, in
}

func promotion(p topology.Promotion) func(*topology.Server, *health.ServerView) {
	return func(s *topology.Server, _ *health.ServerView) { s.Promotion = p }
}

func version(v string) func(*topology.Server, *health.ServerView) {
	return func(_ *topology.Server, sv *health.ServerView) { sv.LastOK.Version = v }
}

func stuck(_ *topology.Server, sv *health.ServerView) { sv.Applied = sv.LastOK.At.Add(-time.Minute) }

func sqlError(_ *topology.Server, sv *health.ServerView) {
	sv.LastOK.Slave.SQL, sv.LastOK.Slave.SQLErrno, sv.LastOK.Slave.SQLError = health.ThreadNo, 1062, "duplicate"
}

func delayed(s *topology.Server, sv *health.ServerView) {
	s.Delay, sv.LastOK.Slave.Delay, sv.LastOK.SemiSync.SlaveEnabled = time.Hour, time.Hour, false
}

// offLineage stands at a transaction of its own.
func offLineage(_ *topology.Server, sv *health.ServerView) {
	sv.LastOK.SlavePos = gtid.At(gtid.GTID{Server: 3, Seq: 5001})
}

func both(fs ...func(*topology.Server, *health.ServerView)) func(*topology.Server, *health.ServerView) {
	return func(s *topology.Server, sv *health.ServerView) {
		for _, f := range fs {
			f(s, sv)
		}
	}
}

// Who is promoted, or the code of what holds it back and the number at stake.
func TestWhoIsChosen(t *testing.T) {
	lose := func(n uint64) func(*topology.Intent) { return func(in *topology.Intent) { in.AcceptLoss = &n } }
	for name, c := range map[string]struct {
		slaves  []bay
		unarmed bool
		intent  func(*topology.Intent)
		want    string
	}{
		"most received":                                {slaves: []bay{{4999, 4999, nil}, {5000, 4000, nil}}, want: "db3"},
		"preferred among equals":                       {slaves: []bay{{5000, 5000, nil}, {5000, 5000, promotion(topology.PromotionPrefer)}}, want: "db3"},
		"preferred, though others have applied more":   {slaves: []bay{{5000, 5000, nil}, {5000, 4000, promotion(topology.PromotionPrefer)}}, want: "db3"},
		"the older version among equals":               {slaves: []bay{{5000, 5000, version("10.11.19-MariaDB")}, {5000, 5000, version("10.11.8-MariaDB-log")}}, want: "db3"},
		"9 is older than 11":                           {slaves: []bay{{5000, 5000, version("11.4.2-MariaDB")}, {5000, 5000, version("9.11.3-MariaDB")}}, want: "db3"},
		"preference before version":                    {slaves: []bay{{5000, 5000, version("10.11.8-MariaDB")}, {5000, 5000, both(promotion(topology.PromotionPrefer), version("10.11.19-MariaDB"))}}, want: "db3"},
		"received before a patch":                      {slaves: []bay{{5000, 5000, version("10.11.19-MariaDB")}, {4999, 4999, version("10.11.8-MariaDB")}}, want: "db2"},
		"an older series, caught up first":             {slaves: []bay{{5000, 5000, version("11.4.2-MariaDB")}, {4900, 4900, version("10.11.8-MariaDB")}}, want: "db3"},
		"who has applied it among equals":              {slaves: []bay{{5000, 4000, nil}, {5000, 5000, nil}}, want: "db3"},
		"the name among equals":                        {slaves: []bay{{5000, 5000, nil}, {5000, 5000, nil}}, want: "db2"},
		"preferred and quickly caught up":              {slaves: []bay{{5000, 5000, nil}, {4500, 4500, promotion(topology.PromotionPrefer)}}, want: "db3"},
		"preferred and too many behind":                {slaves: []bay{{5000, 5000, nil}, {3999, 3999, promotion(topology.PromotionPrefer)}}, want: "db2"},
		"preferred and too many bytes behind":          {slaves: []bay{{5000, 5000, func(_ *topology.Server, sv *health.ServerView) { sv.LastOK.Slave.ReadPos = 1 << 30 }}, {4990, 4990, promotion(topology.PromotionPrefer)}}, want: "db2"},
		"avoided, as a holder":                         {slaves: []bay{{5000, 5000, promotion(topology.PromotionAvoid)}, {4990, 4990, nil}}, want: "db3"},
		"avoided, when nobody else is near":            {slaves: []bay{{5000, 5000, promotion(topology.PromotionAvoid)}, {1, 1, nil}}, want: "db2"},
		"never, as a holder":                           {slaves: []bay{{5000, 5000, promotion(topology.PromotionNever)}, {1, 1, nil}}, want: "db3"},
		"a person's choice, far behind":                {slaves: []bay{{5000, 5000, nil}, {1, 1, nil}}, intent: func(in *topology.Intent) { in.To, in.Manual = "db3", true }, want: "db3"},
		"slow and moving is not abandoned":             {slaves: []bay{{5000, 10, nil}, {4999, 4999, nil}}, want: "db2"},
		"stuck, and another has it":                    {slaves: []bay{{5000, 10, stuck}, {5000, 4000, nil}}, want: "db3"},
		"stuck, and another can fetch it from a third": {slaves: []bay{{5000, 10, stuck}, {4990, 4990, promotion(topology.PromotionPrefer)}, {5000, 5000, promotion(topology.PromotionNever)}}, want: "db3"},
		"stuck, and nobody has it":                     {slaves: []bay{{5000, 10, stuck}, {4990, 4990, nil}}, want: "sql_stuck 10"},
		"stuck, and a person gives it up":              {slaves: []bay{{5000, 10, stuck}, {4990, 4990, nil}}, intent: lose(10), want: "db3"},
		"stuck, and a person gives less up":            {slaves: []bay{{5000, 10, stuck}, {4990, 4990, nil}}, intent: lose(9), want: "sql_stuck 10"},
		"stuck alone":                                  {slaves: []bay{{5000, 10, stuck}}, intent: lose(100000), want: "sql_stuck 4990"},
		"failed, and another has it":                   {slaves: []bay{{5000, 10, sqlError}, {5000, 5000, nil}}, want: "db3"},
		"failed, and nobody has it":                    {slaves: []bay{{5000, 10, sqlError}, {4990, 4990, nil}}, want: "sql_stuck 10"},
		"failed alone":                                 {slaves: []bay{{5000, 10, sqlError}}, want: "no_candidate sql_error sql_stuck 4990"},
		"delayed and no acker":                         {slaves: []bay{{5000, 10, delayed}, {4990, 4990, nil}}, want: "db3"},
		"delayed, and nothing was acknowledged":        {slaves: []bay{{5000, 10, delayed}, {4990, 4990, nil}}, unarmed: true, want: "sql_stuck 10"},
		"delayed, and a person gives it up":            {slaves: []bay{{5000, 10, delayed}, {4990, 4990, nil}}, unarmed: true, intent: lose(10), want: "db3"},
		"an acker off the lineage":                     {slaves: []bay{{4990, 4990, nil}, {5000, 5000, offLineage}}, want: "incomparable"},
		"an acker off the lineage, all common":         {slaves: []bay{{5000, 5000, nil}, {5000, 5000, offLineage}}, want: "db2"},
		"an acker off the lineage, given up":           {slaves: []bay{{4990, 4990, nil}, {5000, 5000, offLineage}}, intent: lose(10), want: "db2"},
	} {
		t.Run(name, func(t *testing.T) {
			in, intent := lostMaster(!c.unarmed, c.slaves...)
			if c.intent != nil {
				c.intent(intent)
			}
			d := newDecider(in)
			got := ""
			if m, ps := d.pick(intent, d.members("db1")); m != nil {
				got = m.name
			} else {
				for _, p := range ps {
					got = strings.TrimSpace(got + " " + p.Code)
				}
				if _, after, ok := strings.Cut(ps[len(ps)-1].Text, "; "); ok && strings.HasSuffix(got, "sql_stuck") {
					got += " " + strings.Fields(after)[0]
				}
			}
			if got != c.want {
				t.Errorf("chosen: %s, want %s", got, c.want)
			}
		})
	}
}

// An acker that was seen, with its IO thread stopped by this failover, at a
// position which others have, and died since, holds nobody up.
func TestADeadAckerWhosePositionIsKnown(t *testing.T) {
	dead := func(_ *topology.Server, sv *health.ServerView) { sv.LastOK.Reach = health.ReachOK }
	for name, c := range map[string]struct {
		received uint64
		change   func(*Input)
		blocks   bool
	}{
		"it had less":                          {4990, func(*Input) {}, false},
		"it had more":                          {5001, func(*Input) {}, true},
		"its thread was stopped by nobody":     {4990, func(in *Input) { in.Effects["db2"] = Effect{} }, true},
		"it was seen before the failover only": {4990, func(in *Input) { in.View.Servers["db2"].LastOK.Sent = in.View.Cluster.Intent.Begun }, true},
	} {
		in, intent := lostMaster(true, bay{c.received, c.received, dead}, bay{5000, 5000, nil})
		in.View.Servers["db2"].Last = health.Observation{Reach: health.ReachTimeout}
		c.change(&in)
		d := newDecider(in)
		if _, blocks := d.unreachableAckers(intent, d.members("db1")); blocks != c.blocks {
			t.Errorf("%s: blocks %v", name, blocks)
		}
	}
}

// A candidate that does not get on with fetching makes way for the holder, and is
// tried again if there is nobody.
func TestAFetchThatFails(t *testing.T) {
	failed := both(promotion(topology.PromotionPrefer), func(_ *topology.Server, sv *health.ServerView) {
		sv.LastOK.Fetch = &health.SlaveStatus{SourceHost: "h3", SourcePort: 1, IO: health.ThreadNo, IOErrno: 1236, IOError: "gone", SQL: health.ThreadYes}
	})
	in, intent := lostMaster(true, bay{4990, 4990, failed}, bay{5000, 5000, promotion(topology.PromotionAvoid)})
	d := newDecider(in)
	if m, _ := d.pick(intent, d.members("db1")); m == nil || m.name != "db3" {
		t.Errorf("chosen %+v", m)
	}
	in, intent = lostMaster(true, bay{4990, 4990, failed}, bay{5000, 5000, promotion(topology.PromotionNever)})
	d = newDecider(in)
	if m, a := d.choose(intent, d.members("db1")); m != nil || a.Kind != KindEndFetch {
		t.Errorf("%+v %+v", m, a)
	}
	in.Effects["db2"] = Effect{Last: KindFetch, At: in.View.Now}
	d = newDecider(in)
	if _, a := d.choose(intent, d.members("db1")); len(a.Blocked) == 0 || a.Blocked[0].Code != "fetch_failed" || !strings.Contains(a.Blocked[0].Text, "10 transactions") {
		t.Errorf("%+v", a)
	}
	// Of a holder that is gone it stops fetching when another has more.
	in, intent = lostMaster(true, bay{4990, 4990, failed}, bay{4995, 4995, promotion(topology.PromotionNever)}, bay{5000, 5000, promotion(topology.PromotionNever)})
	in.View.Servers["db2"].LastOK.Fetch.IOErrno = 0
	in.View.Servers["db2"].Last = in.View.Servers["db2"].LastOK
	d = newDecider(in)
	ms := d.members("db1")
	cand, _ := d.pick(intent, ms)
	if a, _ := d.drain(intent, cand, ms); a.Kind != KindEndFetch {
		t.Errorf("%+v", a)
	}
}

// A candidate that restarted while it fetched goes on at once: its connections
// do not start by themselves.
func TestACandidateThatRestartedFetchesOn(t *testing.T) {
	for io, want := range map[health.Thread]Kind{health.ThreadNo: KindFetch, health.ThreadYes: KindWait} {
		in, intent := lostMaster(true, bay{4990, 4990, func(_ *topology.Server, sv *health.ServerView) {
			sv.LastOK.Fetch = &health.SlaveStatus{SourceHost: "h3", SourcePort: 1, IO: io, SQL: io}
		}}, bay{5000, 5000, promotion(topology.PromotionAvoid)})
		in.View.Servers["db2"].LastOK.BinlogPos = in.View.Servers["db2"].LastOK.SlavePos
		d := newDecider(in)
		ms := d.members("db1")
		cand, _ := d.pick(intent, ms)
		if a, _ := d.drain(intent, cand, ms); cand.name != "db2" || a.Kind != want {
			t.Errorf("IO %s: %s %+v", io, cand.name, a)
		}
	}
}

// What a person gave up on a slave that can be asked may have been acknowledged:
// it is not undone on the old master as if nobody had been told OK for it.
func TestWhatAPersonGaveUpMayHaveBeenAcknowledged(t *testing.T) {
	for applied, want := range map[uint64]int{4990: 1, 5000: 0} {
		in, intent := lostMaster(true, bay{5000, 4990, stuck}, bay{applied, applied, nil})
		intent.Opening = &topology.Opening{Server: "db3", Applied: gtid.GTID{Server: 1, Seq: applied}}
		if got := newDecider(in).unseen(intent); len(got) != want {
			t.Errorf("opened at %d: %v", applied, got)
		}
	}
}

// Who is slow is waited for with an estimate.
func TestASlowCandidateIsShownWithAnEstimate(t *testing.T) {
	in, _ := lostMaster(true, bay{5000, 3000, func(_ *topology.Server, sv *health.ServerView) { sv.ApplyRate = 100 }}, bay{4999, 4999, nil})
	r := Assess(in)
	if r.Health != FailingOver || len(r.Problems) == 0 || r.Problems[0].Code != "candidate_applies" || !strings.Contains(r.Problems[0].Text, "2000 transactions left, about 21s") {
		t.Errorf("%s %+v", r.Health, r.Problems)
	}
}

// A returned master waits for the servers that could not be asked, and only for
// those that could still say something new.
func TestWhoIsAwaitedBeforeATailIsJudged(t *testing.T) {
	for name, c := range map[string]struct {
		change func(in *Input, b *topology.Break)
		await  int
	}{
		"one that is out":         {func(*Input, *topology.Break) {}, 1},
		"nobody":                  {func(_ *Input, b *topology.Break) { b.Unseen = nil }, 0},
		"one that is gone":        {func(_ *Input, b *topology.Break) { b.Unseen, b.Forgotten = nil, []string{"db3"} }, 0},
		"one, but to no avail":    {func(_ *Input, b *topology.Break) { b.Armed = false }, 0},
		"one, but tails are kept": {func(in *Input, _ *topology.Break) { in.Policy.UndoUnacknowledged = false }, 0},
		"one that is back and has extra itself": {func(in *Input, _ *topology.Break) {
			in.View.Servers["db3"].Last.Reach = health.ReachOK
			in.View.Cluster.Servers["db3"].Diverged = []gtid.GTID{{Server: 9, Seq: 9}}
		}, 0},
	} {
		in, _ := lostMaster(true, bay{5000, 5000, nil}, bay{5000, 5000, nil})
		in.View.Servers["db3"].Last.Reach, in.Policy.UndoUnacknowledged = health.ReachTimeout, true
		b := &topology.Break{Master: "db9", Armed: true, Unseen: []string{"db3"}}
		in.View.Cluster.Losses = []*topology.Break{b}
		c.change(&in, b)
		if got := newDecider(in).awaited("db9"); len(got) != c.await {
			t.Errorf("%s: %v", name, got)
		}
	}
}
