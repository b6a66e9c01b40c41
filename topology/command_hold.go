package topology

import (
	"fmt"
	"time"
)

// SetHeld journals that a person has a slave's threads stopped, or ("") wants
// them started again, which repld owes from then on.
type SetHeld struct {
	Cluster, Server string
	Held            Held
}

func (c SetHeld) cluster() string  { return c.Cluster }
func (c SetHeld) structural() bool { return true }
func (c SetHeld) apply(st *State) error {
	return st.slave(c.Cluster, c.Server, func(cl *Cluster, s *Server) {
		s.Held = c.Held
		cl.Stopped = without(cl.Stopped, s.Name)
		if c.Held == "" {
			cl.Stopped = append(cl.Stopped, s.Name)
		}
	})
}

// SetMaintenance journals that a person begins, or has ended, work on a slave.
type SetMaintenance struct {
	Cluster, Server string
	On              bool
}

func (c SetMaintenance) cluster() string  { return c.Cluster }
func (c SetMaintenance) structural() bool { return true }
func (c SetMaintenance) apply(st *State) error {
	return st.slave(c.Cluster, c.Server, func(cl *Cluster, s *Server) {
		s.Maintenance, s.Retired = c.On, false
		cl.Stopped = without(cl.Stopped, s.Name)
		if !c.On && s.Held == "" {
			cl.Stopped = append(cl.Stopped, s.Name) // whatever stopped it meanwhile
		}
	})
}

// MarkRetired journals that a server in maintenance is missed by nobody.
type MarkRetired struct{ Cluster, Server string }

func (c MarkRetired) cluster() string  { return c.Cluster }
func (c MarkRetired) structural() bool { return true }
func (c MarkRetired) apply(st *State) error {
	return st.slave(c.Cluster, c.Server, func(_ *Cluster, s *Server) { s.Retired = s.Maintenance })
}

// AwaitRestart journals that the master is about to be restarted by repld
// itself and is no lost one until then; the zero time ends that.
type AwaitRestart struct {
	Cluster string
	Until   time.Time
}

func (c AwaitRestart) cluster() string  { return c.Cluster }
func (c AwaitRestart) structural() bool { return false }
func (c AwaitRestart) apply(st *State) error {
	cl, err := st.find(c.Cluster)
	if err != nil {
		return err
	}
	if cl.Intent != nil && !c.Until.IsZero() {
		return fmt.Errorf("cluster %q: %w", c.Cluster, ErrIntentOpen)
	}
	cl.RestartUntil = c.Until
	return nil
}

// Declined is a failover that was called for, or nearly, and did not happen.
type Declined struct {
	// At is the first symptom, Until when the master was in order again; zero
	// while it is not.
	At    time.Time `json:"at"`
	Until time.Time `json:"until,omitzero"`
	// Master is who was suspected, Verdict the worst that was said of it.
	Master  string `json:"master"`
	Verdict string `json:"verdict"`
	// Evidence is what that rested on, Rules the codes and texts of the rules that
	// held a failover back; none if the verdict did not call for one.
	Evidence []string `json:"evidence"`
	Rules    []string `json:"rules,omitempty"`
}

// NoteDeclined journals the latest failover that did not happen.
type NoteDeclined struct {
	Cluster  string
	Declined Declined
}

func (c NoteDeclined) cluster() string  { return c.Cluster }
func (c NoteDeclined) structural() bool { return false }
func (c NoteDeclined) apply(st *State) error {
	cl, err := st.find(c.Cluster)
	if err != nil {
		return err
	}
	d := c.Declined
	cl.Declined = &d
	return nil
}

// slave is [State.server] for a server that is not the master.
func (st *State) slave(cluster, name string, change func(*Cluster, *Server)) error {
	cl, err := st.find(cluster)
	if err != nil {
		return err
	}
	if cl.Master == name {
		return fmt.Errorf("server %q is the master: %w", name, ErrInconsistent)
	}
	return st.server(cluster, name, change)
}
