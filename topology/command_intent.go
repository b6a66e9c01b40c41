package topology

import (
	"fmt"
	"slices"
	"time"

	"github.com/repld/repld/internal/gtid"
)

// BeginIntent journals an intent before its first effect.
type BeginIntent struct {
	Cluster string
	Intent  Intent
}

func (c BeginIntent) cluster() string  { return c.Cluster }
func (c BeginIntent) structural() bool { return false }
func (c BeginIntent) apply(st *State) error {
	cl, err := st.find(c.Cluster)
	if err != nil {
		return err
	}
	if cl.Intent != nil {
		return fmt.Errorf("cluster %q, intent %s: %w", c.Cluster, cl.Intent.ID, ErrIntentOpen)
	}
	cl.Intent = c.Intent.Clone()
	cl.Shutting = cl.Shutting || c.Intent.Kind == IntentSwitchover
	if c.Intent.Kind != IntentReopen {
		// Every IO thread may be stopped from now on; each is owed a start.
		for _, name := range cl.Names() {
			if name != cl.Master && !slices.Contains(cl.Stopped, name) {
				cl.Stopped = append(cl.Stopped, name)
			}
		}
	}
	return nil
}

// SendOpening journals that an opening statement is about to be sent: the
// point of no return.
type SendOpening struct {
	Cluster, Intent string
	Opening         Opening
}

func (c SendOpening) cluster() string  { return c.Cluster }
func (c SendOpening) structural() bool { return false }
func (c SendOpening) apply(st *State) error {
	cl, in, err := st.intent(c.Cluster, c.Intent)
	if err != nil {
		return err
	}
	if cl.ConfirmNeeded != "" {
		return fmt.Errorf("cluster %q must be confirmed first: %w", c.Cluster, ErrInconsistent)
	}
	if in.Opening != nil && in.Opening.Server != c.Opening.Server {
		return fmt.Errorf("intent %s may already have opened %q: %w", in.ID, in.Opening.Server, ErrInconsistent)
	}
	o := c.Opening
	in.Opening = &o
	if o.Server == cl.Master && !o.Armed && cl.Durability != Async {
		// It may go on without an acker from now on. An acker that is out of reach
		// may hold what was promised before.
		cl.setDurability(DurabilityDegraded, o.Sent)
		cl.raiseFloor(o.Applied)
	}
	return nil
}

// AcceptLoss journals that a person lets an open failover lose up to N
// transactions.
type AcceptLoss struct {
	Cluster, Intent string
	N               uint64
}

func (c AcceptLoss) cluster() string  { return c.Cluster }
func (c AcceptLoss) structural() bool { return false }
func (c AcceptLoss) apply(st *State) error {
	_, in, err := st.intent(c.Cluster, c.Intent)
	if err != nil {
		return err
	}
	n := c.N
	in.AcceptLoss, in.Manual = &n, true
	return nil
}

// RaiseBound journals that more of the old master's transactions were seen than
// the intent knows of. It never lowers the bound.
type RaiseBound struct {
	Cluster, Intent string
	GTID            gtid.GTID
}

func (c RaiseBound) cluster() string  { return c.Cluster }
func (c RaiseBound) structural() bool { return false }
func (c RaiseBound) apply(st *State) error {
	_, in, err := st.intent(c.Cluster, c.Intent)
	if err != nil {
		return err
	}
	if c.GTID.Seq > in.Bound.Seq {
		in.Bound = c.GTID
	}
	return nil
}

// NoteFetch journals, before a candidate fetches from another server, what it
// has received by itself. Of several fetches of one server the first counts.
type NoteFetch struct {
	Cluster, Intent, Server string
	Own                     gtid.GTID
}

func (c NoteFetch) cluster() string  { return c.Cluster }
func (c NoteFetch) structural() bool { return false }
func (c NoteFetch) apply(st *State) error {
	_, in, err := st.intent(c.Cluster, c.Intent)
	if err != nil {
		return err
	}
	if _, known := in.Own[c.Server]; !known {
		if in.Own == nil {
			in.Own = map[string]gtid.GTID{}
		}
		in.Own[c.Server] = c.Own
	}
	return nil
}

// MarkOpen journals that the master is open and that nothing which repld sent
// to shut it can take effect any more.
type MarkOpen struct{ Cluster string }

func (c MarkOpen) cluster() string  { return c.Cluster }
func (c MarkOpen) structural() bool { return false }
func (c MarkOpen) apply(st *State) error {
	cl, err := st.find(c.Cluster)
	if err != nil {
		return err
	}
	cl.Shutting = false
	return nil
}

// RollBack journals that a switchover is given up: its old master is opened
// again. It is refused once an opening may have taken effect elsewhere.
type RollBack struct{ Cluster, Intent, Why string }

func (c RollBack) cluster() string  { return c.Cluster }
func (c RollBack) structural() bool { return false }
func (c RollBack) apply(st *State) error {
	_, in, err := st.intent(c.Cluster, c.Intent)
	if err != nil {
		return err
	}
	if in.Kind != IntentSwitchover || in.Opening != nil {
		return fmt.Errorf("intent %s cannot be rolled back: %w", in.ID, ErrInconsistent)
	}
	in.RollingBack = c.Why
	return nil
}

