package topology

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/repld/repld/internal/gtid"
)

// Cluster is one master and its slaves, as repld has recorded them. What the
// servers are really doing is in health.View; where the two differ, repld acts.
type Cluster struct {
	// Name is unique within one repld; "main" unless the user says otherwise.
	Name string `json:"name"`
	// ID is a random identifier, also kept in the replicated table repld.cluster.
	ID string `json:"id"`
	// Epoch grows by one with every change of master. It is 0 before init.
	Epoch uint64 `json:"epoch"`
	// Master names the server that alone may accept writes; "" before init.
	Master string `json:"master"`
	// Lineage tells the cluster's own transactions from a diverged server's.
	Lineage gtid.Lineage `json:"lineage"`
	// Durability is what commits are meant to wait for.
	Durability Durability `json:"durability"`
	// DurabilityState is what repld has last arranged on the master.
	DurabilityState DurabilityState `json:"durability_state"`
	// DurabilitySince is when DurabilityState was entered.
	DurabilitySince time.Time `json:"durability_since"`
	// Endless is true while the armed master waits for an acker without any limit
	// of its own, and no commit of a time with a limit waits any more: what is
	// recorded then proves what was acknowledged, however old the last look at the
	// master is. Lossless mode rests on it.
	Endless bool `json:"endless,omitempty"`
	// Servers by name.
	Servers map[string]*Server `json:"servers"`
	// Intent is what is being carried out now; nil if nothing is.
	Intent *Intent `json:"intent,omitempty"`
	// Paused forbids automatic action. PausedUntil limits it, if not zero.
	Paused      bool      `json:"paused,omitempty"`
	PausedUntil time.Time `json:"paused_until,omitzero"`
	// LastFailover is when the last automatic failover was finished; the next
	// one waits for failover.block_window unless Acknowledged is later.
	LastFailover time.Time `json:"last_failover,omitzero"`
	Acknowledged time.Time `json:"acknowledged,omitzero"`
	// Floor is the position that whoever is promoted must contain: the first
	// transaction point of the present era, and whatever was promised since.
	Floor gtid.GTID `json:"floor"`
	// Start is the first master's position just before repld's first transaction:
	// a slave of a master that holds nothing but repld's own starts from there.
	// Nil if unknown.
	Start *gtid.Position `json:"start,omitempty"`
	// OpenedAt is when repld last opened the master: a server process that is
	// younger has restarted since, and its read_only is repld's own doing.
	OpenedAt time.Time `json:"opened_at,omitzero"`
	// OpenedProcess is when the server process that was opened had started; zero if
	// unknown.
	OpenedProcess time.Time `json:"opened_process,omitzero"`
	// Stopped names the slaves whose IO thread repld has stopped for an intent
	// and owes a start. Threads that a person stopped are left alone.
	Stopped []string `json:"stopped,omitempty"`
	// Shutting is true from the beginning of a switchover until its master, or a
	// successor, is known to be open for good. A master that is found closed
	// meanwhile was closed by repld, which owes it an opening.
	Shutting bool `json:"shutting,omitempty"`
	// MasterSeen is the highest transaction seen from the recorded master; a
	// restarted master that is behind it has lost data. ArmedSeen is when the
	// master was last seen to wait for an acker with every commit. Both are
	// written now and then, for a repld that is started after a loss; while it
	// runs, the monitor's memory is fresher.
	MasterSeen gtid.GTID `json:"master_seen"`
	ArmedSeen  time.Time `json:"armed_seen,omitzero"`
	// Losses holds the evidence of each lost master that is not back yet.
	Losses []*Break `json:"losses,omitempty"`
	// Events are the master's scheduled events as last seen. EventsDue is true from
	// the opening of a master until it runs what was recorded before.
	Events    Events `json:"events,omitzero"`
	EventsDue bool   `json:"events_due,omitempty"`
	// Changes are the changes of master that hooks.post_failover has not been run
	// for yet, oldest first; empty without that hook.
	Changes []Change `json:"changes,omitempty"`
	// RestartUntil is until when repld itself restarts the master in its place: it
	// is not taken for lost before.
	RestartUntil time.Time `json:"restart_until,omitzero"`
	// Declined is the last failover that did not happen; nil if there was none.
	Declined *Declined `json:"declined,omitempty"`
	// ConfirmNeeded says why automatic mode is off until a person confirms it
	// (a rebuilt or older state file); "" normally.
	ConfirmNeeded string `json:"confirm_needed,omitempty"`
}

