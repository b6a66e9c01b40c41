package provision

import (
	"context"
	"log/slog"
	"time"

	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/internal/mysql"
	"github.com/repld/repld/topology"
)

// Pending is what must survive a crash of repld in the middle of a verb. It is
// saved before the effect that it speaks of.
type Pending struct {
	// Verb is init-master, init-slave or adopt; "" if nothing is pending.
	Verb string `json:"verb"`
	// ClusterID is chosen before repld.cluster is written.
	ClusterID string            `json:"cluster_id,omitempty"`
	Accounts  topology.Accounts `json:"accounts,omitempty"`
	// GTIDBefore is the master's position just before repld's first transaction:
	// a slave of a master without data starts from there. Nil until it is known.
	GTIDBefore *gtid.Position `json:"gtid_before,omitempty"`
	// WasWritable and EventsOn are how the server was before a restart with the
	// drop-in closed it.
	WasWritable bool `json:"was_writable,omitempty"`
	EventsOn    bool `json:"events_on,omitempty"`
	// CopiedTo is the position of the copy that this verb made, saved before the
	// server's own mark of an unfinished copy goes: what the server holds is no
	// foreign data then. Nil if there was none.
	CopiedTo *gtid.Position `json:"copied_to,omitempty"`
}

// Empty tells whether there is nothing to keep.
func (p Pending) Empty() bool {
	return p.Verb == "" && p.ClusterID == "" && len(p.Accounts) == 0 && p.GTIDBefore == nil && !p.WasWritable && !p.EventsOn && p.CopiedTo == nil
}

// Journal keeps what must survive a crash. Each call returns only once it is
// durable; an error stops the verb before the effect. The passwords in it are
// encrypted at rest by the implementation.
type Journal interface {
	// Pending is what an interrupted run left; the zero value if none did.
	Pending(ctx context.Context, cluster, server string) (Pending, error)
	// Save replaces it.
	Save(ctx context.Context, cluster, server string, p Pending) error
}

// BinlogWitness proves that what is written on a master can be seen by whoever
// reads its binary log.
type BinlogWitness interface {
	// Watch connects to the server as the given account and reads its binary log
	// from now on. Close the watch.
	Watch(ctx context.Context, on mysql.Target) (Watch, error)
}

// Watch is a binary log that is being read.
type Watch interface {
	// Wait returns once the transaction was seen, or with ctx's error.
	Wait(ctx context.Context, want gtid.GTID) error
	Close()
}

// ProgressFunc hears how a verb goes on: a step's code, the server, one of
// run, done, skipped, failed, and a sentence for a person. It must not block.
type ProgressFunc func(step, server, status, text string)

// Timeouts bound what waits for a server. Zero fields mean the defaults.
type Timeouts struct {
	// Dial bounds a connection and its login; default 5 s.
	Dial time.Duration
	// Statement bounds a statement that should be quick; default 10 s.
	Statement time.Duration
	// Command bounds a --config-command; default 60 s.
	Command time.Duration
	// Restart bounds a --restart-command; default 3 min, for a large buffer pool
	// takes its time to be written. Back is how long the server may take to answer
	// after the command has ended well; default 60 s.
	Restart, Back time.Duration
}

func (t Timeouts) withDefaults() Timeouts {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&t.Dial, 5*time.Second)
	set(&t.Statement, 10*time.Second)
	set(&t.Command, time.Minute)
	set(&t.Restart, 3*time.Minute)
	set(&t.Back, time.Minute)
	return t
}

// Provisioner applies the verbs of this package. It keeps no state between
// calls; one value may serve several clusters, one verb at a time for each.
type Provisioner struct {
	// DataDir is repld's own directory; the authority is kept in DataDir/ca.
	DataDir string
	// Cluster gives a snapshot of a recorded cluster, the zero value with a nil
	// Servers if there is none; Known all servers of all clusters; Accounts
	// repld's accounts of a cluster, with their passwords in clear.
	Cluster  func(name string) topology.Cluster
	Known    func() []Known
	Accounts func(cluster string) topology.Accounts
	// Instance is this repld's id.
	Instance string
	// ServerTimeout is semi_sync.server_timeout; 0 means never.
	ServerTimeout time.Duration
	// Durability is what a new cluster gets.
	Durability topology.Durability
	Journal    Journal
	Witness    BinlogWitness
	Progress   ProgressFunc
	Timeouts   Timeouts
	Log        *slog.Logger
}

// Log keys of this package.
const (
	keyServer = "server"
	keyStep   = "step"
	keyError  = "err"
)

func (p *Provisioner) step(step, server, status, text string) {
	if p.Log != nil {
		p.Log.Info("provision: "+text, keyServer, server, keyStep, step, "status", status)
	}
	if p.Progress != nil {
		p.Progress(step, server, status, text)
	}
}

// context gathers what repld knows for a request.
func (p *Provisioner) context(ctx context.Context, r Request) (Context, error) {
	c := Context{
		Cluster: p.Cluster(r.Cluster), Known: p.Known(), Accounts: p.Accounts(r.Cluster),
		Instance: p.Instance, ServerTimeout: p.ServerTimeout,
	}
	pending, err := p.Journal.Pending(ctx, r.Cluster, r.Name)
	if err != nil {
		return c, err
	}
	c.Pending = pending
	if len(c.Accounts) == 0 {
		c.Accounts = pending.Accounts
	}
	return c, nil
}
