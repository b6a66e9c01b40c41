package mysql

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/repld/repld/internal/gtid"
)

// errWouldWipe: the effect that was asked for could, with the server as it is,
// drop the relay log, which may be the only place of a transaction.
var errWouldWipe = errors.New("refused, because it could drop the relay log")

// applyPatience is how long a slave that is to be attached anew, or detached, is
// given to apply what it had just received.
const applyPatience = 3 * time.Second

// stopBoth stops both threads in the order that leaves nothing received and
// unapplied behind, which the next CHANGE MASTER, RESET or START would drop: the
// IO thread first, then, when all is applied, the SQL thread. If the SQL thread
// does not get there, the slave goes on as it was.
func (s *Server) stopBoth(ctx context.Context, c *effectConn, row *Row) error {
	received := row.String("Slave_IO_Running") != "No"
	if received {
		if err := c.Exec(ctx, c.facts.Dialect.stopIO); err != nil {
			return err
		}
	}
	byGTID, applies := row.String("Using_Gtid") != "No", row.String("Slave_SQL_Running") == "Yes"
	if byGTID {
		if err := s.awaitApplied(ctx, c, applies); err != nil {
			if received && applies {
				err = errors.Join(err, c.Exec(ctx, c.facts.Dialect.startIO))
			}
			return fmt.Errorf("%s: %w", s.opts.Server, err)
		}
	}
	return c.Exec(ctx, c.facts.Dialect.stopSlave)
}

// awaitApplied waits until nothing received is unapplied, if the SQL thread runs.
func (s *Server) awaitApplied(ctx context.Context, c *effectConn, applies bool) error {
	end := time.Now().Add(applyPatience)
	for {
		row, err := slaveRow(ctx, c, "")
		if err != nil || row == nil {
			return err
		}
		err = nothingPending(ctx, c, row)
		if err == nil || !applies || time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// StopSQL implements [failover.Server].
func (s *Server) StopSQL(ctx context.Context) error {
	return s.do(ctx, "stop SQL thread", func(c *effectConn) error {
		row, err := slaveRow(ctx, c, "")
		switch {
		case err != nil:
			return err
		case row == nil:
			return fmt.Errorf("%s is no slave", s.opts.Server)
		case row.String("Slave_IO_Running") == "No":
			if err := nothingPending(ctx, c, row); err != nil {
				return fmt.Errorf("%s: %w", s.opts.Server, err)
			}
		}
		return c.Exec(ctx, c.facts.Dialect.stopSQL)
	})
}

// nothingPending refuses what would leave, or drop, received transactions that
// are not applied.
func nothingPending(ctx context.Context, c *effectConn, row *Row) error {
	received, err := gtid.ParsePosition(row.String("Gtid_IO_Pos"))
	if err != nil {
		return err
	}
	now, err := c.QueryRow(ctx, "SELECT @@GLOBAL.gtid_slave_pos AS applied")
	if err != nil {
		return err
	}
	applied, err := gtid.ParsePosition(now.String("applied"))
	if err != nil {
		return err
	}
	for _, domain := range received.Domains() {
		if g, has := received.Of(domain), applied.Of(domain); g.Seq > has.Seq {
			return fmt.Errorf("%w: %s was received and %s is applied", errWouldWipe, g, has)
		}
	}
	return nil
}
