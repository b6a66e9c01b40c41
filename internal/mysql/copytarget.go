package mysql

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/repld/repld/internal/gtid"
)

// CopyState is what a server remembers of a copy onto it that has begun and is
// not finished: which schemas are repld's to replace, so that a second attempt
// never takes half a copy for somebody's data, and somebody's data never for
// half a copy. It stands in the unreplicated table repld.copy_state there.
type CopyState struct {
	// ClusterID and Source say whose copy it is.
	ClusterID string `json:"cluster_id"`
	Source    string `json:"source"`
	// Schemas are those that the copy creates or replaces.
	Schemas []string  `json:"schemas"`
	Begun   time.Time `json:"begun"`
	// Failed is why the last attempt ended, "" while it runs or after a crash.
	Failed string `json:"failed,omitempty"`
}

const copyStateTable = "copy_state"

// ReadCopyState gives the state of an unfinished copy, nil if there is none.
func ReadCopyState(ctx context.Context, c *Conn) (*CopyState, error) {
	there, err := c.QueryRow(ctx, `SELECT 1 AS there FROM information_schema.TABLES WHERE TABLE_SCHEMA=? AND TABLE_NAME=?`, OwnSchema, copyStateTable)
	if err != nil || there == nil {
		return nil, wrap("read copy state", err)
	}
	row, err := c.QueryRow(ctx, "SELECT state FROM "+ownTable(copyStateTable))
	if err != nil {
		return nil, wrap("read copy state", err)
	}
	// The table without its row: the server was ended between the two.
	s := &CopyState{}
	if row == nil {
		return s, nil
	}
	if err := json.Unmarshal([]byte(row.String("state")), s); err != nil {
		return nil, fmt.Errorf("read copy state: %w", err)
	}
	return s, nil
}

// WriteCopyState records the state of a copy, outside the binary log.
func WriteCopyState(ctx context.Context, c *Conn, s CopyState) error {
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("write copy state: %w", err)
	}
	return execAll(ctx, c, "write copy state",
		statement{text: "SET SESSION sql_log_bin=0"},
		statement{text: "CREATE DATABASE IF NOT EXISTS " + QuoteName(OwnSchema)},
		statement{text: "CREATE TABLE IF NOT EXISTS " + ownTable(copyStateTable) + " (id TINYINT NOT NULL PRIMARY KEY, state LONGTEXT NOT NULL) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"},
		statement{text: "REPLACE INTO " + ownTable(copyStateTable) + " VALUES (1, ?)", args: []any{string(text)}})
}

// PrepareCopy makes a server ready to be loaded: read-only, the event scheduler
// off, so that no copied event runs before it is disabled, and the given schemas
// gone. Nothing of it reaches the binary log.
func PrepareCopy(ctx context.Context, c *Conn, drop []string) error {
	if err := Shut(ctx, c); err != nil {
		return err
	}
	steps := []statement{
		{text: "SET SESSION sql_log_bin=0"},
		{text: "SET SESSION foreign_key_checks=0"},
		{text: "SET SESSION lock_wait_timeout=60"},
	}
	for _, s := range drop {
		if IsSystemSchema(s) {
			return fmt.Errorf("prepare copy: %s belongs to the server itself", s)
		}
		steps = append(steps, statement{text: "DROP DATABASE IF EXISTS " + QuoteName(s)})
	}
	return execAll(ctx, c, "prepare copy", steps...)
}

// DisableEvents makes each event that the copy brought one of a slave: it stays
// as it was defined, and does not run there (SLAVESIDE_DISABLED), as if its
// creation had been replicated. It returns their names.
func DisableEvents(ctx context.Context, c *Conn) ([]string, error) {
	list, err := eventsIn(ctx, c, "ENABLED")
	if err != nil {
		return nil, wrap("disable events", err)
	}
	names := make([]string, len(list))
	for i, e := range list {
		names[i] = e.Schema + "." + e.Name
	}
	if err := c.Exec(ctx, "SET SESSION sql_log_bin=0"); err != nil {
		return names, wrap("disable events", err)
	}
	return names, wrap("disable events", alterEvents(ctx, c, list, "DISABLE ON SLAVE"))
}

