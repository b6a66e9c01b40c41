package health

import (
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// moment is when the view of these tests is taken.
var moment = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return moment.Add(-d) }

const (
	ms   = time.Millisecond
	hang = 2 * time.Second
)

// scene is a master db1, which was last well 50 ms ago and whose latest probe
// met reach, and two slaves that were observed 5 ms ago.
func scene(reach Reach) *View {
	at := ago(10 * ms)
	v := &View{Now: moment, Started: ago(time.Hour), AwakeSince: ago(time.Hour), Servers: map[string]*ServerView{},
		Cluster: &topology.Cluster{Name: "main", Master: "db1", Servers: map[string]*topology.Server{
			"db1": {Name: "db1", Role: topology.RoleMaster},
			"db2": {Name: "db2", Role: topology.RoleSlave, Source: "db1"},
			"db3": {Name: "db3", Role: topology.RoleSlave, Source: "db1"},
		}}}
	v.Servers["db1"] = &ServerView{Last: Observation{Sent: ago(11 * ms), At: at, Reach: reach}, LastOK: Observation{Reach: ReachOK, Sent: ago(51 * ms), At: ago(50 * ms)}}
	if !reach.Answers() {
		v.Servers["db1"].FailingSince = ago(30 * ms)
	}
	if reach == ReachRefused {
		v.Servers["db1"].Refusals, v.Servers["db1"].RefusedFirst = 3, ago(30*ms)
	}
	for _, name := range []string{"db2", "db3"} {
		o := Observation{Reach: ReachOK, Sent: ago(6 * ms), At: ago(5 * ms), Slave: &SlaveStatus{IO: ThreadConnecting, SQL: ThreadYes}}
		v.Servers[name] = &ServerView{Last: o, LastOK: o, Advanced: ago(40 * ms)}
	}
	return v
}

// silentFor makes the master, and what slaves heard of it, silent.
func silentFor(v *View, d time.Duration) {
	m := v.Servers["db1"]
	m.LastOK.At, m.FailingSince = ago(d), ago(d-10*ms)
	for _, name := range []string{"db2", "db3"} {
		v.Servers[name].Advanced = ago(d)
		v.Servers[name].Last.Slave.IO = ThreadYes
	}
}

// heartbeat sets how often the slaves ask for one.
func heartbeat(v *View, d time.Duration) {
	for _, name := range []string{"db2", "db3"} {
		v.Servers[name].Last.Slave.HeartbeatPeriod = d
	}
}

