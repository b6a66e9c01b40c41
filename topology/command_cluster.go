package topology

import (
	"fmt"
	"time"

	"github.com/repld/repld/internal/gtid"
)

// SetDurabilityState journals what was, or is about to be, arranged on the
// master.
type SetDurabilityState struct {
	Cluster string
	State   DurabilityState
	At      time.Time
	// Endless is as in [Cluster]; only of an armed master.
	Endless bool
	// Promised, when the master is degraded, is its position then: what an acker
	// that is out of reach now may hold, and nobody else. It raises the floor.
	Promised gtid.GTID
}

func (c SetDurabilityState) cluster() string  { return c.Cluster }
func (c SetDurabilityState) structural() bool { return false }
func (c SetDurabilityState) apply(st *State) error {
	cl, err := st.find(c.Cluster)
	if err != nil {
		return err
	}
	if cl.Intent != nil && c.State == DurabilityDegraded {
		return fmt.Errorf("cluster %q cannot degrade: %w", c.Cluster, ErrIntentOpen)
	}
	cl.setDurability(c.State, c.At)
	cl.Endless = c.Endless && c.State == DurabilityArmed
	cl.raiseFloor(c.Promised)
	return nil
}

// setDurability enters a state, about whose past nothing is known.
func (c *Cluster) setDurability(state DurabilityState, at time.Time) {
	c.DurabilityState, c.DurabilitySince, c.ArmedSeen, c.Endless = state, at, time.Time{}, false
}

// SetDurability changes what commits are meant to wait for. It only records
// the wish; the master is brought there afterwards, step by step. An armed
// master stays armed, by the weaker of the two modes' promises until it is seen
// to keep the stronger one.
type SetDurability struct {
	Cluster    string
	Durability Durability
	At         time.Time
	// Promised is the master's position then, if commits stop waiting; see
	// [SetDurabilityState].
	Promised gtid.GTID
}

func (c SetDurability) cluster() string  { return c.Cluster }
func (c SetDurability) structural() bool { return true }
func (c SetDurability) apply(st *State) error {
	cl, err := st.find(c.Cluster)
	if err != nil {
		return err
	}
	if cl.Intent != nil {
		return fmt.Errorf("cluster %q: %w", c.Cluster, ErrIntentOpen)
	}
	if cl.Durability == Async || c.Durability == Async {
		cl.setDurability(DurabilityOff, c.At)
	}
	if c.Durability == Async {
		cl.raiseFloor(c.Promised)
	}
	cl.Durability, cl.Endless = c.Durability, false
	return nil
}

// raiseFloor never lowers the floor, and never takes it off the lineage.
func (c *Cluster) raiseFloor(g gtid.GTID) {
	if c.Lineage.Has(g) && g.Seq > c.Floor.Seq {
		c.Floor = g
	}
}

// NoteSeen remembers the highest transaction seen from the recorded master, and
// when it was last seen to wait for an acker with every commit (zero: not). The
// one never goes back or leaves the lineage, the other never goes back.
type NoteSeen struct {
	Cluster string
	GTID    gtid.GTID
	Armed   time.Time
}

func (c NoteSeen) cluster() string  { return c.Cluster }
func (c NoteSeen) structural() bool { return false }
func (c NoteSeen) apply(st *State) error {
	cl, err := st.find(c.Cluster)
	if err != nil {
		return err
	}
	if cl.Lineage.Has(c.GTID) && c.GTID.Seq > cl.MasterSeen.Seq {
		cl.MasterSeen = c.GTID
	}
	if c.Armed.After(cl.ArmedSeen) {
		cl.ArmedSeen = c.Armed
	}
	return nil
}

// NoteContact records how a lost master was found at the first contact after
// its loss, before it is fenced; see [Break]. A later contact, before the fence has
// held, can only take Quiet back.
type NoteContact struct {
	Cluster, Server string
	// Quiet and Ended are as in [Break].
	Quiet, Ended bool
}

func (c NoteContact) cluster() string  { return c.Cluster }
func (c NoteContact) structural() bool { return false }
func (c NoteContact) apply(st *State) error {
	return st.server(c.Cluster, c.Server, func(cl *Cluster, _ *Server) {
		switch b := cl.Loss(c.Server); {
		case b == nil:
		case b.Contacted:
			b.Quiet = b.Quiet && c.Quiet
		default:
			b.Contacted, b.Quiet, b.Ended = true, c.Quiet, c.Ended
		}
	})
}

// MarkFenced records that a former master was seen read-only, with no writer.
type MarkFenced struct{ Cluster, Server string }

func (c MarkFenced) cluster() string  { return c.Cluster }
func (c MarkFenced) structural() bool { return true }
func (c MarkFenced) apply(st *State) error {
	return st.server(c.Cluster, c.Server, func(_ *Cluster, s *Server) { s.MustFence = false })
}

// MarkFollowing records that slaves are about to be attached to the present
// master: from now on they may hold its transactions.
type MarkFollowing struct {
	Cluster string
	Servers []string
}

