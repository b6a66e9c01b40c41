package mysql

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/repld/repld/failover"
)

// Arm implements [failover.Server]. The wait point, the wait without a slave
// and the slave's kill timeout are set too: a value that someone changed would
// break the promise in silence.
func (s *Server) Arm(ctx context.Context, timeout time.Duration) error {
	return s.do(ctx, "arm semi-sync", func(c *effectConn) error {
		return c.Exec(ctx, "SET GLOBAL rpl_semi_sync_slave_enabled = 0, GLOBAL rpl_semi_sync_slave_kill_conn_timeout = 1,"+
			" GLOBAL rpl_semi_sync_master_timeout = ?, GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC',"+
			" GLOBAL rpl_semi_sync_master_wait_no_slave = 1, GLOBAL rpl_semi_sync_master_enabled = 1", timeout.Milliseconds())
	})
}

// Disarm implements [failover.Server].
func (s *Server) Disarm(ctx context.Context) error {
	return s.do(ctx, "disarm semi-sync", func(c *effectConn) error {
		return c.Exec(ctx, "SET GLOBAL rpl_semi_sync_master_enabled = 0")
	})
}

// ErrExpired is wrapped by [Server.Open] if the server ran the opening
// statement only after its deadline, and so stayed closed.
var ErrExpired = errors.New("the opening statement ran after its deadline and left the server read-only")

// maxOpening is the longest that an opening statement may stay good for.
const maxOpening = time.Second

// Open implements [failover.Server]. The deadline is on the server's clock and
// is read on the connection that opens: no difference of clocks matters.
func (s *Server) Open(ctx context.Context, within time.Duration) error {
	return s.do(ctx, "open for writes", func(c *effectConn) error {
		s.unlock()
		return open(ctx, c, min(within, maxOpening), func() error { return nil })
	})
}

// open lets a test hold the connection between the deadline and the statement.
func open(ctx context.Context, c *effectConn, within time.Duration, between func() error) error {
	row, err := c.QueryRow(ctx, "SELECT @@GLOBAL.read_only AS ro, SYSDATE(6) + INTERVAL ? MICROSECOND AS deadline", within.Microseconds())
	if err != nil {
		return err
	}
	if !row.Bool("ro") {
		return nil
	}
	if err := between(); err != nil {
		return err
	}
	if err := c.Exec(ctx, "SET GLOBAL read_only = IF(SYSDATE(6) < ?, 0, 1)", row.String("deadline")); err != nil {
		return err
	}
	now, err := c.QueryRow(ctx, "SELECT @@GLOBAL.read_only AS ro")
	if err != nil {
		return err
	}
	if now.Bool("ro") {
		return fmt.Errorf("%s: %w (%s)", c.target.Label(), ErrExpired, row.String("deadline"))
	}
	return nil
}

// Announce implements [failover.Server]. An older epoch never overwrites a
// newer one, so that a statement that comes late does no harm.
func (s *Server) Announce(ctx context.Context, row failover.ClusterRow) error {
	return s.do(ctx, "announce in repld.cluster", func(c *effectConn) error { return announce(ctx, c.Conn, row) })
}