func TestDetect(t *testing.T) {
	for _, c := range []struct {
		name     string
		reach    Reach
		change   func(v *View)
		policy   DetectPolicy
		want     State
		evidence string
		recheck  time.Duration
	}{
		{name: "a master that was never observed is unknown", reach: ReachUnknown, want: StateUnknown},
		{name: "a master that answers is alive", reach: ReachOK, want: StateAlive},
		{name: "an error from the server itself is alive", reach: ReachUnkind, want: StateAlive},
		{name: "no master is unknown", reach: ReachRefused, want: StateUnknown, change: func(v *View) { v.Cluster.Master = "" }},
		{name: "refused more than once and no slave connected is dead", reach: ReachRefused, want: StateDead, evidence: "3 dials refused within 20ms"},
		{name: "one refusal is not yet death", reach: ReachRefused, want: StateSuspect, change: func(v *View) { v.Servers["db1"].Refusals = 1 }},
		{name: "refusals within a moment are not yet death", reach: ReachRefused, want: StateSuspect,
			change: func(v *View) { v.Servers["db1"].RefusedFirst = ago(12 * ms) }},
		{name: "a connected slave vetoes a death", reach: ReachRefused, want: StateVetoed, evidence: "db3: IO thread yes",
			change: func(v *View) { v.Servers["db3"].Last.Slave.IO = ThreadYes }},
		{name: "a slave that was last asked before the first symptom says nothing yet", reach: ReachRefused, want: StateSuspect,
			change: func(v *View) { v.Servers["db3"].Last.Sent = ago(40 * ms) }},
		{name: "a slave that cannot be reached says nothing and does not block", reach: ReachRefused, want: StateDead, evidence: "db3: not reachable",
			change: func(v *View) { v.Servers["db3"].Last.Reach = ReachRefused }},
		{name: "a slave of somebody else has no say", reach: ReachRefused, want: StateDead, change: func(v *View) {
			v.Cluster.Servers["db3"].Source = "db2"
			v.Servers["db3"].Last.Slave.IO = ThreadYes
		}},
		{name: "a joining server has no say", reach: ReachRefused, want: StateDead, change: func(v *View) {
			v.Cluster.Servers["db3"].Joining = true
			v.Servers["db3"].Last.Slave.IO = ThreadYes
		}},
		{name: "a lonely master that refuses is dead", reach: ReachRefused, want: StateDead, change: func(v *View) {
			delete(v.Cluster.Servers, "db2")
			delete(v.Cluster.Servers, "db3")
		}},
		{name: "refused_grace lets a master restart", reach: ReachRefused, want: StateSuspect, policy: DetectPolicy{RefusedGrace: 100 * ms},
			evidence: "refused_grace leaves it 70ms", recheck: 70 * ms},
		{name: "and ends", reach: ReachRefused, want: StateDead, policy: DetectPolicy{RefusedGrace: 20 * ms}},
		{name: "another server at the address is no death", reach: ReachForeign, want: StateSuspect},
		{name: "silence shorter than hang_timeout is only suspect", reach: ReachTimeout, want: StateSuspect, recheck: hang - 50*ms},
		{name: "silence as long as hang_timeout is a hang", reach: ReachTimeout, want: StateHung, evidence: "no slave has received anything within 2s",
			change: func(v *View) { silentFor(v, hang) }},
		{name: "so is an unreachable network", reach: ReachUnreachable, want: StateHung, change: func(v *View) { silentFor(v, hang) }},
		{name: "and a connection that breaks without a refusal", reach: ReachBroken, want: StateHung, change: func(v *View) { silentFor(v, hang) }},
		{name: "a slave that still receives vetoes a hang", reach: ReachTimeout, want: StateVetoed, evidence: "received something from it 500ms ago", recheck: hang - 500*ms,
			change: func(v *View) { silentFor(v, hang); v.Servers["db2"].Advanced = ago(500 * ms) }},
		{name: "the stream is a witness too", reach: ReachTimeout, want: StateSuspect, recheck: hang - 300*ms, change: func(v *View) {
			silentFor(v, hang)
			v.Stream = StreamView{Server: "db1", Connected: true, LastEvent: ago(300 * ms)}
		}},
		{name: "the stream of another server is none", reach: ReachTimeout, want: StateHung, change: func(v *View) {
			silentFor(v, hang)
			v.Stream = StreamView{Server: "db2", Connected: true, LastEvent: ago(300 * ms)}
		}},
		{name: "a repld that slept does not take its own silence for the master's", reach: ReachTimeout, want: StateSuspect, recheck: hang - 200*ms,
			change: func(v *View) { silentFor(v, time.Minute); v.AwakeSince = ago(200 * ms) }},
		{name: "a silence shorter than some heartbeats is none", reach: ReachTimeout, want: StateVetoed, evidence: "db3 received something from it 1.2s ago",
			policy: DetectPolicy{HangTimeout: 500 * ms}, recheck: 300 * ms,
			change: func(v *View) {
				silentFor(v, time.Minute)
				v.Servers["db3"].Advanced = ago(1200 * ms)
				heartbeat(v, 500*ms)
			}},
		{name: "a silence longer than some heartbeats is one", reach: ReachTimeout, want: StateHung,
			policy: DetectPolicy{HangTimeout: 500 * ms}, change: func(v *View) { silentFor(v, 1501*ms); heartbeat(v, 500*ms) }},
		{name: "a slave not asked since the symptom leaves a hang open", reach: ReachTimeout, want: StateSuspect,
			change: func(v *View) { silentFor(v, hang); v.Servers["db3"].Last.Sent = ago(3 * time.Second) }},
		{name: "master and all slaves silent together: repld is cut off", reach: ReachTimeout, want: StateCutOff, change: func(v *View) {
			silentFor(v, time.Minute)
			v.Servers["db2"].Last.Reach, v.Servers["db3"].Last.Reach = ReachTimeout, ReachTimeout
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := scene(c.reach)
			if c.change != nil {
				c.change(v)
			}
			if c.policy.HangTimeout == 0 {
				c.policy.HangTimeout = hang
			}
			got := Detect(v, c.policy)
			if got.State != c.want {
				t.Errorf("%s, want %s; evidence %q", got.State, c.want, got.Evidence)
			}
			if evidence := strings.Join(got.Evidence, "\n"); !strings.Contains(evidence, c.evidence) {
				t.Errorf("evidence %q lacks %q", evidence, c.evidence)
			}
			if got.RecheckIn != c.recheck {
				t.Errorf("look again in %v, want %v", got.RecheckIn, c.recheck)
			}
			if lost := c.want == StateDead || c.want == StateHung; got.Lost() != lost {
				t.Errorf("lost: %v", got.Lost())
			}
			if c.want != StateAlive && c.want != StateUnknown && got.Since.IsZero() {
				t.Error("no time of the first symptom")
			}
		})
	}
}

