package health

import (
	"context"
	"reflect"
	"time"

	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// Reach is what an attempt to reach a server showed.
type Reach string

// What a probe can meet. Only Refused and Broken speak of a dead process; only
// Timeout of a hung or cut-off one. Unkind is alive: the server answered,
// though with an error (too many connections, access denied, host blocked).
const (
	ReachUnknown     Reach = ""            // not probed yet
	ReachOK          Reach = "ok"          // answered everything
	ReachRefused     Reach = "refused"     // the dial was refused (RST)
	ReachBroken      Reach = "broken"      // an open connection was closed by the other side
	ReachTimeout     Reach = "timeout"     // no answer within probe_timeout
	ReachUnreachable Reach = "unreachable" // no route, no such host, network down
	ReachUnkind      Reach = "unkind"      // an error packet from the server itself
	ReachForeign     Reach = "foreign"     // answered, but its identity is not the recorded one
)

// Answers tells whether the server itself was there.
func (r Reach) Answers() bool { return r == ReachOK || r == ReachUnkind }

// Observation is what one probe saw of one server. Its times are repld's.
type Observation struct {
	Server string
	Sent   time.Time
	At     time.Time
	Reach  Reach
	// Errno is the server's own error number, 0 if the error was not the server's.
	Errno uint16
	// Err is the error's text without secrets; "" if Reach is ok.
	Err string

	// All below is valid only if Reach is ok.

	Identity topology.Identity
	Version  string
	// Started is when the server process started, from its uptime (±1 s).
	Started  time.Time
	ReadOnly bool
	// SlavePos is what a slave has applied (gtid_slave_pos); BinlogPos is the
	// last transaction of each domain in its binary log; BinlogState all pairs.
	SlavePos    gtid.Position
	BinlogPos   gtid.Position
	BinlogState gtid.State
	// Slave is the default connection's status, nil if none is configured.
	Slave *SlaveStatus
	// Fetch is the status of repld's named rescue connection, nil if none.
	Fetch    *SlaveStatus
	SemiSync SemiSync
	// LogBin, LogSlaveUpdates, EventScheduler, SkipSlaveStart are the server's
	// own effective settings.
	LogBin          bool
	LogSlaveUpdates bool
	EventScheduler  bool
	SkipSlaveStart  bool
	// SkipErrors is @@slave_skip_errors, "OFF" or "" if none.
	SkipErrors string
	// Stall is what holds up every write of a server that accepts them; zero if
	// nothing does.
	Stall Stall
	// ClockOffset is the server's clock minus repld's, with half the round trip
	// taken off.
	ClockOffset time.Duration
}

// news tells whether an observation shows something that the one before did
// not, other than that time has passed.
func (o *Observation) news(prev *Observation) bool {
	if !o.Reach.Answers() || o.Reach != prev.Reach {
		return true
	}
	return o.Err != prev.Err || o.Identity != prev.Identity || o.Version != prev.Version || o.ReadOnly != prev.ReadOnly ||
		!o.SlavePos.Equal(prev.SlavePos) || !o.BinlogPos.Equal(prev.BinlogPos) || o.SemiSync != prev.SemiSync ||
		o.LogBin != prev.LogBin || o.LogSlaveUpdates != prev.LogSlaveUpdates || o.EventScheduler != prev.EventScheduler ||
		o.SkipSlaveStart != prev.SkipSlaveStart || o.SkipErrors != prev.SkipErrors || o.Stall.State != prev.Stall.State ||
		o.Slave.news(prev.Slave) || o.Fetch.news(prev.Fetch) || o.Started.Sub(prev.Started).Abs() > restartTolerance
}

// news is as [Observation.news]; the heartbeats that were received, and the
// words for what the SQL thread does, are none.
func (s *SlaveStatus) news(prev *SlaveStatus) bool {
	if s == nil || prev == nil {
		return s != prev
	}
	is, was := *s, *prev
	same := is.Received.Equal(was.Received)
	for _, c := range []*SlaveStatus{&is, &was} {
		c.Received, c.Heartbeats, c.SQLState = gtid.Position{}, 0, ""
	}
	return !same || !reflect.DeepEqual(is, was)
}

// Stall is what sessions of a server wait for, if it holds up all writes.
type Stall struct {
	// State is the server's word for it, for example "Waiting for someone to free
	// space".
	State string
	// Sessions is how many wait, Longest for how long the first of them has.
	Sessions int
	Longest  time.Duration
}

// Thread is the state of a replication thread.
type Thread string

// The words of SHOW SLAVE STATUS.
const (
	ThreadNo         Thread = "no"
	ThreadYes        Thread = "yes"
	ThreadConnecting Thread = "connecting"
)

// SlaveStatus is one connection of SHOW ALL SLAVES STATUS.
type SlaveStatus struct {
	SourceHost string
	SourcePort uint16
	// SourceServerID is 0 until the IO thread has connected once.
	SourceServerID uint32
	IO             Thread
	SQL            Thread
	IOErrno        uint16
	IOError        string
	SQLErrno       uint16
	SQLError       string
	// SQLState is Slave_SQL_Running_State.
	SQLState string
	// UsingGTID is "Slave_Pos", "Current_Pos" or "No".
	UsingGTID string
	// Received is Gtid_IO_Pos: what was fetched in this run of the server. It is
	// empty after a restart, until the IO thread is started.
	Received gtid.Position
	// The source's file and position that were read (IO) and executed (SQL), and
	// where the SQL thread stands in the relay log.
	SourceLogFile   string
	ReadPos         uint64
	ExecLogFile     string
	ExecPos         uint64
	RelayLogFile    string
	RelayLogPos     uint64
	RelayLogSpace   uint64
	Heartbeats      uint64
	HeartbeatPeriod time.Duration
	// TLS is true if MASTER_SSL is on with verification.
	TLS bool
	// Delay is MASTER_DELAY.
	Delay time.Duration
	// Filtered is true if any Replicate_* rule is set.
	Filtered bool
}

// SemiSync is the state of both roles of semi-synchronous replication.
type SemiSync struct {
	MasterEnabled bool
	// MasterOn is Rpl_semi_sync_master_status: commits really wait.
	MasterOn bool
	// Clients is the number of connected ackers; Waiting that of commits that
	// wait for one now.
	Clients int
	Waiting int
	// YesTx and NoTx count the transactions since start that were committed with
	// and without an ack.
	YesTx, NoTx uint64
	// AfterSync is true if the wait point is AFTER_SYNC.
	AfterSync bool
	// Timeout is how long the master waits for an acker before it goes on alone.
	Timeout      time.Duration
	SlaveEnabled bool
	// SlaveOn is Rpl_semi_sync_slave_status: the IO thread was started as an acker.
	SlaveOn bool
}

// Prober looks at one server. An implementation keeps its own connection and
// redials at need; it never retries within one call.
type Prober interface {
	// Probe observes the server once. It returns within the context's deadline
	// and never fails: what went wrong is in the observation's Reach and Err. It
	// leaves the server as it was.
	Probe(ctx context.Context) Observation
	// Close ends the prober's connection. A Probe under way may be cut short.
	Close() error
}
