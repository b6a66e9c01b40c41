package mysql

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/repld/repld/internal/gtid"
)

// DrainRelayLog implements [failover.Server]. One CHANGE MASTER names the relay
// log's file and position and leaves GTID mode; without the file and position
// it would drop the relay log, and in GTID mode START SLAVE would.
func (s *Server) DrainRelayLog(ctx context.Context) error {
	return s.do(ctx, "drain relay log", func(c *effectConn) error {
		row, err := slaveRow(ctx, c, "")
		if err != nil {
			return err
		}
		if row == nil {
			return fmt.Errorf("%s is no slave", s.opts.Server)
		}
		io, sql := row.String("Slave_IO_Running"), row.String("Slave_SQL_Running")
		if io != "No" {
			return fmt.Errorf("%s: %w: the IO thread is still running", s.opts.Server, errWouldWipe)
		}
		if sql == "Yes" {
			return nil // it applies what it has by itself
		}
		file, pos := row.String("Relay_Log_File"), row.Uint("Relay_Log_Pos")
		if file == "" || pos == 0 {
			return fmt.Errorf("%s names no relay log to drain", s.opts.Server)
		}
		file, pos, found, err := firstUnapplied(ctx, c, file, pos)
		if err != nil {
			return err
		}
		if err := s.applySerially(ctx, c); err != nil {
			return err
		}
		if found {
			err = c.Exec(ctx, "CHANGE MASTER TO RELAY_LOG_FILE = ?, RELAY_LOG_POS = ?, MASTER_USE_GTID = no", file, pos)
		} else {
			// All of it is applied: dropping it loses nothing, and begins an empty one.
			err = c.Exec(ctx, "CHANGE MASTER TO MASTER_USE_GTID = no")
		}
		if err != nil {
			return err
		}
		if err := c.Exec(ctx, c.facts.Dialect.startSQL); err != nil {
			return err
		}
		return sqlRuns(ctx, c)
	})
}

// applySerially switches the parallel applier off for a drain: 10.11.19 crashes
// (SIGSEGV in Relay_log_info::inc_group_relay_log_pos) when it applies in
// parallel by file and position without knowing the source's file name. The SQL
// thread is down.
func (s *Server) applySerially(ctx context.Context, c *effectConn) error {
	row, err := c.QueryRow(ctx, "SELECT @@GLOBAL.slave_parallel_mode AS mode")
	if err != nil {
		return err
	}
	if mode := row.String("mode"); !strings.EqualFold(mode, "none") {
		s.mu.Lock()
		s.parallelMode = mode
		s.mu.Unlock()
	}
	return c.Exec(ctx, "SET GLOBAL slave_parallel_mode = 'none'")
}

// applyAsBefore undoes applySerially; the SQL thread is down. If the process
// that drained is gone, the server's default is taken.
func (s *Server) applyAsBefore(ctx context.Context, c *effectConn, row *Row) error {
	if row == nil || row.String("Using_Gtid") != "No" {
		return nil // it was not drained
	}
	s.mu.Lock()
	mode := s.parallelMode
	s.mu.Unlock()
	if mode == "" {
		return c.Exec(ctx, "SET GLOBAL slave_parallel_mode = DEFAULT")
	}
	return c.Exec(ctx, "SET GLOBAL slave_parallel_mode = ?", mode)
}

// sqlRuns waits until the SQL thread runs, and gives its error if it stopped.
func sqlRuns(ctx context.Context, c *effectConn) error {
	for {
		row, err := slaveRow(ctx, c, "")
		switch {
		case err != nil:
			return err
		case row == nil:
			return fmt.Errorf("the slave is gone")
		case row.String("Slave_SQL_Running") == "Yes":
			return nil
		case row.Uint("Last_SQL_Errno") != 0:
			return fmt.Errorf("the SQL thread stopped with error %d: %s", row.Uint("Last_SQL_Errno"), row.String("Last_SQL_Error"))
		}
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return fmt.Errorf("the SQL thread does not start: %w", err)
		}
	}
}

