package failover

import (
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// Kind is what an action does.
type Kind string

// The kinds of action. Those with effects run one at a time on each server.
const (
	// KindWait does nothing: look again when something changes, at the latest
	// after RecheckIn.
	KindWait Kind = "wait"
	// KindJournal only journals.
	KindJournal Kind = "journal"
	// KindBegin journals Intent, to which the loop gives its ID.
	KindBegin Kind = "begin"
	// KindProbe observes Servers anew.
	KindProbe Kind = "probe"

	KindStopIO   Kind = "stop_io"
	KindStopSQL  Kind = "stop_sql"
	KindStartSQL Kind = "start_sql"
	KindDrain    Kind = "drain_relay_log"
	KindFetch    Kind = "fetch"
	KindEndFetch Kind = "end_fetch"
	KindDetach   Kind = "detach"
	KindArm      Kind = "arm"
	KindDisarm   Kind = "disarm"
	KindOpen     Kind = "open"
	KindFence    Kind = "fence"
	KindShut     Kind = "shut"
	KindAttach   Kind = "attach"
	KindAnnounce Kind = "announce"
	// KindHook runs the user's program that Hook names, for the operation For.
	KindHook Kind = "hook"
	// KindEvents lets the recorded events run on the master; KindLookEvents only
	// looks which do.
	KindEvents     Kind = "resume_events"
	KindLookEvents Kind = "look_at_events"
	// KindRejoin hands a former master with extra transactions to the rejoiner.
	KindRejoin Kind = "rejoin"
	// KindCompare compares a former master's last transaction, Last, with the
	// master's of the same name.
	KindCompare Kind = "compare"
)

// Action is the one next thing to do. The order is fixed: what Journal holds is
// on disk before the effect begins.
type Action struct {
	Kind    Kind
	Servers []string
	Journal []topology.Command
	Intent  *topology.Intent
	// Attach says how, by server, for KindAttach.
	Attach map[string]Follow
	// From is the source of KindFetch.
	From string
	// Hook and For are of KindHook.
	Hook Hook
	For  string
	// Last is the transaction that KindCompare compares.
	Last gtid.GTID
	// Extra are the transactions that only the server of KindRejoin has.
	Extra []gtid.GTID
	// Ends is how the open intent ended, if Journal ends it.
	Ends topology.Result
	// Opening is set for KindOpen and for the journal of its success.
	Unseen []string
	// RecheckIn is when time alone could change the decision; 0: never.
	RecheckIn time.Duration
	// Why gives the facts behind the action, with measured values.
	Why []string
	// Notes are what status shall show of a wait that nothing holds back.
	Notes []Problem
	// Blocked lists the rules that hold back what is called for.
	Blocked []Problem
}

// Follow is how a server is made a slave.
type Follow struct {
	Source  string
	Acker   bool
	StartAt *gtid.Position
}

// Effect is what the loop knows of effects on one server.
type Effect struct {
	// Running is the kind under way, "" if none.
	Running Kind
	// Last is the latest one that ended, Failed how often in a row it failed, Again
	// how often in a row it succeeded, At when it ended and Err how.
	Last   Kind
	Failed int
	Again  int
	At     time.Time
	Err    string
}

// Order is a person's order to change the master.
type Order struct {
	// To is the wanted new master, "" for the best one.
	To string
	// AcceptLoss is how many transactions may be lost; nil if that was not said.
	AcceptLoss *uint64
	// Switchover replaces a live master in order.
	Switchover bool
}

// Input is everything that Decide may look at.
type Input struct {
	View    *health.View
	Verdict health.Verdict
	// Effects by server.
	Effects map[string]Effect
	Policy  Policy
	// Order is a person's order that has not become an intent yet.
	Order *Order
	// Announced is the epoch and durability that repld.cluster was last seen or
	// written with; see [Announcement].
	Announced string
	// Events is what the last look at a master's scheduled events showed, zero if
	// this process has not looked yet.
	Events EventsSeen
}

// EventsSeen is what was seen of a master's scheduled events.
type EventsSeen struct {
	Server string
	At     time.Time
	Events topology.Events
}

// Durations of rules that are not the user's to set.
const (
	// openWithin is how long an opening statement may take effect.
	openWithin = time.Second
	// openSlack is added before an unanswered opening is taken for void.
	openSlack = 2500 * time.Millisecond
	// freshProbe is how old the last look at the old master may be at the point
	// of no return.
	freshProbe = 60 * time.Millisecond
	// stuckAfter is how long a SQL thread may stand still while it has work.
	stuckAfter = 10 * time.Second
	// repointFor is how long a failover waits for the others to follow before it
	// ends and leaves them to the ordinary care.
	repointFor = 10 * time.Second
	// lookEventsEvery is how old what is recorded of a master's events may be.
	lookEventsEvery = 3 * time.Second
	// hookPause is how long after a hook failed it is run again.
	hookPause = 10 * time.Second
	// nudgeAfter is how long commits may wait without progress although an acker
	// is connected before repld writes a transaction of its own.
	nudgeAfter = time.Second
	// retryFirst and retryMost bound the pause before a failed effect is tried again.
	retryFirst = 200 * time.Millisecond
	retryMost  = 10 * time.Second
)