// splitAccount splits user@host at the last @: a user's name may hold one, a
// host's cannot.
func splitAccount(s string) (user, host string) {
	i := strings.LastIndexByte(s, '@')
	if i < 0 {
		return s, ""
	}
	return s[:i], s[i+1:]
}

// FinishCopy makes a server, whose data is now that of another one at position
// at, stand there: an empty binary log, gtid_slave_pos, and no unfinished copy
// any more. What stood in its binary log described data that no longer exists;
// left there, it would make the server look diverged for ever. The caller has
// made sure that nobody replicates from the server.
func FinishCopy(ctx context.Context, c *Conn, at gtid.Position) error {
	// In this order: a crash in between leaves the copy unfinished, and it is made
	// again.
	return execAll(ctx, c, "finish copy",
		statement{text: "SET SESSION sql_log_bin=0"},
		statement{text: "RESET MASTER"},
		statement{text: "SET GLOBAL gtid_slave_pos=?", args: []any{at.String()}},
		statement{text: "DROP TABLE IF EXISTS " + ownTable(copyStateTable)})
}

// StartEmpty makes a server that holds no data stand at position at, with an
// empty binary log: what an installation wrote there about accounts is nobody's
// transaction, and would look like one that no other server has.
func StartEmpty(ctx context.Context, c *Conn, at gtid.Position) error {
	return execAll(ctx, c, "set the starting position",
		statement{text: "SET SESSION sql_log_bin=0"},
		statement{text: "DROP DATABASE IF EXISTS " + QuoteName(OwnSchema)},
		statement{text: "RESET MASTER"},
		statement{text: "SET GLOBAL gtid_slave_pos=?", args: []any{at.String()}})
}

// SetSlavePos sets gtid_slave_pos and nothing else.
func SetSlavePos(ctx context.Context, c *Conn, at gtid.Position) error {
	return execAll(ctx, c, "set gtid_slave_pos", statement{text: "SET GLOBAL gtid_slave_pos=?", args: []any{at.String()}})
}

// PositionAt is the replication position that a place in a server's binary log
// stands for.
func PositionAt(ctx context.Context, c *Conn, at BinlogPoint) (gtid.Position, error) {
	row, err := c.QueryRow(ctx, "SELECT BINLOG_GTID_POS(?, ?) AS pos", at.File, at.Pos)
	if err != nil {
		return gtid.Position{}, wrap("position of the snapshot", err)
	}
	if row == nil || row.Null("pos") {
		return gtid.Position{}, fmt.Errorf("position of the snapshot: %s has no position %d in its binary log any more", at.File, at.Pos)
	}
	p, err := gtid.ParsePosition(row.String("pos"))
	return p, wrap("position of the snapshot", err)
}

type statement struct {
	text string
	args []any
}

func execAll(ctx context.Context, c *Conn, verb string, steps ...statement) error {
	for _, s := range steps {
		if err := c.Exec(ctx, s.text, s.args...); err != nil {
			return fmt.Errorf("%s: %w", verb, err)
		}
	}
	return nil
}

func ownTable(name string) string { return QuoteName(OwnSchema) + "." + QuoteName(name) }

func wrap(verb string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", verb, err)
}

// WithoutBinlog keeps what the session does from here on out of the binary log.
func WithoutBinlog(ctx context.Context, c *Conn) error {
	return c.Exec(ctx, "SET SESSION sql_log_bin=0")
}

// ForgetSources ends all replication on a server and forgets whom it followed.
// Its relay logs are gone with it.
func ForgetSources(ctx context.Context, c *Conn) error {
	list, err := Sources(ctx, c)
	if err != nil || len(list) == 0 {
		return wrap("end replication", err)
	}
	if err := c.Exec(ctx, "STOP ALL SLAVES"); err != nil {
		return wrap("end replication", err)
	}
	for _, s := range list {
		if err := c.Exec(ctx, "RESET SLAVE "+QuoteString(s.Connection)+" ALL"); err != nil {
			return wrap("end replication", err)
		}
	}
	return nil
}
