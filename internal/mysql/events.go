package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unicode"

	"github.com/repld/repld/topology"
)

// Errors of ALTER EVENT about an event that cannot run any more.
const (
	errnoNoEvent     = 1539
	errnoEventInPast = 1589
)

// Events implements [failover.Server].
func (s *Server) Events(ctx context.Context, resume *topology.Events) (topology.Events, error) {
	var out topology.Events
	err := s.do(ctx, "look at events", func(c *effectConn) (err error) {
		if resume != nil {
			if err := resumeEvents(ctx, c.Conn, *resume); err != nil {
				return fmt.Errorf("resume events: %w", err)
			}
		}
		out, err = readEvents(ctx, c.Conn)
		return err
	})
	return out, err
}

func readEvents(ctx context.Context, c *Conn) (topology.Events, error) {
	var out topology.Events
	row, err := c.QueryRow(ctx, "SELECT @@GLOBAL.event_scheduler AS scheduler")
	if err != nil {
		return out, err
	}
	out.On = row.Bool("scheduler")
	list, err := eventsIn(ctx, c, "ENABLED")
	for i := range list {
		out.Enabled = append(out.Enabled, list[i].Event)
	}
	return out, err
}

// event is a row of information_schema.EVENTS.
type event struct {
	topology.Event
	definer, charset, collation string
}

// eventsIn lists the events in a status: ENABLED, DISABLED or SLAVESIDE_DISABLED.
func eventsIn(ctx context.Context, c *Conn, status string) ([]event, error) {
	rows, err := c.Query(ctx, `SELECT EVENT_SCHEMA AS db, EVENT_NAME AS name, DEFINER AS definer,
		CHARACTER_SET_CLIENT AS charset, COLLATION_CONNECTION AS collation
		FROM information_schema.EVENTS WHERE STATUS = ? ORDER BY 1, 2`, status)
	if err != nil {
		return nil, err
	}
	out := make([]event, len(rows))
	for i := range rows {
		r := &rows[i]
		out[i] = event{topology.Event{Schema: r.String("db"), Name: r.String("name")}, r.String("definer"), r.String("charset"), r.String("collation")}
	}
	return out, nil
}

// resumeEvents enables what ran on the former master and is disabled here because
// it came from there. What has been disabled here by somebody stays so, and what
// is gone, or can run no more, is passed over.
func resumeEvents(ctx context.Context, c *Conn, resume topology.Events) error {
	list, err := eventsIn(ctx, c, "SLAVESIDE_DISABLED")
	if err != nil {
		return err
	}
	wanted := map[topology.Event]bool{}
	for _, e := range resume.Enabled {
		wanted[e] = true
	}
	err = alterEvents(ctx, c, slices.DeleteFunc(list, func(e event) bool { return !wanted[e.Event] }), "ENABLE")
	if resume.On {
		// After the events: one that is enabled late would miss a run, not run twice.
		if schedulerErr := c.Exec(ctx, "SET GLOBAL event_scheduler = ON"); schedulerErr != nil {
			return errors.Join(err, schedulerErr)
		}
	}
	return err
}

// alterEvents changes whether events run, and nothing else of them: ALTER EVENT
// takes the definer, if none is named, and always the character set, from the
// session. What is gone, or can run no more, is passed over; an event that cannot
// be altered does not keep the others from it.
func alterEvents(ctx context.Context, c *Conn, list []event, status string) error {
	if len(list) == 0 {
		return nil
	}
	own, err := c.QueryRow(ctx, "SELECT @@SESSION.character_set_client AS charset, @@SESSION.collation_connection AS collation")
	if err != nil {
		return err
	}
	speak := func(charset, collation string) error {
		return c.Exec(ctx, "SET SESSION character_set_client = ?, SESSION collation_connection = ?", charset, collation)
	}
	var failed []error
	for _, e := range list {
		err := speak(e.charset, e.collation)
		if err == nil {
			err = c.Exec(ctx, e.alter(status))
		}
		if n := Errno(err); err != nil && n != errnoNoEvent && n != errnoEventInPast {
			failed = append(failed, fmt.Errorf("event %s.%s: %w", e.Schema, e.Name, err))
		}
		if c.lost {
			break
		}
	}
	return errors.Join(append(failed, speak(own.String("charset"), own.String("collation")))...)
}

// alter is the statement. A name beyond ASCII is written so that it does not
// depend on the session's character set.
func (e event) alter(status string) string {
	user, host := splitAccount(e.definer)
	text := "ALTER DEFINER = " + QuoteAccount(user, host) + " EVENT " + QuoteName(e.Schema) + "." + QuoteName(e.Name) + " " + status
	for _, r := range text {
		if r > unicode.MaxASCII {
			return fmt.Sprintf("EXECUTE IMMEDIATE _utf8mb4 x'%x'", text)
		}
	}
	return text
}

// ownEventsOff makes a server that is to be a slave run no events, now and after
// a later promotion: what is enabled here is made a slave's, without a trace in
// the binary log.
func ownEventsOff(ctx context.Context, c *Conn) error {
	row, err := c.QueryRow(ctx, "SELECT @@GLOBAL.event_scheduler AS scheduler")
	if err != nil {
		return err
	}
	if row.Bool("scheduler") {
		if err := c.Exec(ctx, "SET GLOBAL event_scheduler = OFF"); err != nil {
			return err
		}
	}
	list, err := eventsIn(ctx, c, "ENABLED")
	if err != nil || len(list) == 0 {
		return err
	}
	if err := c.Exec(ctx, "SET SESSION sql_log_bin = 0"); err != nil {
		return err
	}
	return errors.Join(alterEvents(ctx, c, list, "DISABLE ON SLAVE"), c.Exec(ctx, "SET SESSION sql_log_bin = 1"))
}