// The first symptom is the break of the stream if that came before the first
// failed probe and after the last good one.
func TestTheFirstSymptomIsTheEarliest(t *testing.T) {
	v := scene(ReachRefused)
	if got := Detect(v, DetectPolicy{HangTimeout: hang}).Since; !got.Equal(ago(30 * ms)) {
		t.Errorf("without a stream: %v before", moment.Sub(got))
	}
	v.Stream = StreamView{Server: "db1", Since: ago(45 * ms)}
	if got := Detect(v, DetectPolicy{HangTimeout: hang}).Since; !got.Equal(ago(45 * ms)) {
		t.Errorf("with a broken stream: %v before", moment.Sub(got))
	}
	v.Stream.Since = ago(time.Minute)
	if got := Detect(v, DetectPolicy{HangTimeout: hang}).Since; !got.Equal(ago(30 * ms)) {
		t.Errorf("with a stream that broke long before a good probe: %v before", moment.Sub(got))
	}
}

// chained makes db3 a slave of db2.
func chained(v *View) {
	for name, s := range v.Cluster.Servers {
		s.Address = name + ":3306"
	}
	v.Cluster.Servers["db3"].Source = "db2"
	for name, source := range map[string]string{"db2": "db1", "db3": "db2"} {
		v.Servers[name].Last.Slave.SourceHost, v.Servers[name].Last.Slave.SourcePort = source, 3306
	}
}

// Only a slave that reads from the master itself can speak for it.
func TestOfAChainOnlyWhatReadsFromTheMasterIsAsked(t *testing.T) {
	for _, c := range []struct {
		name   string
		reach  Reach
		change func(v *View)
		want   State
	}{
		{"an IO thread connected to a relay is no sign of the master's life", ReachRefused, func(v *View) {
			v.Servers["db3"].Last.Slave.IO, v.Servers["db3"].Last.Sent = ThreadYes, ago(40*ms)
		}, StateDead},
		{"one that reads from the master because its relay is gone vetoes", ReachRefused, func(v *View) {
			v.Servers["db3"].Last.Slave.SourceHost, v.Servers["db3"].Last.Slave.IO = "db1", ThreadYes
		}, StateVetoed},
		{"one that is meant to read from the master, and still reads from another slave, has no say", ReachRefused, func(v *View) {
			v.Cluster.Servers["db3"].Source, v.Servers["db3"].Last.Slave.IO = "db1", ThreadYes
		}, StateDead},
		{"one whose source is no member counts as it is recorded", ReachRefused, func(v *View) {
			v.Cluster.Servers["db3"].Source, v.Servers["db3"].Last.Slave.IO = "db1", ThreadYes
			v.Servers["db3"].Last.Slave.SourceHost = "alias"
		}, StateVetoed},
		{"what a relay still receives by itself does not prevent a hung master", ReachTimeout, func(v *View) {
			silentFor(v, hang)
			v.Servers["db3"].Advanced, v.Servers["db3"].Fetched = ago(40*ms), ago(40*ms)
		}, StateHung},
		{"transactions that arrive through a relay which cannot be asked do", ReachTimeout, func(v *View) {
			silentFor(v, hang)
			v.Servers["db2"].Last.Reach, v.Servers["db3"].Fetched = ReachTimeout, ago(40*ms)
		}, StateVetoed},
		{"its heartbeats do not", ReachTimeout, func(v *View) {
			silentFor(v, hang)
			v.Servers["db2"].Last.Reach, v.Servers["db3"].Advanced, v.Servers["db3"].Fetched = ReachTimeout, ago(40*ms), ago(hang)
		}, StateHung},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := scene(c.reach)
			chained(v)
			c.change(v)
			if got := Detect(v, DetectPolicy{HangTimeout: hang}); got.State != c.want {
				t.Errorf("%s: %v", got.State, got.Evidence)
			}
		})
	}
}

// How long a slave has run, and when it last received something, is remembered.
func TestAViewRemembersHowLongASlaveRuns(t *testing.T) {
	var sv ServerView
	see := func(at time.Duration, io Thread, seq uint64) {
		sv.fold(Observation{Reach: ReachOK, At: moment.Add(at), Slave: &SlaveStatus{IO: io, SQL: ThreadYes, Received: gtid.At(gtid.GTID{Server: 1, Seq: seq})}})
	}
	see(0, ThreadYes, 1)
	see(ms, ThreadYes, 1)
	if sv.RunningSince != moment || sv.RunningAt != moment.Add(ms) || !sv.Fetched.IsZero() {
		t.Errorf("%v %v %v", sv.RunningSince, sv.RunningAt, sv.Fetched)
	}
	see(2*ms, ThreadConnecting, 2)
	if !sv.RunningSince.IsZero() || sv.RunningAt != moment.Add(ms) || sv.Fetched != moment.Add(2*ms) {
		t.Errorf("%v %v %v", sv.RunningSince, sv.RunningAt, sv.Fetched)
	}
	see(3*ms, ThreadYes, 2)
	sv.fold(Observation{Reach: ReachTimeout, At: moment.Add(4 * ms)})
	if !sv.RunningSince.IsZero() || sv.RunningAt != moment.Add(3*ms) || sv.Fetched != moment.Add(2*ms) {
		t.Errorf("%v %v %v", sv.RunningSince, sv.RunningAt, sv.Fetched)
	}
}