func (c MarkFollowing) cluster() string  { return c.Cluster }
func (c MarkFollowing) structural() bool { return false }
func (c MarkFollowing) apply(st *State) error {
	cl, err := st.find(c.Cluster)
	if err != nil {
		return err
	}
	for _, name := range c.Servers {
		if s := cl.Servers[name]; s != nil {
			s.Followed = cl.Epoch
		}
	}
	return nil
}

// MarkStarted records that slaves whose IO threads repld had stopped were seen
// streaming again.
type MarkStarted struct {
	Cluster string
	Servers []string
}

func (c MarkStarted) cluster() string  { return c.Cluster }
func (c MarkStarted) structural() bool { return false }
func (c MarkStarted) apply(st *State) error {
	cl, err := st.find(c.Cluster)
	if err != nil {
		return err
	}
	for _, name := range c.Servers {
		cl.Stopped = without(cl.Stopped, name)
	}
	return nil
}

// MarkExamined records that a server which was unreachable during a failover,
// or whose own loss is recorded, follows the master and holds nothing that the
// master lacks: it acknowledged nothing that was lost, and is back.
type MarkExamined struct{ Cluster, Server string }

func (c MarkExamined) cluster() string  { return c.Cluster }
func (c MarkExamined) structural() bool { return false }
func (c MarkExamined) apply(st *State) error {
	return st.server(c.Cluster, c.Server, func(cl *Cluster, _ *Server) {
		cl.examined(c.Server)
		cl.back(c.Server)
	})
}

// MarkDiverged keeps a server out because of its extra transactions, or lets
// it in again (none).
type MarkDiverged struct {
	Cluster, Server string
	Extra           []gtid.GTID
}

func (c MarkDiverged) cluster() string  { return c.Cluster }
func (c MarkDiverged) structural() bool { return true }
func (c MarkDiverged) apply(st *State) error {
	return st.server(c.Cluster, c.Server, func(cl *Cluster, s *Server) {
		s.Diverged = c.Extra
		if len(c.Extra) == 0 {
			cl.back(c.Server)
		}
	})
}

// MarkJoining records that a server is, or is no longer, being set up or
// re-seeded.
type MarkJoining struct {
	Cluster, Server string
	Joining         bool
}

func (c MarkJoining) cluster() string  { return c.Cluster }
func (c MarkJoining) structural() bool { return true }
func (c MarkJoining) apply(st *State) error {
	return st.server(c.Cluster, c.Server, func(cl *Cluster, s *Server) {
		s.Joining = c.Joining
		if c.Joining {
			cl.forget(c.Server)
		}
	})
}

// MarkReseeding records that a member's data is about to be given up for a copy
// of the master's, or that the copy is complete. What the member alone had was
// saved before.
type MarkReseeding struct {
	Cluster, Server string
	Reseeding       bool
}

func (c MarkReseeding) cluster() string  { return c.Cluster }
func (c MarkReseeding) structural() bool { return true }
func (c MarkReseeding) apply(st *State) error {
	return st.server(c.Cluster, c.Server, func(cl *Cluster, s *Server) {
		s.Reseeding, s.Joining = c.Reseeding, c.Reseeding
		s.Followed = cl.Epoch // what it will hold is the present master's
		if c.Reseeding {
			cl.forget(c.Server)
		} else {
			s.Diverged = nil
			cl.back(c.Server)
		}
	})
}

// SetPause stops automatic action until a time (zero: without limit), or lets
// it go on, which also acknowledges a block_window.
type SetPause struct {
	Cluster string
	Paused  bool
	Until   time.Time
	At      time.Time
}

func (c SetPause) cluster() string  { return c.Cluster }
func (c SetPause) structural() bool { return false }
func (c SetPause) apply(st *State) error {
	cl, err := st.find(c.Cluster)
	if err != nil {
		return err
	}
	cl.Paused, cl.PausedUntil = c.Paused, c.Until
	if !c.Paused {
		cl.Acknowledged = c.At
	}
	return nil
}

// RequireConfirmation switches automatic action off until a person confirms
// what is recorded (a rebuilt or older state file); "" confirms.
type RequireConfirmation struct{ Cluster, Why string }

func (c RequireConfirmation) cluster() string  { return c.Cluster }
func (c RequireConfirmation) structural() bool { return false }
func (c RequireConfirmation) apply(st *State) error {
	cl, err := st.find(c.Cluster)
	if err != nil {
		return err
	}
	cl.ConfirmNeeded = c.Why
	return nil
}

func (st *State) server(cluster, name string, change func(*Cluster, *Server)) error {
	cl, err := st.find(cluster)
	if err != nil {
		return err
	}
	s := cl.Servers[name]
	if s == nil {
		return fmt.Errorf("server %q: %w", name, ErrNoServer)
	}
	change(cl, s)
	return nil
}

// OweStart journals that a slave's threads are to be started by repld although
// somebody else stopped them: a person asked for it.
type OweStart struct{ Cluster, Server string }

func (c OweStart) cluster() string  { return c.Cluster }
func (c OweStart) structural() bool { return false }
func (c OweStart) apply(st *State) error {
	return st.server(c.Cluster, c.Server, func(cl *Cluster, s *Server) {
		cl.Stopped = append(without(cl.Stopped, s.Name), s.Name)
	})
}
