package failover

import (
	"testing"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/topology"
)

// foundAgain is a lost master that was quiet at the first contact and is not
// fenced yet, as after a repld that ended in between.
func foundAgain(since time.Duration) (Input, *topology.Break) {
	in, _, sv := idle()
	const name = "db2"
	s := in.View.Cluster.Servers[name]
	s.MustFence = true
	now := in.View.Now
	b := &topology.Break{Master: name, Armed: true, At: now.Add(-since), WaitsFrom: now.Add(-since), Started: now.Add(-time.Hour), NoTx: 7, Contacted: true, Quiet: true}
	in.View.Cluster.Losses = []*topology.Break{b}
	in.Effects, in.Policy.ServerTimeout = map[string]Effect{}, 30*time.Second
	for _, o := range []*health.Observation{&sv.Last, &sv.LastOK} {
		o.Slave, o.Started, o.ReadOnly = nil, b.Started, false
		o.SemiSync = health.SemiSync{MasterEnabled: true, MasterOn: true, Waiting: 1, NoTx: 7}
	}
	return in, b
}

// quietAfter carries out what Decide journals about the contact.
func quietAfter(t *testing.T, in Input) (Kind, bool) {
	t.Helper()
	a := Decide(in)
	c := in.View.Cluster
	st := &topology.State{Clusters: map[string]*topology.Cluster{c.Name: c}}
	st, err := st.Apply(a.Journal...)
	if err != nil {
		t.Fatal(err)
	}
	return a.Kind, st.Clusters[c.Name].Losses[0].Quiet
}

// A lost master was found waiting, and repld ended, or its fence failed, before it
// held. Whatever the server answered alone meanwhile is no longer unanswered.
func TestQuietIsTakenBackUntilTheFenceHolds(t *testing.T) {
	for name, c := range map[string]struct {
		since  time.Duration
		change func(in Input, sv *health.ServerView)
		kind   Kind
		quiet  bool
	}{
		"it still waits":                     {5 * time.Second, nil, KindFence, true},
		"it answered one alone":              {5 * time.Second, func(_ Input, sv *health.ServerView) { sv.Last.SemiSync.NoTx++ }, KindFence, false},
		"it stopped waiting":                 {5 * time.Second, func(_ Input, sv *health.ServerView) { sv.Last.SemiSync.MasterOn = false }, KindFence, false},
		"it is another process":              {5 * time.Second, func(in Input, sv *health.ServerView) { sv.Last.Started = in.View.Now }, KindFence, false},
		"its timeout may have run":           {26 * time.Second, nil, KindFence, false},
		"the fence held in time":             {10 * time.Second, fencedAgo(time.Second), KindJournal, true},
		"the fence held, unseen":             {10 * time.Second, fencedUnseen, KindFence, true},
		"the fence held too late":            {40 * time.Second, fencedAgo(time.Second), KindJournal, false},
		"it held in time, and was seen late": {40 * time.Second, fencedAgo(20 * time.Second), KindJournal, true},
	} {
		in, b := foundAgain(c.since)
		if c.change != nil {
			c.change(in, in.View.Servers[b.Master])
		}
		if kind, quiet := quietAfter(t, in); kind != c.kind || quiet != c.quiet {
			t.Errorf("%s: %s, quiet %v; want %s, %v", name, kind, quiet, c.kind, c.quiet)
		}
	}
}

// TestAnotherProcessIsOneThatStartedLater: only a process that began after the
// lost one was last known to live, and before that one's timeout, proves that
// what waited on it was never answered. A clock that was set makes the same
// process look like another one, which may have answered.
func TestAnotherProcessIsOneThatStartedLater(t *testing.T) {
	for name, c := range map[string]struct {
		start time.Duration // after the lost process was last known to live
		ended bool
	}{
		"restarted at once":                   {time.Second, true},
		"restarted, by whole seconds":         {-time.Second, true},
		"restarted after the timeout":         {29 * time.Second, false},
		"the same, the clock was set back":    {-2 * time.Hour, false},
		"the same, the clock was put forward": {-10 * time.Minute, false},
	} {
		in, b := foundAgain(40 * time.Second)
		b.Contacted, b.Quiet = false, false
		in.View.Servers[b.Master].Last.Started = b.WaitsFrom.Add(c.start)
		var found *topology.NoteContact
		for _, cmd := range Decide(in).Journal {
			if n, ok := cmd.(topology.NoteContact); ok {
				found = &n
			}
		}
		if found == nil || found.Quiet || found.Ended != c.ended {
			t.Errorf("%s: %+v, want ended %v", name, found, c.ended)
		}
	}
}

// fencedUnseen is a fence that has held, while the latest look was in its middle.
func fencedUnseen(in Input, sv *health.ServerView) {
	fencedAgo(time.Second)(in, sv)
	sv.Last.At = in.View.Now.Add(-2 * time.Second)
}

func fencedAgo(ago time.Duration) func(Input, *health.ServerView) {
	return func(in Input, sv *health.ServerView) {
		in.Effects["db2"] = Effect{Last: KindFence, At: in.View.Now.Add(-ago)}
		sv.Last.ReadOnly, sv.Last.At = true, in.View.Now
		sv.Last.SemiSync.MasterEnabled, sv.Last.SemiSync.MasterOn = false, false
	}
}
