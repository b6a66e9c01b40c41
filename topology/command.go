package topology

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/repld/repld/internal/gtid"
)

// Errors that a command's refusal wraps.
var (
	ErrNoCluster    = errors.New("no such cluster")
	ErrNoServer     = errors.New("no such server")
	ErrExists       = errors.New("already exists")
	ErrIntentOpen   = errors.New("another intent is open")
	ErrNoIntent     = errors.New("no such intent is open")
	ErrInconsistent = errors.New("the change contradicts the state")
)

// State is everything the store keeps of clusters. Commands change a copy of
// it; it is published only when it is on disk.
type State struct {
	Clusters map[string]*Cluster
}

// Command is a change of the state: a deterministic function of the state
// before it. An error leaves the state as it was.
type Command interface {
	apply(*State) error
	// cluster names the one cluster that the command changes.
	cluster() string
	// structural is true for changes after which a verified backup is due:
	// servers, masters, epochs; not for the phases of an intent.
	structural() bool
}

// Apply gives the state after all of the commands, or an error; the receiver
// stays as it was, and the two share what did not change.
func (st *State) Apply(cmds ...Command) (*State, error) {
	next, _, _, err := st.apply(cmds)
	return next, err
}

// apply also tells which clusters changed, and whether a backup is due.
func (st *State) apply(cmds []Command) (next *State, changed map[string]bool, structural bool, err error) {
	next, changed = &State{Clusters: maps.Clone(st.Clusters)}, map[string]bool{}
	for _, cmd := range cmds {
		name := cmd.cluster()
		if !changed[name] {
			changed[name] = true
			if c := next.Clusters[name]; c != nil {
				next.Clusters[name] = c.Clone()
			}
		}
		if err := cmd.apply(next); err != nil {
			return nil, nil, false, fmt.Errorf("%T: %w", cmd, err)
		}
		structural = structural || cmd.structural()
	}
	return next, changed, structural, nil
}

func (st *State) find(name string) (*Cluster, error) {
	c := st.Clusters[name]
	if c == nil {
		return nil, fmt.Errorf("cluster %q: %w", name, ErrNoCluster)
	}
	return c, nil
}

// CreateCluster records a new cluster without servers.
type CreateCluster struct {
	Name, ID   string
	Durability Durability
}

func (c CreateCluster) cluster() string  { return c.Name }
func (c CreateCluster) structural() bool { return true }
func (c CreateCluster) apply(st *State) error {
	if st.Clusters[c.Name] != nil {
		return fmt.Errorf("cluster %q: %w", c.Name, ErrExists)
	}
	st.Clusters[c.Name] = &Cluster{
		Name: c.Name, ID: c.ID, Durability: c.Durability,
		DurabilityState: DurabilityOff, Servers: map[string]*Server{},
	}
	return nil
}

// DropCluster forgets a cluster that has no servers left.
type DropCluster struct{ Name string }

func (c DropCluster) cluster() string  { return c.Name }
func (c DropCluster) structural() bool { return true }
func (c DropCluster) apply(st *State) error {
	cl, err := st.find(c.Name)
	if err != nil {
		return err
	}
	if len(cl.Servers) > 0 {
		return fmt.Errorf("cluster %q has servers: %w", c.Name, ErrInconsistent)
	}
	delete(st.Clusters, c.Name)
	return nil
}

// PutServer records a server, new or changed. Names and addresses are unique:
// over all clusters, because one server never belongs to two.
type PutServer struct {
	Cluster string
	Server  Server
}

