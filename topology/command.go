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
	cl.Servers[s.Name] = &s
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
	delete(cl.Servers, c.Name)
	cl.Stopped = without(cl.Stopped, c.Name)
	if b := cl.Broken; b != nil {
		b.Unseen = without(b.Unseen, c.Name)
		if b.Master == c.Name {
			cl.Broken = nil
		}
	}
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
	cl.Epoch, cl.Floor, cl.MasterSeen, cl.OpenedAt = c.Era.Epoch, c.Floor, c.Floor, c.At
	if c.Start != nil {
		cl.Start = c.Start
	}
	cl.setMaster(c.Master)
	return nil
}

// setMaster gives the roles out: everybody else becomes a slave of name.
func (c *Cluster) setMaster(name string) {
	old := c.Master
	c.Master = name
	for _, s := range c.Servers {
		switch {
		case s.Name == name:
			s.Role, s.Source, s.MustFence = RoleMaster, "", false
		case s.Name == old || s.Source == old || s.Source == name || s.Source == "":
			s.Role, s.Source = RoleSlave, name
		}
	}
}

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
	if in.Opening != nil && in.Opening.Server != c.Opening.Server {
		return fmt.Errorf("intent %s may already have opened %q: %w", in.ID, in.Opening.Server, ErrInconsistent)
	}
	o := c.Opening
	in.Opening = &o
	if in.Kind == IntentReopen && !o.Armed {
		// It may go on without an acker from now on. An acker that is out of reach
		// may hold what was promised before.
		cl.DurabilityState, cl.DurabilitySince = DurabilityDegraded, o.Sent
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
	in.Opened, cl.OpenedAt = c.At, c.At
	cl.Stopped = without(cl.Stopped, s.Name)
	cl.DurabilityState, cl.DurabilitySince, cl.ArmedSeen = DurabilityDegraded, c.At, time.Time{}
	if in.Opening.Armed {
		cl.DurabilityState = DurabilityArmed
	}
	if in.Opening.Server == cl.Master {
		return nil // the same master goes on: reopened, or a switchover rolled back
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
	cl.Broken = &Break{
		Epoch: in.Epoch - 1, Master: in.OldMaster, At: in.Symptom, Armed: in.Armed, ArmedSeen: in.ArmedSeen,
		Fork: in.Opening.Applied, Unseen: slices.Clone(c.Unseen), Started: in.Started, NoTx: in.NoTx,
	}
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

func without(list []string, drop string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == drop })
}