// firstUnapplied is where the first transaction stands that is not yet in
// gtid_slave_pos, at or after a position of the relay log; found is false if
// there is none. The position that a server has recorded is not it: one that was
// killed, or that applies in parallel, records a position before transactions
// that it has committed, and by file and position they would be applied again.
func firstUnapplied(ctx context.Context, c *effectConn, file string, pos uint64) (string, uint64, bool, error) {
	row, err := c.QueryRow(ctx, "SELECT @@GLOBAL.gtid_slave_pos AS pos")
	if err != nil {
		return "", 0, false, err
	}
	applied, err := gtid.ParsePosition(row.String("pos"))
	if err != nil {
		return "", 0, false, err
	}
	if _, err := showsRelayLog(ctx, c, file); err != nil {
		return "", 0, false, err
	}
	for {
		at, found, err := unappliedIn(ctx, c, file, pos, applied)
		if err != nil || found {
			return file, at, found, err
		}
		next, ok := nextFile(file)
		if !ok {
			return "", 0, false, nil
		}
		if more, err := showsRelayLog(ctx, c, next); err != nil || !more {
			return "", 0, false, err
		}
		file, pos = next, 4
	}
}

// errRelayUnopened is about a slave that can neither apply nor show its relay log.
var errRelayUnopened = errors.New("the server could not open its relay log when it started, and what that holds is unknown:" +
	" see its error log; if the master has all of it, RESET SLAVE on this server lets it begin a new one")

// showsRelayLog tells whether a relay log file is there. Each begins with an
// event; a server whose relay log is not open answers with none, and with no
// error, for any name (MariaDB 10.11).
func showsRelayLog(ctx context.Context, c *effectConn, file string) (bool, error) {
	events, err := c.Query(ctx, "SHOW RELAYLOG EVENTS IN ? LIMIT 1", file)
	switch {
	case Errno(err) != 0:
		return false, nil
	case err == nil && len(events) == 0:
		err = fmt.Errorf("%s: %w", file, errRelayUnopened)
	}
	return err == nil, err
}

// pageSize is how many events of a relay log are asked for at once.
const pageSize = 1000

// unappliedIn looks through one relay log file. A file may end in the middle of
// an event, if the server was killed; the server then refuses the whole page, and
// smaller ones lead up to that place.
func unappliedIn(ctx context.Context, c *effectConn, file string, pos uint64, applied gtid.Position) (uint64, bool, error) {
	for limit := pageSize; ; {
		events, err := c.Query(ctx, fmt.Sprintf("SHOW RELAYLOG EVENTS IN ? FROM ? LIMIT %d", limit), file, pos)
		switch {
		case Errno(err) != 0 && limit > 2:
			limit = max(2, limit/10)
			continue
		case Errno(err) != 0:
			return 0, false, nil // what follows pos is cut off
		case err != nil:
			return 0, false, err
		}
		for i := range events {
			e := &events[i]
			pos = e.Uint("Pos") // the last one is seen again at the head of the next page
			if e.String("Event_type") != "Gtid" {
				continue
			}
			if g, ok := gtidOf(e.String("Info")); ok && g.Seq > applied.Of(g.Domain).Seq {
				return pos, true, nil
			}
		}
		if len(events) < limit {
			return 0, false, nil
		}
	}
}

// gtidOf finds the identifier in the description of a Gtid event, which reads
// "BEGIN GTID 0-1-42" or "GTID 0-1-42".
func gtidOf(info string) (gtid.GTID, bool) {
	_, after, ok := strings.Cut(info, "GTID ")
	if !ok {
		return gtid.GTID{}, false
	}
	word, _, _ := strings.Cut(after, " ")
	g, err := gtid.Parse(word)
	return g, err == nil
}

// nextFile counts a log file's name up: relay.000009 is followed by relay.000010.
func nextFile(file string) (string, bool) {
	dot := strings.LastIndexByte(file, '.')
	if dot < 0 {
		return "", false
	}
	n, err := strconv.ParseUint(file[dot+1:], 10, 64)
	if err != nil {
		return "", false
	}
	return fmt.Sprintf("%s.%0*d", file[:dot], len(file)-dot-1, n+1), true
}