func (c PutServer) cluster() string  { return c.Cluster }
func (c PutServer) structural() bool { return true }
func (c PutServer) apply(st *State) error {
	cl, err := st.find(c.Cluster)
	if err != nil {
		return err
	}
	for _, other := range st.Clusters {
		for _, s := range other.Servers {
			if other == cl && s.Name == c.Server.Name {
				continue
			}
			if s.Address == c.Server.Address {
				return fmt.Errorf("address %s is server %q of cluster %q: %w", s.Address, s.Name, other.Name, ErrExists)
			}
			if s.Identity.UID != "" && s.Identity == c.Server.Identity {
				return fmt.Errorf("server at %s is %q of cluster %q: %w", c.Server.Address, s.Name, other.Name, ErrExists)
			}
		}
	}
	s := c.Server
	if s.Followed == 0 {
		s.Followed = cl.Epoch
	}
	old := cl.Servers[s.Name]
	cl.Servers[s.Name] = &s
	if cl.Below(s.Name, s.Name) {
		if cl.Servers[s.Name] = old; old == nil {
			delete(cl.Servers, s.Name)
		}
		return fmt.Errorf("server %q would replicate from itself: %w", s.Name, ErrInconsistent)
	}
	return nil
}

// RemoveServer forgets a server. The master is removed only when it is the last.
type RemoveServer struct{ Cluster, Name string }

func (c RemoveServer) cluster() string  { return c.Cluster }
func (c RemoveServer) structural() bool { return true }
func (c RemoveServer) apply(st *State) error {
	cl, err := st.find(c.Cluster)
	if err != nil {
		return err
	}
	if cl.Servers[c.Name] == nil {
		return fmt.Errorf("server %q: %w", c.Name, ErrNoServer)
	}
	if cl.Master == c.Name {
		if len(cl.Servers) > 1 {
			return fmt.Errorf("server %q is the master of others: %w", c.Name, ErrInconsistent)
		}
		cl.Master = ""
		cl.DurabilityState = DurabilityOff
	}
	cl.inherit(c.Name)
	delete(cl.Servers, c.Name)
	cl.Stopped = without(cl.Stopped, c.Name)
	cl.forget(c.Name)
	cl.back(c.Name)
	return nil
}

// FoundEra makes a server the first master of a cluster, or (after a confirmed
// change from outside) the master of a new era. Floor is its position then.
type FoundEra struct {
	Cluster, Master string
	Era             gtid.Era
	Floor           gtid.GTID
	// Start is recorded if it is not nil; see [Cluster.Start].
	Start *gtid.Position
	At    time.Time
}

func (c FoundEra) cluster() string  { return c.Cluster }
func (c FoundEra) structural() bool { return true }
func (c FoundEra) apply(st *State) error {
	cl, err := st.find(c.Cluster)
	if err != nil {
		return err
	}
	s := cl.Servers[c.Master]
	if s == nil {
		return fmt.Errorf("server %q: %w", c.Master, ErrNoServer)
	}
	if cl.Lineage, err = cl.Lineage.Append(c.Era); err != nil {
		return err
	}
	cl.Epoch, cl.Floor, cl.MasterSeen, cl.OpenedAt, cl.OpenedProcess = c.Era.Epoch, c.Floor, c.Floor, c.At, time.Time{}
	if c.Start != nil {
		cl.Start = c.Start
	}
	for _, s := range cl.Servers {
		s.Followed = cl.Epoch // a person may have pointed them to it already
	}
	cl.setMaster(c.Master)
	return nil
}

// setMaster gives the roles out. Those that replicated from the old master, and
// the old master itself, become slaves of name, and so stay, or become again,
// the children of name that were chained below it. A chain below another slave
// stays as it is; and no loop can come of it, for every chain ended at the old
// master.
func (c *Cluster) setMaster(name string) {
	old := c.Master
	c.Master = name
	c.back(name)
	if s := c.Servers[name]; s != nil {
		s.Followed = c.Epoch
	}
	for _, s := range c.Servers {
		switch {
		case s.Name == name:
			s.Role, s.Source, s.MustFence, s.Held = RoleMaster, "", false, ""
		case s.Name == old || s.Source == old || s.Source == name || s.Source == "":
			s.Role, s.Source = RoleSlave, name
		}
	}
}

func without(list []string, drop string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == drop })
}
