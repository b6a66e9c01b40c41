package explorer

import (
	"fmt"
	"time"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

type reach uint8

const (
	unseen reach = iota
	answers
	refuses
	silent
)

// snapshot is what one answered probe showed.
type snapshot struct {
	ro, young, gtid, ioErr, sqlErr, gotShown, files, drained bool
	acker, acking, armed, on, fetchOn, hears                 bool
	mute                                                     bool // commits wait, and no connected acker can answer
	io, sql                                                  thread
	src, fetch, clients, waits                               uint8
	pos, got                                                 point
	log                                                      history
}

// memory is what repld remembers of one server, in its process.
type memory struct {
	ok    snapshot
	okAny bool
	reach reach
	// What the latest probe of a server with a stale view began after. (Others are
	// observed anew at each step.)
	sinceBegun, sinceSent, sinceDeadline bool
	// stale: the view of it is not refreshed. afterMaster: it was last answered
	// later than the master was.
	stale, afterMaster bool
	ceiling            point
	running            effect
	last               verb
	failed             uint8
	endedSince         bool // the last effect ended since the intent began
	// ghost is a statement that was sent and not answered; it may still run.
	ghost effect
}

// repld is the daemon: its journal (an interned cluster) and its memory.
type repld struct {
	cluster uint16
	m       [maxServers]memory
	// What has passed: hang_timeout with the master silent; the opening's
	// deadline; ack_timeout without an acker; the time for re-pointing;
	// ack_timeout since the master restarted; the deadline of the switchover.
	silentLong, openExpired, noAckerLong, repointLong, youngLong, deadlineLong bool
	armedSeen, announced                                                       bool
	// ordered: a person's order is at hand that has not become an intent.
	ordered bool
	hook    hookState
}

func name(x int) string         { return fmt.Sprintf("db%d", x+1) }
func address(x int) string      { return fmt.Sprintf("127.0.0.1:%d", 1001+x) }
func index(name string) int     { return int(name[2] - '1') }
func (p point) gtid() gtid.GTID { return gtid.GTID{Server: uint32(p.id), Seq: uint64(p.seq)} }

func pointOf(g gtid.GTID) point { return point{uint8(g.Server), uint8(g.Seq)} }

// The canonical times. Only their order, and the policy's spans, matter.
var (
	now       = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	tStarted  = now.Add(-3 * time.Hour)
	tOpenedAt = now.Add(-2 * time.Hour)
	tSymptom  = now.Add(-101 * time.Second)
	tBegun    = now.Add(-100 * time.Second)
	tSent     = now.Add(-50 * time.Second)
	tDeadline = now.Add(time.Second)
	tExpired  = now.Add(-40 * time.Second)
	tOpened   = now.Add(-time.Second)
	tLong     = now.Add(-30 * time.Second)
)

// policy is the default one, without a window between failovers.
var policy = failover.Policy{
	Automatic: true, HangTimeout: 2 * time.Second, MaxLag: 10 * time.Minute, AckTimeout: 10 * time.Second,
	ServerTimeout: 30 * time.Second, ProbeInterval: 100 * time.Millisecond, ProbeTimeout: time.Second, UndoUnacknowledged: true,
	SwitchoverTimeout: 10 * time.Second,
}

// probed is when the latest probe of a server began.
func (m *memory) probed() time.Time {
	switch {
	case !m.stale:
		return now.Add(-5 * time.Millisecond)
	case !m.sinceBegun:
		return now.Add(-110 * time.Second)
	case !m.sinceSent:
		return now.Add(-90 * time.Second)
	case !m.sinceDeadline:
		return now.Add(-45 * time.Second)
	}
	return now.Add(-20 * time.Second)
}

// input makes what the shipped code looks at from what repld remembers.
func (e *Explorer) input(r *repld) failover.Input {
	c := e.clusterOf(r)
	v := &health.View{Now: now, Cluster: c, Servers: map[string]*health.ServerView{}, Started: tStarted, AwakeSince: tStarted}
	effects := map[string]failover.Effect{}
	master := index(c.Master)
	for x := range e.Servers {
		m := &r.m[x]
		v.Servers[name(x)] = e.serverView(r, x, x == master, &r.m[master])
		if m.running.verb != verbNone || m.last != verbNone {
			fx := failover.Effect{Running: kinds[m.running.verb], Last: kinds[m.last], Failed: int(m.failed), At: now.Add(-time.Hour)}
			if m.endedSince {
				fx.At = now.Add(-30 * time.Second)
			}
			if m.last == verbCompare && !m.endedSince {
				fx.At = now.Add(time.Second - time.Hour) // since the server's start
			}
			effects[name(x)] = fx
		}
	}
	if r.announced {
		effects[""] = failover.Effect{Running: failover.KindAnnounce}
	}
	if fx, ok := r.hook.effect(); ok {
		effects[fenceKey] = fx
	}
	if in := c.Intent; in != nil && in.Kind == topology.IntentSwitchover {
		effects[eventsKey] = failover.Effect{Last: failover.KindLookEvents, At: now}
	}
	if !r.silentLong {
		v.Stream = health.StreamView{Server: c.Master, Connected: true, LastEvent: now.Add(-500 * time.Millisecond)}
	}
	in := failover.Input{View: v, Effects: effects, Policy: e.Policy, Events: failover.EventsSeen{Server: c.Master, At: now}, Order: e.ordered(r)}
	in.Verdict = health.Detect(v, health.DetectPolicy{HangTimeout: e.Policy.HangTimeout})
	return in
}

// clusterOf is the journal, with the times that bits of the state move.
func (e *Explorer) clusterOf(r *repld) *topology.Cluster {
	c := e.clusters[r.cluster]
	in := c.Intent
	if in == nil || !r.openExpired && !r.repointLong && !r.deadlineLong {
		return c
	}
	d := *c
	d.Intent = in.Clone()
	if r.openExpired && in.Opening != nil {
		d.Intent.Opening.Deadline = tExpired
	}
	if r.deadlineLong {
		d.Intent.Deadline = tExpired
	}
	if r.repointLong && !in.Opened.IsZero() {
		d.Intent.Opened = tLong
	}
	return &d
}

var reaches = [...]health.Reach{unseen: health.ReachUnknown, answers: health.ReachOK, refuses: health.ReachRefused, silent: health.ReachTimeout}

func (e *Explorer) serverView(r *repld, x int, isMaster bool, master *memory) *health.ServerView {
	m := &r.m[x]
	sv := &health.ServerView{}
	if m.reach == unseen {
		return sv
	}
	sent := m.probed()
	at := sent.Add(time.Millisecond)
	if isMaster { // it is asked last
		sent, at = sent.Add(2*time.Millisecond), at.Add(2*time.Millisecond)
	}
	sv.Last = health.Observation{Server: name(x), Sent: sent, At: at, Reach: reaches[m.reach]}
	if m.okAny {
		sv.LastOK = m.observation(r, x, isMaster)
		okSent := now.Add(-150 * time.Second)
		if !isMaster {
			okSent = now.Add(-200 * time.Second)
			if m.afterMaster {
				okSent = now.Add(-140 * time.Second)
			}
		}
		sv.LastOK.Sent, sv.LastOK.At = okSent, okSent.Add(time.Millisecond)
	}
	switch m.reach {
	case answers:
		sv.LastOK.Sent, sv.LastOK.At = sent, at
		sv.Last = sv.LastOK
	case refuses:
		sv.Refusals, sv.RefusedFirst, sv.Ceiling = 3, at.Add(-50*time.Millisecond), m.ceiling.gtid()
		sv.FailingSince = at.Add(-time.Second)
	case silent:
		sv.FailingSince = at.Add(-time.Second)
	}
	e.derived(r, sv, m)
	return sv
}

// derived is what health.ServerView folds from a series of observations.
func (e *Explorer) derived(r *repld, sv *health.ServerView, m *memory) {
	sv.Applied, sv.NoAckerSince = now, now
	if r.noAckerLong {
		sv.NoAckerSince = now.Add(-time.Hour)
	}
	if m.ok.clients > 0 {
		sv.NoAckerSince = time.Time{}
	}
	if m.ok.mute && r.noAckerLong {
		sv.WaitingSince = now.Add(-time.Hour)
	}
	// Relays that run have been steady, those that do not have had their grace.
	sv.RunningAt = now.Add(-time.Hour)
	if st := sv.Last.Slave; st != nil && st.IO == health.ThreadYes && st.SQL == health.ThreadYes {
		sv.RunningSince, sv.RunningAt = sv.RunningAt, sv.Last.At
	}
	if in := e.clusters[r.cluster].Intent; e.Bounds.Chain || in != nil && in.Kind == topology.IntentSwitchover {
		sv.LagApplied = new(time.Duration)
	}
	sv.Advanced = now.Add(-time.Hour)
	if m.ok.hears {
		sv.Advanced = sv.Last.At
	}
	if r.armedSeen {
		sv.ArmedAt = sv.Last.At
		if !sv.FailingSince.IsZero() {
			sv.ArmedAt = sv.FailingSince.Add(-time.Second)
		}
	}
}

// observation is an answered probe in the shipped form.
func (m *memory) observation(r *repld, x int, isMaster bool) health.Observation {
	o := &m.ok
	out := health.Observation{
		Server: name(x), Reach: health.ReachOK, ReadOnly: o.ro, Started: tStarted, LogBin: true, LogSlaveUpdates: true, SkipSlaveStart: true,
		SlavePos: gtid.At(o.pos.gtid()), BinlogPos: gtid.At(o.log.last().gtid()), BinlogState: o.log.state(),
		SemiSync: health.SemiSync{MasterEnabled: o.armed, Timeout: policy.ServerTimeout, MasterOn: o.on, Clients: int(o.clients), Waiting: int(o.waits),
			AfterSync: true, SlaveEnabled: o.acker, SlaveOn: o.acking},
	}
	if o.young {
		out.Started = now.Add(-time.Hour)
		if isMaster && !r.youngLong {
			out.Started = now.Add(-5 * time.Second)
		}
	}
	if o.src != 0 {
		out.Slave = o.slave()
	}
	if o.fetch != 0 {
		out.Fetch = &health.SlaveStatus{SourceHost: "127.0.0.1", SourcePort: uint16(1000 + int(o.fetch)), UsingGTID: "Slave_Pos",
			IO: word(o.fetchOn, health.ThreadYes, health.ThreadNo), SQL: word(o.fetchOn, health.ThreadYes, health.ThreadNo)}
	}
	return out
}

func (o *snapshot) slave() *health.SlaveStatus {
	threads := [...]health.Thread{no: health.ThreadNo, connecting: health.ThreadConnecting, yes: health.ThreadYes}
	st := &health.SlaveStatus{SourceHost: "127.0.0.1", SourcePort: uint16(1000 + int(o.src)), IO: threads[o.io], SQL: threads[o.sql],
		UsingGTID: word(o.gtid, "Slave_Pos", "No")}
	if o.ioErr {
		st.IOErrno, st.IOError = 1236, "not in the master's binlog"
	}
	if o.sqlErr {
		st.SQLErrno, st.SQLError = 1950, "out of order"
	}
	if o.gotShown {
		st.Received = gtid.At(o.got.gtid())
	}
	if o.files {
		st.SourceLogFile, st.ExecLogFile = "binlog.000001", "binlog.000001"
	}
	if o.drained {
		st.SQLState = "Slave has read all relay log; waiting for more updates"
	}
	return st
}

func word[T any](b bool, t, f T) T {
	if b {
		return t
	}
	return f
}

func (h *history) state() gtid.State {
	list := make([]gtid.GTID, 0, h.n)
	for k := uint8(1); k <= h.n; k++ {
		list = append(list, point{h.at(k), k}.gtid())
	}
	return gtid.StateOf(list...)
}