// Durability is what a commit on the master waits for.
type Durability string

// The three modes: nobody, one acker unless there is none, one acker always.
const (
	Async    Durability = "async"
	SemiSync Durability = "semi-sync"
	Lossless Durability = "lossless"
)

// DurabilityState is what repld has arranged on the master.
type DurabilityState string

// DurabilityArmed: commits wait for an acker. DurabilityDegraded: they should,
// but none is left and repld let them go on. DurabilityOff: they never do, or no
// slave has ever streamed.
const (
	DurabilityArmed    DurabilityState = "armed"
	DurabilityDegraded DurabilityState = "degraded"
	DurabilityOff      DurabilityState = "off"
)

// Role is a server's recorded role.
type Role string

// A server is the cluster's master or a slave of it.
const (
	RoleMaster Role = "master"
	RoleSlave  Role = "slave"
)

// Promotion is a user's preference for a server as the next master.
type Promotion string

// Promotion preferences, most wanted first.
const (
	PromotionPrefer  Promotion = "prefer"
	PromotionNeutral Promotion = "neutral"
	PromotionAvoid   Promotion = "avoid"
	PromotionNever   Promotion = "never"
)

// Rank orders preferences: lower is better.
func (p Promotion) Rank() int {
	return slices.Index([]Promotion{PromotionPrefer, PromotionNeutral, PromotionAvoid, PromotionNever}, p)
}

// Held says which threads of a slave a person has stopped.
type Held string

// HeldAll: both threads, with nothing left to apply. HeldSQL: the SQL thread
// alone; the slave goes on receiving and acknowledging.
const (
	HeldAll Held = "all"
	HeldSQL Held = "sql"
)

// Identity tells one server from another whatever its address: an address can
// be a virtual one, or a name, that has just moved to the new master. No effect
// is sent on a connection whose identity differs from the recorded one.
type Identity struct {
	ServerID uint32 `json:"server_id"`
	// UID is @@server_uid (MariaDB) or @@server_uuid (MySQL).
	UID      string `json:"uid"`
	Hostname string `json:"hostname"`
	Port     uint16 `json:"port"`
	DataDir  string `json:"datadir"`
}

// Differs names the parts in which o differs from id, for an error message;
// none if they are the same server.
func (id Identity) Differs(o Identity) []string {
	var out []string
	note := func(what string, was, is any) {
		if was != is {
			out = append(out, fmt.Sprintf("%s was %v, is %v", what, was, is))
		}
	}
	note("server_id", id.ServerID, o.ServerID)
	note("server uid", id.UID, o.UID)
	note("hostname", id.Hostname, o.Hostname)
	note("port", id.Port, o.Port)
	note("datadir", id.DataDir, o.DataDir)
	return out
}

// Flavor is the kind of server.
type Flavor string

// FlavorMariaDB is the one flavour so far.
const FlavorMariaDB Flavor = "mariadb"

