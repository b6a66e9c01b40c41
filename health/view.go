package health

import (
	"time"

	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// View is everything known about a cluster at one moment: what is recorded and
// what was observed. It is a snapshot: nobody changes it once it is made.
type View struct {
	// Now is when the snapshot was taken.
	Now     time.Time
	Cluster *topology.Cluster
	Servers map[string]*ServerView
	Stream  StreamView
	// Started is when this repld began to watch the cluster.
	Started time.Time
	// AwakeSince is since when repld itself has run, and has reached at least one
	// server, without a gap. A daemon that was frozen, starved or cut off must not
	// take its own silence for the master's.
	AwakeSince time.Time
}

// ServerView is what is known of one server.
type ServerView struct {
	// Last is the latest observation, whatever it met; LastOK the latest that
	// was answered in full (its Reach is "" if there was none).
	Last   Observation
	LastOK Observation
	// FailingSince is the time of the first failed probe after LastOK, zero if
	// Last is ok; Refusals and the span count refused dials in a row, so that one
	// lost packet is not a death.
	FailingSince time.Time
	Refusals     int
	RefusedFirst time.Time
	// Ceiling is an upper bound of what this server can have received while it
	// refuses connections: the master's position at the first observation of the
	// master that began after the server was found down. Zero if unknown.
	Ceiling gtid.GTID
	// RestartedAt is the start time of the server process if it changed while
	// repld watched.
	RestartedAt time.Time
	// Advanced is the last time that the IO thread was seen to have fetched an
	// event or a heartbeat since the observation before.
	Advanced time.Time
	// Applied is the last time that the applied position, or the position inside
	// the relay log, was seen to have moved, or nothing was left to apply.
	Applied time.Time
	// ApplyRate is how many transactions per second it has lately applied while it
	// moved; 0 if unknown.
	ApplyRate float64
	// StreamingAt is the last time the slave was seen with its IO thread connected.
	StreamingAt time.Time
	// RunningSince is since when both threads were seen running by every probe,
	// zero if they are not now; RunningAt the last time that they were.
	RunningSince, RunningAt time.Time
	// Fetched is the last time that a further transaction was seen received.
	Fetched time.Time
	// NoAckerSince, on a master, is since when it is observed without an acker;
	// WaitingSince since when commits wait without progress.
	NoAckerSince time.Time
	WaitingSince time.Time
	// ArmedAt is the last observation, as a master, with semi-sync on, its
	// status ON and an acker connected.
	ArmedAt time.Time
	// LagReceived and LagApplied are the age, now, of the oldest transaction of
	// the master that this server has not received, or not applied; nil if
	// unknown. Missing counts the transactions not received.
	LagReceived, LagApplied *time.Duration
	Missing                 *uint64
	// LagBytes is how much of the master's binary log it has not applied; nil if
	// unknown.
	LagBytes *uint64
}

// Reachable tells whether the latest probe was answered in full.
func (s *ServerView) Reachable() bool { return s != nil && s.Last.Reach == ReachOK }

// heartbeats is how many of them an idle master that is alive cannot have missed.
const heartbeats = 3

// HearsUntil is until when a slave counts as hearing its master: what it last
// received is a sign of life for the given time, or for some heartbeats if that
// is longer, since a slave of an idle master receives nothing between two of
// them. It is zero if it has never been seen to receive anything.
func (s *ServerView) HearsUntil(silence time.Duration) time.Time {
	if s.Advanced.IsZero() || s.Last.Slave == nil {
		return time.Time{}
	}
	return s.Advanced.Add(max(silence, heartbeats*s.Last.Slave.HeartbeatPeriod))
}

// Hears tells whether a slave counts as hearing its master now.
func (s *ServerView) Hears(now time.Time, silence time.Duration) bool {
	return s.HearsUntil(silence).After(now)
}

// StreamView is what the binlog stream of the recorded master says.
type StreamView struct {
	// Server is the master that the stream reads.
	Server    string
	Connected bool
	// Since is when Connected last changed.
	Since time.Time
	// LastEvent is the time of the last event or heartbeat.
	LastEvent time.Time
	// Last is the last transaction seen, File and Pos where it ends.
	Last gtid.GTID
	File string
	Pos  uint64
	// LastTx is when Last was received.
	LastTx time.Time
	// Err is why the stream is not connected.
	Err string
}

// State is the verdict about a master.
type State string

// The verdicts. Only Dead and Hung can lead to a failover.
const (
	// StateAlive: it answers, kindly or not.
	StateAlive State = "alive"
	// StateSuspect: something is wrong, and not enough to say what.
	StateSuspect State = "suspect"
	// StateDead: connections broke and dials are refused, and no slave reads from it.
	StateDead State = "dead"
	// StateHung: it does not answer, and no slave receives anything from it.
	StateHung State = "hung"
	// StateVetoed: repld cannot reach it, but a slave still receives from it.
	StateVetoed State = "vetoed"
	// StateCutOff: repld reaches neither the master nor any slave.
	StateCutOff State = "cut_off"
	// StateUnknown: not observed yet.
	StateUnknown State = "unknown"
)

// Verdict is what [Detect] says of the master.
type Verdict struct {
	State State
	// Since is the first symptom, zero if alive.
	Since time.Time
	// Evidence is each fact that the verdict rests on, with measured values.
	Evidence []string
	// RecheckIn is when the verdict could change by the passing of time alone; 0
	// if only a new observation can change it.
	RecheckIn time.Duration
}

// Lost tells whether the verdict calls for a failover.
func (v Verdict) Lost() bool { return v.State == StateDead || v.State == StateHung }
