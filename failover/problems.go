package failover

import "github.com/repld/repld/internal/gtid"

// Problem is one thing that is wrong, or one reason why something cannot be
// done: a row of docs/problems.md with measured values.
type Problem struct {
	// Code is stable, snake_case, and listed in docs/problems.md.
	Code string `json:"code"`
	// Server is the server concerned, "" for the whole cluster.
	Server string `json:"server,omitempty"`
	// Text says it with the measured values.
	Text string `json:"text"`
	// Do names a command that exists and helps, "" if none does.
	Do string `json:"do,omitempty"`
}

// Health is the first word of status.
type Health string

// The five states of a cluster.
const (
	Healthy     Health = "healthy"
	Degraded    Health = "degraded"
	FailingOver Health = "failing_over"
	Blocked     Health = "blocked"
	NoMaster    Health = "no_master"
)

// Report is what status says of a cluster beyond plain observations: computed
// by the same rules that decide a failover.
type Report struct {
	Health   Health
	Problems []Problem
	// Servers by name: state and promotability.
	Servers map[string]ServerReport
	// Forecast is what a failover now would do.
	Forecast Forecast
	// Ackers are the servers whose acknowledgement a commit can wait for now.
	Ackers []string
	// AsConfigured is true if the master is seen to wait for ackers as the mode
	// wants it.
	AsConfigured bool
}

// ServerReport is what the rules say of one server.
type ServerReport struct {
	// State is the contract's word: writable, streaming, catching_up, lagging,
	// stopped, broken, diverged, unreachable, joining.
	State      string
	Promotable bool
	// Because lists why it is not promotable.
	Because  []Problem
	Problems []Problem
	// Errant are the transactions that it is seen to have and the master has not,
	// whatever else is the matter with it.
	Errant []gtid.GTID
	// AsHeld is true if it is stopped as a person has wanted it, Acks if it
	// acknowledges the master's commits.
	AsHeld, Acks bool
	// Unapplied counts what it is known to have received and not applied.
	Unapplied uint64
	// LagTransactions is nil if unknown.
	LagTransactions *uint64
}

// Forecast is what would happen if the master died now.
type Forecast struct {
	// Candidate is "" if nobody could be promoted.
	Candidate string
	// AtRisk is the number of acknowledged transactions that would be lost, nil
	// if unknown.
	AtRisk *uint64
	// Blocked lists what would hold the failover back.
	Blocked []Problem
}
