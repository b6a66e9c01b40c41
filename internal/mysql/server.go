package mysql

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/topology"
)

// Credentials are an account's name and password.
type Credentials struct{ User, Password string }

// String never shows the password.
func (c Credentials) String() string { return c.User }

// GoString is as [Credentials.String].
func (c Credentials) GoString() string { return c.User }

// Options say whom a [Server] acts on.
type Options struct {
	// Server is the name in errors.
	Server string
	// Target gives the address and repld's own account at each new connection.
	Target func() Target
	// Identity gives the recorded identity; a zero one accepts whoever answers,
	// which only a server that is not yet recorded may.
	Identity func() topology.Identity
	// Replication gives the account by which slaves log in at their source.
	Replication func() Credentials
	// Sessions is shared with the server's [Prober] and [Lock], so that their
	// sessions are spared when older ones are killed. Required if there are any.
	Sessions *Sessions
}

// Server implements [failover.Server] on a real server. It keeps one open
// connection for speed; verbs may run at the same time, each then on its own.
//
// A verb whose context ends while a statement is under way returns an error
// that wraps [context.DeadlineExceeded], and the statement may still take
// effect. Before the next verb does anything, all sessions of repld's account
// that are not in use are killed, so that it cannot take effect after it; the
// same is done before the first verb of a process.
type Server struct {
	opts Options

	mu   sync.Mutex
	idle *effectConn
	// unanswered is true while a statement of an earlier verb, or of an earlier
	// process, may still be waiting on the server.
	unanswered bool
	// lock holds the global read lock of Shut; nil if there is none.
	lock *effectConn
	// parallelMode is slave_parallel_mode as it was before a drain.
	parallelMode string
	closed       bool
}

var _ failover.Server = (*Server)(nil)

// effectConn is a connection on which the identity was found right.
type effectConn struct {
	*Conn
	facts Facts
}

// NewServer makes a server; it connects at the first verb.
func NewServer(opts Options) *Server {
	if opts.Sessions == nil {
		opts.Sessions = &Sessions{}
	}
	return &Server{opts: opts, unanswered: true}
}

// Close ends the idle connection; later verbs fail.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.lock != nil {
		s.discard(s.lock)
		s.lock = nil
	}
	if s.idle != nil {
		s.discard(s.idle)
		s.idle = nil
	}
	return nil
}

// do runs one verb on a connection to the recorded server.
func (s *Server) do(ctx context.Context, verb string, run func(*effectConn) error) error {
	c, err := s.acquire(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	err = run(c)
	s.release(c)
	if err != nil {
		return fmt.Errorf("%s: %w", verb, err)
	}
	return nil
}

// acquire gives a connection whose server has been identified just now and on
// which nothing older of repld's is left.
func (s *Server) acquire(ctx context.Context) (*effectConn, error) {
	s.mu.Lock()
	c, stale, closed := s.idle, s.unanswered, s.closed
	s.idle = nil
	s.mu.Unlock()
	if closed {
		return nil, fmt.Errorf("%s: closed: %w", s.opts.Server, failover.ErrUnreachable)
	}
	if c != nil && s.still(ctx, c) != nil {
		// Nothing but a question was sent on it: a new connection is no retry of an effect.
		s.discard(c)
		c = nil
	}
	if c == nil {
		var err error
		if c, err = s.connect(ctx); err != nil {
			return nil, err
		}
	}
	if stale {
		if err := KillOwnSessions(ctx, c.Conn, s.opts.Sessions); err != nil {
			s.discard(c)
			return nil, fmt.Errorf("%w: %w", failover.ErrUnreachable, err)
		}
		s.mu.Lock()
		s.unanswered = false
		s.mu.Unlock()
	}
	return c, nil
}

func (s *Server) connect(ctx context.Context) (*effectConn, error) {
	conn, err := Dial(ctx, s.opts.Target())
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", s.opts.Server, failover.ErrUnreachable, err)
	}
	facts, err := ReadFacts(ctx, conn)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%s: %w: %w", s.opts.Server, failover.ErrUnreachable, err)
	}
	c := &effectConn{Conn: conn, facts: facts}
	if err := checkIdentity(s.opts.Server, s.opts.Identity(), facts.Identity); err != nil {
		_ = conn.Close()
		return nil, err
	}
	s.opts.Sessions.add(facts.ConnectionID)
	return c, nil
}

