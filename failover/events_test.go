package failover

import (
	"testing"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/topology"
)

// quiet is a cluster of one, in which nothing is left to do but the events.
func quiet() Input {
	in, mv, _ := idle()
	delete(in.View.Cluster.Servers, "db2")
	delete(in.View.Servers, "db2")
	in.Effects = map[string]Effect{}
	in.Announced = newDecider(in).announcement()
	in.View.Cluster.OpenedAt = in.View.Now.Add(-time.Minute)
	mv.Last.Started = in.View.Now.Add(-time.Hour)
	return in
}

var ran = topology.Events{On: true, Enabled: []topology.Event{{Schema: "a", Name: "e"}}}

// What runs on the master is recorded within seconds, and what is seen of a
// server that is the master no longer is not.
func TestTheRecordOfEventsFollowsTheMaster(t *testing.T) {
	in := quiet()
	if a := Decide(in); a.Kind != KindLookEvents {
		t.Fatalf("first %+v", a)
	}
	in.Events = EventsSeen{Server: "db1", At: in.View.Now.Add(-time.Second), Events: ran}
	a := Decide(in)
	if a.Kind != KindJournal {
		t.Fatalf("seen: %+v", a)
	}
	st := &topology.State{Clusters: map[string]*topology.Cluster{"main": in.View.Cluster}}
	next, err := st.Apply(a.Journal...)
	if err != nil || !next.Clusters["main"].Events.Equal(ran) {
		t.Fatalf("%v, %+v", err, next)
	}
	in.View.Cluster = next.Clusters["main"]
	if a := Decide(in); a.Kind != KindWait || a.RecheckIn != lookEventsEvery-time.Second {
		t.Errorf("recorded: %+v", a)
	}
	in.Events.At = in.View.Now.Add(-lookEventsEvery)
	if a := Decide(in); a.Kind != KindLookEvents {
		t.Errorf("old: %+v", a)
	}
	late := topology.NoteEvents{Cluster: "main", Server: "db1", At: in.View.Cluster.OpenedAt.Add(-time.Second)}
	if next, err := next.Apply(late); err != nil || !next.Clusters["main"].Events.Equal(ran) {
		t.Errorf("a look from before the opening changed the record: %v", err)
	}
	late = topology.NoteEvents{Cluster: "main", Server: "db2", At: in.View.Now}
	if next, err := next.Apply(late); err != nil || !next.Clusters["main"].Events.Equal(ran) {
		t.Errorf("a look at another server changed the record: %v", err)
	}
}

// A master that was opened owes what ran before until it runs, also if repld is
// restarted in between; what it shows before that is not recorded.
func TestAMasterThatWasOpenedOwesTheEvents(t *testing.T) {
	in := quiet()
	c := in.View.Cluster
	c.Intent = &topology.Intent{ID: "1", Kind: topology.IntentReopen, Epoch: 1, OldMaster: "db1", Opening: &topology.Opening{Server: "db1"}}
	c.Events = ran
	st, err := (&topology.State{Clusters: map[string]*topology.Cluster{"main": c}}).Apply(
		topology.RecordOpened{Cluster: "main", Intent: "1", At: in.View.Now.Add(-time.Second)}, topology.EndIntent{Cluster: "main", Intent: "1", At: in.View.Now})
	if err != nil || !st.Clusters["main"].EventsDue {
		t.Fatalf("%v, due %v", err, st.Clusters["main"].EventsDue)
	}
	in.View.Cluster = st.Clusters["main"]
	in.Announced = newDecider(in).announcement()
	in.Events = EventsSeen{Server: "db1", At: in.View.Now} // nothing runs
	in.Effects[eventsKey] = Effect{Last: KindLookEvents, At: in.View.Now}
	if a := Decide(in); a.Kind != KindEvents {
		t.Fatalf("%+v", a)
	}
	in.Effects[eventsKey] = Effect{Last: KindEvents, Failed: 2, At: in.View.Now, Err: "1449: no such definer"}
	if a := Decide(in); a.Kind != KindWait {
		t.Errorf("failed a moment ago: %+v", a)
	}
	if ps := Assess(in).Problems; len(ps) == 0 || ps[0].Code != "events_not_resumed" {
		t.Errorf("problems: %+v", ps)
	}
	in.Effects[eventsKey] = Effect{Last: KindEvents, At: in.View.Now}
	in.Events.Events = ran
	a := Decide(in)
	if a.Kind != KindJournal {
		t.Fatalf("done: %+v", a)
	}
	if st, err = st.Apply(a.Journal...); err != nil || st.Clusters["main"].EventsDue || !st.Clusters["main"].Events.Equal(ran) {
		t.Errorf("%v, %+v", err, st.Clusters["main"])
	}
}

// A switchover looks once more before it switches the scheduler off; a look that
// fails holds nothing up.
func TestASwitchoverLooksAtTheEventsFirst(t *testing.T) {
	in, mv, sv := idle()
	zero := time.Duration(0)
	now := in.View.Now
	for _, v := range []*health.ServerView{mv, sv} {
		v.Last.Sent, v.Last.At = now.Add(-10*time.Millisecond), now.Add(-9*time.Millisecond)
	}
	sv.Last.Slave = &health.SlaveStatus{IO: health.ThreadYes, SQL: health.ThreadYes, UsingGTID: "Slave_Pos", Received: sv.Last.SlavePos}
	sv.LagApplied, mv.LastOK, sv.LastOK = &zero, mv.Last, sv.Last
	in.View.Cluster.Intent = &topology.Intent{ID: "3", Kind: topology.IntentSwitchover, Epoch: 2, OldMaster: "db1", To: "db2", Manual: true,
		Begun: now.Add(-time.Second), Deadline: now.Add(9 * time.Second)}
	in.Effects = map[string]Effect{eventsKey: {Last: KindLookEvents, At: now.Add(-2 * time.Second)}}
	in.Events = EventsSeen{Server: "db1", At: now.Add(-2 * time.Second)}
	if a := Decide(in); a.Kind != KindLookEvents {
		t.Fatalf("%+v", a)
	}
	in.Effects[eventsKey] = Effect{Last: KindLookEvents, Failed: 1, At: now}
	if a := Decide(in); a.Kind != KindShut {
		t.Errorf("the look failed: %+v", a)
	}
	in.Effects[eventsKey] = Effect{Last: KindLookEvents, At: now}
	in.Events = EventsSeen{Server: "db1", At: now.Add(-time.Millisecond), Events: ran}
	if a := Decide(in); a.Kind != KindJournal {
		t.Errorf("seen: %+v", a)
	}
	in.View.Cluster.Events = ran
	if a := Decide(in); a.Kind != KindShut {
		t.Errorf("recorded: %+v", a)
	}
}
