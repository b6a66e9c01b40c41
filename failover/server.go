package failover

import (
	"context"
	"time"

	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// Server is every effect that repld has on a managed server once it is set up.
// Each verb first checks that the connection leads to the recorded identity and
// fails with an error that wraps [ErrForeign] otherwise; each honours its
// context's deadline, after which the statement may still take effect later
// (only Open is made so that it cannot). Verbs are idempotent: in the state
// that they aim at they change nothing.
type Server interface {
	// StopIO stops the IO thread and leaves the SQL thread and the relay log
	// alone. On a semi-sync slave of a frozen master it takes up to 1 s.
	StopIO(ctx context.Context) error
	// DrainRelayLog lets a slave whose both threads are down apply the relay log
	// that it kept, by file and position, without contacting its source. It
	// returns once the SQL thread runs; the view shows the progress. Afterwards
	// only Attach or Detach may follow.
	DrainRelayLog(ctx context.Context) error
	// StopSQL stops the SQL thread, because a person wants it so. If the IO thread
	// is down it refuses while something received is not applied: the next start of
	// either would drop it.
	StopSQL(ctx context.Context) error
	// StartSQL starts the SQL thread while the IO thread is running or trying to
	// connect. It refuses if the IO thread is down: in GTID mode that would wipe
	// the relay log.
	StartSQL(ctx context.Context) error
	// Fetch makes the server replicate from another one by the named connection
	// "repld_rescue", from its own gtid_slave_pos, beside its default connection,
	// whose relay log stays untouched. EndFetch stops and removes it.
	Fetch(ctx context.Context, from Source) error
	EndFetch(ctx context.Context) error
	// Detach makes the server nobody's slave: STOP SLAVE, RESET SLAVE ALL. The
	// caller has seen that all that was received is applied.
	Detach(ctx context.Context) error
	// Arm switches semi-sync master on with the given timeout, and slave off.
	// Disarm switches semi-sync master off, which answers OK to all commits that
	// wait: never on a server that is being fenced.
	Arm(ctx context.Context, timeout time.Duration) error
	Disarm(ctx context.Context) error
	// Open makes the server writable by a statement that opens it only before
	// deadline, on the server's own clock, so that a server which froze and runs
	// it later stays closed. within is at most a second.
	Open(ctx context.Context, within time.Duration) error
	// Fence makes sure that the server accepts no writes: asks for read_only, kills
	// every session but repld's until it holds, those that wait for an ack last,
	// switches the event scheduler off, and only then semi-sync master, in this
	// order (see docs/guarantees.md). Nothing that waited is told OK.
	Fence(ctx context.Context) error
	// Shut closes a live master for a switchover: as Fence, but its slaves' streams
	// go on, its semi-sync stays as it is, and a global read lock keeps privileged
	// accounts out, too, until the next Open or Attach.
	Shut(ctx context.Context) error
	// Attach makes the server a slave of source by GTID over verified TLS, as an
	// acker or not, and starts both threads. It leaves read_only on and the event
	// scheduler off, and makes events that are enabled here those of a slave.
	Attach(ctx context.Context, to Attachment) error
	// Events tells which scheduled events run on a master. Before that it lets
	// those of resume run, if it is not nil: it enables each that is
	// SLAVESIDE_DISABLED here, whose definer it keeps, and switches the scheduler on
	// if resume says so. These are transactions, whose commits may wait for an acker.
	Events(ctx context.Context, resume *topology.Events) (topology.Events, error)
	// Announce writes the row of repld.cluster on the master. Its commit may
	// wait for an acker like any other.
	Announce(ctx context.Context, row ClusterRow) error
}

// Source is a server to replicate from, as another server reaches it.
type Source struct {
	Name string
	Host string
	Port uint16
	// CAFile, CertFile and KeyFile are paths on the slave.
	CAFile, CertFile, KeyFile string
}

// Attachment is how a server is made a slave.
type Attachment struct {
	Source Source
	// Acker switches semi-sync slave on before the start.
	Acker bool
	// StartAt replaces gtid_slave_pos before the start; nil leaves it alone. A
	// former master needs it: its gtid_slave_pos is empty or out of date.
	StartAt *gtid.Position
	// Delay is MASTER_DELAY; DoDB the schemas of a filtered slave.
	Delay time.Duration
	DoDB  []string
}

// ClusterRow is the one row of the replicated table repld.cluster.
type ClusterRow struct {
	ClusterID  string
	Cluster    string
	Epoch      uint64
	Master     string
	Durability string
	Ackers     []string
	Instance   string
}