// WithdrawOpening journals that an opening statement is proven to be without
// effect for good, so that another server may be chosen.
type WithdrawOpening struct{ Cluster, Intent string }

func (c WithdrawOpening) cluster() string  { return c.Cluster }
func (c WithdrawOpening) structural() bool { return false }
func (c WithdrawOpening) apply(st *State) error {
	_, in, err := st.intent(c.Cluster, c.Intent)
	if err != nil {
		return err
	}
	in.Opening = nil
	return nil
}

// RecordOpened journals that the intent's candidate was seen open: the new
// era begins, roles change, and the old master must be fenced.
type RecordOpened struct {
	Cluster, Intent string
	At              time.Time
	// Process is when the opened server's process had started.
	Process time.Time
	// Unseen lists the servers that could hold more and were not reachable.
	Unseen []string
}

func (c RecordOpened) cluster() string  { return c.Cluster }
func (c RecordOpened) structural() bool { return true }
func (c RecordOpened) apply(st *State) error {
	cl, in, err := st.intent(c.Cluster, c.Intent)
	if err != nil {
		return err
	}
	if in.Opening == nil {
		return fmt.Errorf("intent %s opened without an opening: %w", in.ID, ErrInconsistent)
	}
	s := cl.Servers[in.Opening.Server]
	if s == nil {
		return fmt.Errorf("server %q: %w", in.Opening.Server, ErrNoServer)
	}
	in.Opened, cl.OpenedAt, cl.OpenedProcess, cl.Shutting = c.At, c.At, c.Process, false
	again := in.Opening.Server == cl.Master // reopened, or a switchover rolled back
	cl.EventsDue = !cl.Events.IsZero()
	cl.Stopped = without(cl.Stopped, s.Name)
	switch {
	case cl.Durability == Async:
		cl.setDurability(DurabilityOff, c.At)
	case in.Opening.Armed && again && cl.DurabilityState != DurabilityArmed:
		// Its commits wait again, but it may alone have what it told clients OK for
		// before: it counts as armed once an acker has that too.
	case in.Opening.Armed:
		// It was seen armed, and closed, before: whatever it commits waits, though no
		// acker has come yet.
		cl.setDurability(DurabilityArmed, c.At)
		cl.ArmedSeen = in.Opening.Sent
		cl.Endless = cl.Durability == Lossless // it was armed closed: nobody waited
	default:
		cl.setDurability(DurabilityDegraded, c.At)
	}
	if again {
		return nil
	}
	era := gtid.Era{Epoch: in.Epoch, Domain: cl.Lineage.Domain(), Server: s.Identity.ServerID, First: in.Opening.Applied.Seq + 1}
	if cl.Lineage, err = cl.Lineage.Append(era); err != nil {
		return err
	}
	cl.Epoch, cl.Floor, cl.MasterSeen = in.Epoch, in.Opening.Applied, in.Opening.Applied
	if in.Kind == IntentSwitchover {
		// The old master was seen closed before, and had nothing of its own.
		cl.setMaster(s.Name)
		return nil
	}
	cl.lose(Break{
		Epoch: in.Epoch - 1, Master: in.OldMaster, At: in.Symptom, Armed: in.Armed, ArmedSeen: in.ArmedSeen, Endless: in.Endless,
		Fork: in.Opening.Applied, Unseen: slices.Clone(c.Unseen), Started: in.Started, NoTx: in.NoTx, Dead: in.Dead, WaitsFrom: in.WaitsFrom, GivenUp: in.AcceptLoss != nil,
	})
	if old := cl.Servers[in.OldMaster]; old != nil {
		old.MustFence = true
	}
	cl.setMaster(s.Name)
	return nil
}

// EndIntent closes an intent. Automatic is true if it was a failover that no
// person ordered and that opened a new master: block_window counts from At.
type EndIntent struct {
	Cluster, Intent string
	At              time.Time
	Automatic       bool
	// Tell is true if hooks.post_failover is to be run for the new master.
	Tell bool
}

func (c EndIntent) cluster() string  { return c.Cluster }
func (c EndIntent) structural() bool { return false }
func (c EndIntent) apply(st *State) error {
	cl, in, err := st.intent(c.Cluster, c.Intent)
	if err != nil {
		return err
	}
	if in.Opening != nil && in.Opened.IsZero() && in.Opening.Server != cl.Master {
		return fmt.Errorf("intent %s may have opened %q: %w", in.ID, in.Opening.Server, ErrInconsistent)
	}
	if c.Automatic {
		cl.LastFailover = c.At
	}
	if c.Tell && !in.Opened.IsZero() {
		cl.Changes = append(cl.Changes, Change{Operation: in.ID, Kind: in.Kind, Epoch: in.Epoch, OldMaster: in.OldMaster, NewMaster: in.Opening.Server})
	}
	cl.Intent = nil
	return nil
}

func (st *State) intent(cluster, id string) (*Cluster, *Intent, error) {
	cl, err := st.find(cluster)
	if err != nil {
		return nil, nil, err
	}
	if cl.Intent == nil || cl.Intent.ID != id {
		return nil, nil, fmt.Errorf("cluster %q, intent %s: %w", cluster, id, ErrNoIntent)
	}
	return cl, cl.Intent, nil
}