// Server is one managed server.
type Server struct {
	Name string `json:"name"`
	// Address is host:port, as repld and the other servers reach it. An IPv6
	// host is in brackets.
	Address  string   `json:"address"`
	Identity Identity `json:"identity"`
	Flavor   Flavor   `json:"flavor"`
	Version  string   `json:"version"`
	Role     Role     `json:"role"`
	// Source names the server that a slave is meant to replicate from, the master or
	// another slave; "" for the master. While that one cannot be read from, the slave
	// reads from the next one above it (see docs/decisions/011-chains.md).
	Source    string    `json:"source,omitempty"`
	Promotion Promotion `json:"promotion"`
	// Followed is the epoch of the last master that it was let follow, or was
	// itself; 0 if unknown. It cannot hold a transaction of a later one: what looks
	// like that is a dead tail whose numbers were given out again.
	Followed uint64 `json:"followed,omitempty"`
	// Joining is true while init slave or a re-seed is under way: no automatic
	// action touches the server meanwhile and it counts for nothing.
	Joining bool `json:"joining,omitempty"`
	// Reseeding is true from the moment that a member's data is given up until it
	// is a copy of the master's again, whatever happens in between: what it holds
	// meanwhile may be half of a copy.
	Reseeding bool `json:"reseeding,omitempty"`
	// Held is what a person has stopped and repld leaves stopped.
	Held Held `json:"held,omitempty"`
	// Maintenance is true while a person works on the server: it is left alone, is
	// neither promoted nor an acker, and is missed by nobody.
	Maintenance bool `json:"maintenance,omitempty"`
	// Retired is true once, in maintenance, the server acknowledges nothing any more
	// and another slave has all that it may have acknowledged: only then a failover
	// may pass over it unasked.
	Retired bool `json:"retired,omitempty"`
	// Diverged holds the extra transactions that keep the server out; empty
	// normally.
	Diverged []gtid.GTID `json:"diverged,omitempty"`
	// MustFence is set for a former master that has not yet been made read-only
	// by repld; it is worked off at first contact.
	MustFence bool `json:"must_fence,omitempty"`
	// Delay is the intended MASTER_DELAY.
	Delay time.Duration `json:"delay,omitempty"`
	// ReplicateDoDB are the schemas a filtered slave replicates; empty for all.
	ReplicateDoDB []string `json:"replicate_do_db,omitempty"`
	// SkipErrors is the slave_skip_errors value the user insisted on; "" normally.
	SkipErrors string `json:"skip_errors,omitempty"`
	// ConfigFile is the drop-in's path, or the path that ConfigCommand stands for.
	ConfigFile     string   `json:"config_file,omitempty"`
	ConfigCommand  []string `json:"config_command,omitempty"`
	RestartCommand []string `json:"restart_command,omitempty"`
	// TLS says where the server's certificate comes from: "repld" or "user".
	TLS string `json:"tls,omitempty"`
	// CAFile is the authority, in the server's own file system, by which a slave
	// on this server verifies its source.
	CAFile string `json:"ca_file,omitempty"`
	// CertFile and KeyFile are the client pair for that connection, if any.
	CertFile string `json:"cert_file,omitempty"`
	KeyFile  string `json:"key_file,omitempty"`
	// DropInSum is the SHA-256 of the drop-in as repld wrote it.
	DropInSum string    `json:"drop_in_sum,omitempty"`
	AddedAt   time.Time `json:"added_at"`
}

// NeverPromotable lists the recorded reasons for which the server may never
// become the master; a server with one is not an acker either.
func (s *Server) NeverPromotable() []string {
	var out []string
	if s.Promotion == PromotionNever {
		out = append(out, "promotion_never")
	}
	if s.Delay > 0 {
		out = append(out, "delayed")
	}
	if len(s.ReplicateDoDB) > 0 {
		out = append(out, "filtered")
	}
	if s.SkipErrors != "" {
		out = append(out, "skip_errors")
	}
	if s.Joining {
		out = append(out, "joining")
	}
	if len(s.Diverged) > 0 {
		out = append(out, "diverged")
	}
	if s.Maintenance {
		out = append(out, "maintenance")
	}
	return out
}

// Clone is a deep copy, so that a snapshot never changes under its reader.
func (c *Cluster) Clone() *Cluster {
	if c == nil {
		return nil
	}
	d := *c
	d.Lineage = slices.Clone(c.Lineage)
	d.Servers = make(map[string]*Server, len(c.Servers))
	for name, s := range c.Servers {
		e := *s
		e.Diverged = slices.Clone(s.Diverged)
		e.ReplicateDoDB = slices.Clone(s.ReplicateDoDB)
		e.ConfigCommand = slices.Clone(s.ConfigCommand)
		e.RestartCommand = slices.Clone(s.RestartCommand)
		d.Servers[name] = &e
	}
	d.Intent = c.Intent.Clone()
	d.Stopped = slices.Clone(c.Stopped)
	d.Changes = slices.Clone(c.Changes)
	if c.Declined != nil {
		dc := *c.Declined
		dc.Evidence, dc.Rules = slices.Clone(dc.Evidence), slices.Clone(dc.Rules)
		d.Declined = &dc
	}
	d.Events.Enabled = slices.Clone(c.Events.Enabled)
	d.Losses = nil
	for _, b := range c.Losses {
		d.Losses = append(d.Losses, b.clone())
	}
	return &d
}

// Names lists the servers in alphabetical order.
func (c *Cluster) Names() []string { return slices.Sorted(maps.Keys(c.Servers)) }

// ByAddress finds the server that is recorded under an address, nil if none.
func (c *Cluster) ByAddress(address string) *Server {
	for _, s := range c.Servers {
		if s.Address == address {
			return s
		}
	}
	return nil
}
