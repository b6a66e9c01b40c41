package topology

import (
	"maps"
	"slices"
	"time"

	"github.com/repld/repld/internal/gtid"
)

// IntentKind is what an intent is about.
type IntentKind string

// IntentFailover replaces a lost master. IntentReopen opens the recorded master
// again after it restarted by itself and nothing was promoted since.
// IntentSwitchover replaces a live one, ordered by a person.
const (
	IntentFailover   IntentKind = "failover"
	IntentReopen     IntentKind = "reopen"
	IntentSwitchover IntentKind = "switchover"
)

// Intent is what repld has decided to do about who is master, journaled before
// the first effect. Everything that can be observed is left out: a restarted
// repld reads the intent, observes the servers, and goes on. What cannot be
// observed is here: whom it chose, and that an opening statement was sent.
type Intent struct {
	// ID is the operation that records the steps.
	ID   string     `json:"id"`
	Kind IntentKind `json:"kind"`
	// Epoch is the era that this intent begins: the cluster's epoch plus one for
	// a failover, the same epoch for a reopening.
	Epoch     uint64 `json:"epoch"`
	OldMaster string `json:"old_master"`
	// To is the server that a person asked for; "" lets repld choose.
	To string `json:"to,omitempty"`
	// Manual is true if a person ordered it: block_window does not hold it back.
	Manual bool `json:"manual,omitempty"`
	// AcceptLoss is how many transactions a person said may be lost; nil: none
	// knowingly.
	AcceptLoss *uint64 `json:"accept_loss,omitempty"`
	// Symptom is the time of the first symptom, Begun of the verdict.
	Symptom time.Time `json:"symptom"`
	Begun   time.Time `json:"begun"`
	// Armed, ArmedSeen and Endless are as in [Break].
	Armed     bool      `json:"armed"`
	ArmedSeen time.Time `json:"armed_seen,omitzero"`
	Endless   bool      `json:"endless,omitempty"`
	// Started and NoTx are as in [Break].
	Started time.Time `json:"started,omitzero"`
	NoTx    uint64    `json:"no_tx"`
	// Dead and WaitsFrom are as in [Break].
	Dead      bool      `json:"dead,omitempty"`
	WaitsFrom time.Time `json:"waits_from,omitzero"`
	// Bound is the highest transaction of the old master that was observed by
	// any means; what was committed after it and reached nobody is unknown.
	Bound gtid.GTID `json:"bound"`
	// Own is what servers that fetched from others had received by themselves.
	Own map[string]gtid.GTID `json:"own,omitempty"`
	// Deadline is when a switchover that has sent no opening is rolled back.
	// RollingBack says why it is; "" if it is not.
	Deadline    time.Time `json:"deadline,omitzero"`
	RollingBack string    `json:"rolling_back,omitempty"`
	// Allowed is when hooks.pre_failover let the failover go on: it is asked
	// before anything is changed, and not again.
	Allowed time.Time `json:"allowed,omitzero"`
	// NeedsFence is true if the old master could go on to acknowledge writes when
	// the failover began: unless a person ordered it, nothing is opened before
	// Fenced, which is when hooks.fence said that it no longer can.
	NeedsFence bool      `json:"needs_fence,omitempty"`
	Fenced     time.Time `json:"fenced,omitzero"`
	// Opening is set before the first opening statement is sent and never
	// cleared but by the intent's end: from then on the candidate may be open.
	Opening *Opening `json:"opening,omitempty"`
	// Opened is set once the candidate was seen open; the others are then
	// re-pointed.
	Opened time.Time `json:"opened,omitzero"`
}

// Change is a change of master that has been carried out.
type Change struct {
	// Operation is its entry in the history.
	Operation string     `json:"operation"`
	Kind      IntentKind `json:"kind"`
	Epoch     uint64     `json:"epoch"`
	OldMaster string     `json:"old_master"`
	NewMaster string     `json:"new_master"`
}