// still asks on an open connection whether the server is there and is still
// called what it was: server_id can be changed while it runs.
func (s *Server) still(ctx context.Context, c *effectConn) error {
	row, err := c.QueryRow(ctx, "SELECT @@GLOBAL.server_id AS id")
	if err != nil {
		return err
	}
	is := c.facts.Identity
	is.ServerID = uint32(row.Uint("id"))
	return checkIdentity(s.opts.Server, s.opts.Identity(), is)
}

func (s *Server) release(c *effectConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.lost {
		s.unanswered = true
	}
	if c.lost || s.idle != nil || s.closed {
		s.discard(c)
		return
	}
	s.idle = c
}

func (s *Server) discard(c *effectConn) {
	s.opts.Sessions.drop(c.facts.ConnectionID)
	_ = c.Close()
}

// KillOlder kills what earlier processes of repld left on the server; the
// first verb does it too.
func (s *Server) KillOlder(ctx context.Context) error {
	s.mu.Lock()
	s.unanswered = true
	s.mu.Unlock()
	return s.do(ctx, "kill older sessions", func(*effectConn) error { return nil })
}

// slaveRow is the status of one replication connection, nil if there is none.
func slaveRow(ctx context.Context, c *effectConn, name string) (*Row, error) {
	rows, err := c.Query(ctx, "SHOW ALL SLAVES STATUS")
	if err != nil {
		return nil, err
	}
	for i := range rows {
		if rows[i].String("Connection_name") == name {
			return &rows[i], nil
		}
	}
	return nil, nil
}

// StopIO implements [failover.Server].
func (s *Server) StopIO(ctx context.Context) error {
	return s.do(ctx, "stop IO thread", func(c *effectConn) error {
		row, err := slaveRow(ctx, c, "")
		if err != nil || row == nil || row.String("Slave_IO_Running") == "No" {
			return err
		}
		return c.Exec(ctx, c.facts.Dialect.stopIO)
	})
}

// StartSQL implements [failover.Server].
func (s *Server) StartSQL(ctx context.Context) error {
	return s.do(ctx, "start SQL thread", func(c *effectConn) error {
		row, err := slaveRow(ctx, c, "")
		switch {
		case err != nil:
			return err
		case row == nil:
			return fmt.Errorf("%s is no slave", s.opts.Server)
		case row.String("Slave_SQL_Running") == "Yes":
			return nil
		case row.String("Slave_IO_Running") == "No" && row.String("Using_Gtid") != "No":
			return fmt.Errorf("%s: %w: the IO thread is down too, and starting one of them in GTID mode wipes what was received", s.opts.Server, errWouldWipe)
		}
		return c.Exec(ctx, c.facts.Dialect.startSQL)
	})
}

// Detach implements [failover.Server].
func (s *Server) Detach(ctx context.Context) error {
	return s.do(ctx, "detach from its source", func(c *effectConn) error {
		row, err := slaveRow(ctx, c, "")
		if err != nil || row == nil {
			return err
		}
		if err := s.stopBoth(ctx, c, row); err != nil {
			return err
		}
		if err := s.applyAsBefore(ctx, c, row); err != nil {
			return err
		}
		return c.Exec(ctx, c.facts.Dialect.resetSlave)
	})
}

// hostOf strips the brackets of an IPv6 literal: the server takes it bare.
func hostOf(host string) string { return strings.Trim(host, "[]") }
