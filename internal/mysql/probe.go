package mysql

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/health"
	"github.com/repld/repld/topology"
)

// factsEvery is how often what rarely changes is read again on an open connection.
const factsEvery = 5 * time.Second

// RescueConnection is the name of the second connection by which a server
// fetches what another one has beyond it.
const RescueConnection = "repld_rescue"

// ProberOptions say whom a [Prober] looks at.
type ProberOptions struct {
	// Server is the name that observations carry.
	Server string
	// Target gives the address and the login at each new connection.
	Target func() Target
	// Identity gives the recorded identity at each new connection; nil, or a zero
	// identity, accepts whoever answers.
	Identity func() topology.Identity
	// Sessions, if not nil, learns of the prober's own session.
	Sessions *Sessions
}

// Prober implements [health.Prober] on a real server, by one open connection
// and, normally, one round trip per observation.
type Prober struct {
	opts ProberOptions

	mu     sync.Mutex
	conn   *Conn
	facts  Facts
	factAt time.Time
	reader probeReader
	// stuck is the session whose slave status has not answered; as long as it is
	// there no other one asks for it, or each would hang in its turn and use up
	// the server's connections.
	stuck      uint64
	stuckSince time.Time
	closed     bool
	// stall is what held up writes when it was last looked for.
	stall   health.Stall
	stallAt time.Time
}

var _ health.Prober = (*Prober)(nil)

// NewProber makes a prober; it connects at the first Probe.
func NewProber(opts ProberOptions) *Prober { return &Prober{opts: opts} }

// errSlaveStatus marks an observation that broke off after the server had
// answered the first statements.
var errSlaveStatus = errors.New("the slave status does not answer, all else does: is the disk of the relay log full?")

// Probe looks once; see [health.Prober]. If the server answers but hangs in
// its slave status, Reach is unkind, for the server is alive, and Err says so.
func (p *Prober) Probe(ctx context.Context) health.Observation {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := health.Observation{Server: p.opts.Server, Sent: time.Now()}
	err := p.observe(ctx, &o)
	o.At = time.Now()
	switch {
	case err == nil:
		o.Reach = health.ReachOK
		return o
	case errors.Is(err, errSlaveStatus):
		o.Reach = health.ReachUnkind
	case errors.Is(err, failover.ErrForeign):
		o.Reach = health.ReachForeign
	default:
		o.Reach, o.Errno = Classify(err)
	}
	o.Err = err.Error()
	if o.Reach != health.ReachForeign && p.conn != nil && p.conn.lost {
		p.drop()
	}
	return o
}

// Close ends the prober's connection; later probes fail.
func (p *Prober) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.drop()
	return nil
}

// drop forgets the connection.
func (p *Prober) drop() {
	if p.conn == nil {
		return
	}
	p.opts.Sessions.drop(p.facts.ConnectionID)
	_ = p.conn.Close()
	p.conn = nil
}

func (p *Prober) observe(ctx context.Context, o *health.Observation) error {
	if p.closed {
		return fmt.Errorf("%s: the prober is closed", p.opts.Server)
	}
	if p.conn == nil {
		if err := p.connect(ctx); err != nil {
			return err
		}
	} else if time.Since(p.factAt) >= factsEvery {
		if err := p.readFacts(ctx); err != nil {
			p.drop()
			return err
		}
	}
	if p.stuck != 0 {
		if err := p.unstick(ctx); err != nil {
			return err
		}
	}
	answered, err := p.reader.read(ctx, p.conn, p.facts.Dialect, o)
	p.describe(o)
	if err == nil {
		p.lookForStall(ctx, o)
		return nil
	}
	if reach, _ := Classify(err); answered && reach == health.ReachTimeout {
		p.stuck, p.stuckSince = p.facts.ConnectionID, o.Sent
		p.drop()
		return fmt.Errorf("%s: %w (%w)", p.opts.Server, errSlaveStatus, err)
	}
	if Errno(err) != 0 {
		// The rest of a list of statements is not sent after one has failed, but what
		// of it was read is not known here.
		p.drop()
	}
	return err
}

// connect opens the connection and finds out who is there.
func (p *Prober) connect(ctx context.Context) error {
	conn, err := dial(ctx, p.opts.Target(), true)
	if err != nil {
		return err
	}
	p.conn = conn
	p.reader.reset()
	if err := p.readFacts(ctx); err != nil {
		p.drop()
		return err
	}
	p.opts.Sessions.add(p.facts.ConnectionID)
	return nil
}

func (p *Prober) readFacts(ctx context.Context) error {
	facts, err := ReadFacts(ctx, p.conn)
	if err != nil {
		return err
	}
	p.facts, p.factAt = facts, time.Now()
	if p.opts.Identity == nil {
		return nil
	}
	return checkIdentity(p.opts.Server, p.opts.Identity(), facts.Identity)
}

// unstick looks whether the session that hung has come free.
func (p *Prober) unstick(ctx context.Context) error {
	// After a restart the number can be another session's. A busy session hides
	// its statement, so only one that is surely another counts as such.
	row, err := p.conn.QueryRow(ctx, "SELECT STATE AS state FROM information_schema.PROCESSLIST WHERE ID = ? AND NOT (COMMAND = 'Sleep'"+
		" OR USER <> SUBSTRING_INDEX(USER(), '@', 1) OR COALESCE(INFO NOT LIKE ?, 0))", p.stuck, "%"+p.facts.Dialect.slaves)
	if err != nil {
		return err
	}
	if row != nil {
		return fmt.Errorf("%s: %w (since %s, its session %d is still in state %q)", p.opts.Server, errSlaveStatus,
			time.Since(p.stuckSince).Round(time.Millisecond), p.stuck, row.String("state"))
	}
	p.stuck = 0
	return nil
}

// describe copies the facts into an observation.
func (p *Prober) describe(o *health.Observation) {
	o.Identity, o.Version, o.Started = p.facts.Identity, p.facts.Version, p.facts.Started
	o.LogBin, o.LogSlaveUpdates = p.facts.LogBin, p.facts.LogSlaveUpdates
	o.EventScheduler, o.SkipErrors = p.facts.EventScheduler, p.facts.SkipErrors
}