// Opening is an opening statement that was, or may have been, sent.
type Opening struct {
	// Server is to be opened.
	Server string `json:"server"`
	// Applied is its position before the opening: the new era begins right
	// after it.
	Applied gtid.GTID `json:"applied"`
	// Deadline is the time on repld's clock after which the statement cannot open
	// the server any more. (The statement itself carries one on the server's
	// clock.)
	Deadline time.Time `json:"deadline"`
	// Armed tells whether commits wait for an acker from the first one on.
	Armed bool `json:"armed"`
	// Sent is when it was journaled; only an observation that began later says
	// anything about it.
	Sent time.Time `json:"sent"`
}

// Clone is a deep copy.
func (in *Intent) Clone() *Intent {
	if in == nil {
		return nil
	}
	c := *in
	c.Own = maps.Clone(in.Own)
	if in.Opening != nil {
		o := *in.Opening
		c.Opening = &o
	}
	return &c
}

// OperationKind is what an operation did.
type OperationKind string

// The kinds of history entries.
const (
	OpFailover   OperationKind = "failover"
	OpSwitchover OperationKind = "switchover"
	OpRejoin     OperationKind = "rejoin"
	OpInit       OperationKind = "init"
	OpAdopt      OperationKind = "adopt"
	OpRemove     OperationKind = "remove"
	OpDegrade    OperationKind = "degrade"
	OpRearm      OperationKind = "rearm"
	OpDurability OperationKind = "durability"
	// OpRestart: the master restarted by itself and was opened again.
	OpRestart OperationKind = "restart"
)

// Result is how an operation ended.
type Result string

// Results of an operation.
const (
	ResultRunning    Result = "running"
	ResultDone       Result = "done"
	ResultRolledBack Result = "rolled_back"
	ResultBlocked    Result = "blocked"
	ResultFailed     Result = "failed"
)

// Operation is an entry of the history.
type Operation struct {
	ID        string        `json:"id"`
	Cluster   string        `json:"cluster"`
	Kind      OperationKind `json:"kind"`
	Result    Result        `json:"result"`
	Server    string        `json:"server,omitempty"`
	OldMaster string        `json:"old_master,omitempty"`
	NewMaster string        `json:"new_master,omitempty"`
	Epoch     uint64        `json:"epoch,omitempty"`
	StartedAt time.Time     `json:"started_at"`
	EndedAt   time.Time     `json:"ended_at,omitzero"`
	// Milliseconds from the first symptom; nil if unknown or not applicable.
	DetectedMS    *float64 `json:"detected_ms"`
	OpenedMS      *float64 `json:"opened_ms"`
	TotalMS       *float64 `json:"total_ms"`
	WriteOutageMS *float64 `json:"write_outage_ms"`
	Steps         []Step   `json:"steps"`
	// LostTransactions is nil if unknown; Detail then says the bound.
	LostTransactions    *uint64  `json:"lost_transactions"`
	RescuedTransactions uint64   `json:"rescued_transactions"`
	Evidence            []string `json:"evidence"`
	Detail              string   `json:"detail,omitempty"`
}

// Step is one timed part of an operation.
type Step struct {
	Name   string  `json:"name"`
	Server string  `json:"server,omitempty"`
	MS     float64 `json:"ms"`
	Result string  `json:"result"`
	// Output is the last part of what a hook printed.
	Output string `json:"output,omitempty"`
}

// Clone is a deep copy.
func (o *Operation) Clone() *Operation {
	c := *o
	c.Steps = slices.Clone(o.Steps)
	c.Evidence = slices.Clone(o.Evidence)
	return &c
}

// Account is one of the accounts that repld made for a cluster. The password
// is encrypted at rest.
type Account struct {
	// Purpose is "repld" (the daemon's own), "replication" (the slaves') or "copy"
	// (used only while data is copied from one server to another).
	Purpose  string `json:"purpose"`
	User     string `json:"user"`
	Password string `json:"password"`
}

// Accounts by purpose.
type Accounts map[string]Account

// The purposes of accounts.
const (
	AccountRepld       = "repld"
	AccountReplication = "replication"
	AccountCopy        = "copy"
)

// Clone is a copy.
func (a Accounts) Clone() Accounts { return maps.Clone(a) }
