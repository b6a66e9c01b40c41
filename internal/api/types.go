package api

import (
	"time"

	"github.com/repld/repld/internal/version"
)

// Status is a cluster as `replctl status -o json` prints it. A nil pointer is
// null: unknown, or that there is none; never a zero that was not measured.
type Status struct {
	Cluster string `json:"cluster"`
	// Health is healthy, degraded, failing_over, blocked or no_master.
	Health string `json:"health"`
	Epoch  uint64 `json:"epoch"`
	// Master is the recorded master, null before init.
	Master *string `json:"master"`
	// Mode is failover.mode: automatic or manual.
	Mode       string         `json:"mode"`
	Paused     bool           `json:"paused"`
	Durability Durability     `json:"durability"`
	Servers    []ServerStatus `json:"servers"`
	Forecast   Forecast       `json:"if_master_died_now"`
	Problems   []Problem      `json:"problems"`
}

// Writable tells whether any server of the cluster takes writes now.
func (s *Status) Writable() bool {
	for _, server := range s.Servers {
		if server.State == StateWritable {
			return true
		}
	}
	return false
}

// StateWritable is the state of an open master.
const StateWritable = "writable"

// Durability is what commits on the master wait for.
type Durability struct {
	Configured string `json:"configured"`
	// State is armed, degraded or off.
	State string `json:"state"`
	// Ackers can acknowledge a commit now.
	Ackers []string `json:"ackers"`
}

// ServerStatus is one server in a [Status]. What was observed is null unless the
// latest probe was answered.
type ServerStatus struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	// Role is the recorded one: master or slave. Source is null for a master.
	Role   string  `json:"role"`
	Source *string `json:"source"`
	// State is writable, streaming, catching_up, lagging, stopped, broken,
	// diverged, unreachable or joining.
	State    string `json:"state"`
	Flavor   string `json:"flavor"`
	Version  string `json:"version"`
	ServerID uint32 `json:"server_id"`
	ReadOnly *bool  `json:"read_only"`
	// GTID is what is applied, GTIDReceived what a slave has fetched.
	GTID         *string `json:"gtid"`
	GTIDReceived *string `json:"gtid_received"`
	// LagMS is the age of the oldest transaction of the master that is not
	// applied here; 0 only if there is none.
	LagMS           *int64  `json:"lag_ms"`
	LagTransactions *uint64 `json:"lag_transactions"`
	LagBytes        *uint64 `json:"lag_bytes"`
	// IOThread is yes, no or connecting, SQLThread yes or no; null on a master.
	IOThread  *string `json:"io_thread"`
	SQLThread *string `json:"sql_thread"`
	// TLS tells whether the slave's connection to its source is verified TLS.
	TLS       *bool      `json:"tls"`
	LastError *LastError `json:"last_error"`
	// Promotable tells whether the server could be the next master now.
	Promotable           bool      `json:"promotable"`
	NotPromotableBecause []Problem `json:"not_promotable_because"`
	// ClockOffsetMS is the server's clock minus repld's.
	ClockOffsetMS *int64    `json:"clock_offset_ms"`
	Problems      []Problem `json:"problems"`
	// ObservedMSAgo is the age of the last full observation, null if there was
	// none.
	ObservedMSAgo *int64 `json:"observed_ms_ago"`
}

// LastError is a replication thread's error as the server tells it.
type LastError struct {
	Code    uint16 `json:"code"`
	Message string `json:"message"`
}

// Problem is one thing that is wrong, or one reason why something cannot be.
type Problem struct {
	// Code is stable and listed in docs/problems.md.
	Code string `json:"code"`
	// Server is "" if the whole cluster is concerned.
	Server string `json:"server"`
	Text   string `json:"text"`
	// Do is a command that helps, "" if none does.
	Do string `json:"do"`
}

// Forecast is what would happen if the master died now.
type Forecast struct {
	Candidate          *string   `json:"candidate"`
	TransactionsAtRisk *uint64   `json:"transactions_at_risk"`
	BlockedBecause     []Problem `json:"blocked_because"`
}

// Operation is one entry of `replctl history`.
type Operation struct {
	ID string `json:"id"`
	// Kind is failover, switchover, restart, rejoin, init, adopt, remove, durability, degrade
	// or rearm.
	Kind string `json:"kind"`
	// Result is running, done, rolled_back, blocked or failed.
	Result    string  `json:"result"`
	Server    *string `json:"server"`
	OldMaster *string `json:"old_master"`
	NewMaster *string `json:"new_master"`
	Epoch     *uint64 `json:"epoch"`
	StartedAt string  `json:"started_at"`
	// DetectedMS is first symptom to verdict, OpenedMS first symptom to new
	// master open, WriteOutageMS last transaction seen from the old master to the
	// first acknowledged one on the new.
	DetectedMS    *float64 `json:"detected_ms"`
	OpenedMS      *float64 `json:"opened_ms"`
	TotalMS       *float64 `json:"total_ms"`
	WriteOutageMS *float64 `json:"write_outage_ms"`
	Steps         []Step   `json:"steps"`
	// LostTransactions is null if unknown.
	LostTransactions    *uint64  `json:"lost_transactions"`
	RescuedTransactions uint64   `json:"rescued_transactions"`
	Evidence            []string `json:"evidence"`
	Detail              string   `json:"detail"`
}

// TimeFormat is how times are written: RFC 3339 in UTC with milliseconds.
const TimeFormat = "2006-01-02T15:04:05.000Z07:00"

// FormatTime writes t in [TimeFormat].
func FormatTime(t time.Time) string { return t.UTC().Format(TimeFormat) }

// Step is one timed part of an [Operation].
type Step struct {
	Name   string  `json:"name"`
	Server *string `json:"server"`
	MS     float64 `json:"ms"`
	Result string  `json:"result"`
	// Output is the last part of what a hook printed.
	Output string `json:"output,omitempty"`
}

// Version says which build a program is.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Date    string `json:"date"`
}

// ThisVersion is the running program's own.
func ThisVersion() Version {
	return Version{Version: version.Version, Commit: version.Commit, Date: version.Date}
}
