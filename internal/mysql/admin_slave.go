package mysql

import (
	"context"
	"fmt"
	"time"
)

// StopFetching stops the IO thread of a slave's default connection and returns
// once all that it received is applied: only then may its relay log go. It
// gives up with ctx, or when the SQL thread has stopped; the IO thread then
// stays stopped and the relay log is kept.
func StopFetching(ctx context.Context, c *Conn) error {
	s, err := defaultSource(ctx, c)
	if err != nil || s == nil {
		return err
	}
	if s.IO != "No" {
		if err := c.Exec(ctx, "STOP SLAVE IO_THREAD"); err != nil {
			return err
		}
	}
	for {
		// Read anew after the IO thread was stopped: what it received last counts.
		if s, err = defaultSource(ctx, c); err != nil || s == nil {
			return err
		}
		switch {
		case s.IO == "No" && s.LogFile == s.ExecLogFile && s.ReadPos == s.ExecPos:
			return nil
		case s.SQL == "No":
			return fmt.Errorf("%s: the SQL thread is stopped while received transactions are not applied (read %s:%d, applied %s:%d)%s",
				c.target.Label(), s.LogFile, s.ReadPos, s.ExecLogFile, s.ExecPos, colon(s.LastSQLError))
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("%s: received transactions are not applied yet (read %s:%d, applied %s:%d): %w",
				c.target.Label(), s.LogFile, s.ReadPos, s.ExecLogFile, s.ExecPos, err)
		}
	}
}

func colon(s string) string {
	if s == "" {
		return ""
	}
	return ": " + s
}

// defaultSource is the default connection's status, nil if none is configured.
func defaultSource(ctx context.Context, c *Conn) (*SourceStatus, error) {
	list, err := Sources(ctx, c)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].Connection == "" && list[i].Host != "" {
			return &list[i], nil
		}
	}
	return nil, nil
}

// StopSlave stops both threads of the default connection. The caller has seen
// that all that was received is applied ([StopFetching]).
func StopSlave(ctx context.Context, c *Conn) error { return c.Exec(ctx, "STOP SLAVE") }

// StartSlave starts both threads again as they were configured. Like every
// start in GTID mode it may drop what was received and not applied: only after
// [StopFetching].
func StartSlave(ctx context.Context, c *Conn) error { return c.Exec(ctx, "START SLAVE") }

// ForgetSource makes a slave nobody's slave, and no acker. The caller has seen
// that all that was received is applied.
func ForgetSource(ctx context.Context, c *Conn) error {
	s, err := defaultSource(ctx, c)
	if err != nil {
		return err
	}
	if s != nil {
		if err := c.Exec(ctx, "STOP SLAVE"); err != nil {
			return err
		}
		if err := c.Exec(ctx, "RESET SLAVE ALL"); err != nil {
			return err
		}
	}
	return c.Exec(ctx, "SET GLOBAL rpl_semi_sync_slave_enabled=0")
}

// Reconnect makes an IO thread that waits for its connect retry (a minute by
// default) try at once. It does so only while the SQL thread runs: a start with
// both threads down would drop the relay log in GTID mode.
func Reconnect(ctx context.Context, c *Conn) error {
	s, err := defaultSource(ctx, c)
	if err != nil || s == nil || s.IO != "Connecting" || s.SQL != "Yes" {
		return err
	}
	if err := c.Exec(ctx, "STOP SLAVE IO_THREAD"); err != nil {
		return err
	}
	return c.Exec(ctx, "START SLAVE IO_THREAD")
}
