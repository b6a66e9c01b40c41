package mysql

import (
	"context"
	"fmt"
	"strings"

	"github.com/repld/repld/internal/gtid"
)

// Traits are properties of a server that matter to it as a slave, or to others
// as their master.
type Traits struct {
	// LowerCase is @@lower_case_table_names.
	LowerCase string
	// TimeZone and SystemTimeZone are @@time_zone and @@system_time_zone; UTCOffset
	// is the present difference from UTC, in seconds.
	TimeZone, SystemTimeZone string
	UTCOffset                int64
	// DefaultCollation is @@collation_server.
	DefaultCollation string
	BinlogFormat     string
	// MaxAllowedPacket and SlaveMaxAllowedPacket in bytes.
	MaxAllowedPacket, SlaveMaxAllowedPacket uint64
	// Filters are the replication filters of the server as a slave, each as
	// name=value.
	Filters []string
	// SkipErrors is @@slave_skip_errors, "" if none are skipped.
	SkipErrors string
}

// filterVariables are the filters of the default connection.
var filterVariables = []string{"replicate_do_db", "replicate_ignore_db", "replicate_do_table", "replicate_ignore_table",
	"replicate_wild_do_table", "replicate_wild_ignore_table"}

// ReadTraits reads a server's traits.
func ReadTraits(ctx context.Context, c *Conn) (Traits, error) {
	row, err := c.QueryRow(ctx, `SELECT @@GLOBAL.lower_case_table_names AS lower_case, @@GLOBAL.time_zone AS tz, @@GLOBAL.system_time_zone AS system_tz,
		TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', 'SYSTEM')) AS utc_offset,
		@@GLOBAL.collation_server AS coll, @@GLOBAL.binlog_format AS fmt,
		@@GLOBAL.max_allowed_packet AS packet, @@GLOBAL.slave_max_allowed_packet AS slave_packet, @@GLOBAL.slave_skip_errors AS skip_errors`)
	if err != nil {
		return Traits{}, wrap("read traits", err)
	}
	t := Traits{LowerCase: row.String("lower_case"), TimeZone: row.String("tz"), SystemTimeZone: row.String("system_tz"),
		UTCOffset: int64(row.Float("utc_offset")), DefaultCollation: row.String("coll"), BinlogFormat: row.String("fmt"),
		MaxAllowedPacket: row.Uint("packet"), SlaveMaxAllowedPacket: row.Uint("slave_packet")}
	if s := row.String("skip_errors"); !strings.EqualFold(s, "OFF") {
		t.SkipErrors = s
	}
	for _, name := range filterVariables {
		row, err := c.QueryRow(ctx, "SELECT @@GLOBAL."+name+" AS v")
		if err != nil {
			return t, wrap("read traits", err)
		}
		if v := row.String("v"); v != "" {
			t.Filters = append(t.Filters, name+"="+v)
		}
	}
	return t, nil
}

// CollationsUsed lists the collations in which a server keeps anything: its
// schemas, tables and columns, and its own default.
func CollationsUsed(ctx context.Context, c *Conn) ([]string, error) {
	return oneColumn(ctx, c, "list collations", `SELECT DISTINCT c FROM (
		SELECT DEFAULT_COLLATION_NAME AS c FROM information_schema.SCHEMATA WHERE SCHEMA_NAME NOT IN ('mysql','sys','information_schema','performance_schema')
		UNION SELECT TABLE_COLLATION FROM information_schema.TABLES WHERE TABLE_SCHEMA NOT IN ('mysql','sys','information_schema','performance_schema')
		UNION SELECT COLLATION_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA NOT IN ('mysql','sys','information_schema','performance_schema')
		UNION SELECT @@GLOBAL.collation_server) x WHERE c IS NOT NULL ORDER BY c`)
}

// CollationsKnown lists the collations that a server knows, by full name.
func CollationsKnown(ctx context.Context, c *Conn) ([]string, error) {
	// FULL_COLLATION_NAME: from 10.10 on COLLATION_NAME is short (uca1400_ai_ci)
	// while tables name the full one (utf8mb4_uca1400_ai_ci).
	return oneColumn(ctx, c, "list collations", "SELECT DISTINCT FULL_COLLATION_NAME AS c FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY ORDER BY c")
}

func oneColumn(ctx context.Context, c *Conn, verb, query string) ([]string, error) {
	rows, err := c.Query(ctx, query)
	if err != nil {
		return nil, wrap(verb, err)
	}
	out := make([]string, len(rows))
	for i := range rows {
		out[i] = rows[i].String("c")
	}
	return out, nil
}

// FreeBytes is what a server says about the free space of the disk with its data
// directory. known is false if it cannot be asked: only the plugin DISKS tells.
func FreeBytes(ctx context.Context, c *Conn) (free uint64, known bool, err error) {
	there, err := c.QueryRow(ctx, "SELECT 1 AS there FROM information_schema.PLUGINS WHERE PLUGIN_NAME='DISKS' AND PLUGIN_STATUS='ACTIVE'")
	if err != nil || there == nil {
		return 0, false, wrap("read free space", err)
	}
	row, err := c.QueryRow(ctx, `SELECT Available AS kib FROM information_schema.DISKS
		WHERE @@GLOBAL.datadir LIKE CONCAT(TRIM(TRAILING '/' FROM Path),'/%') ORDER BY LENGTH(Path) DESC LIMIT 1`)
	if err != nil || row == nil {
		return 0, false, wrap("read free space", err)
	}
	return row.Uint("kib") * 1024, true, nil
}

// Positions are a server's own notions of where it stands.
type Positions struct {
	Slave  gtid.Position
	Binlog gtid.Position
	State  gtid.State
}

// ReadPositions reads gtid_slave_pos, gtid_binlog_pos and gtid_binlog_state.
func ReadPositions(ctx context.Context, c *Conn) (Positions, error) {
	row, err := c.QueryRow(ctx, "SELECT @@GLOBAL.gtid_slave_pos AS slave, @@GLOBAL.gtid_binlog_pos AS log, @@GLOBAL.gtid_binlog_state AS state")
	if err != nil {
		return Positions{}, wrap("read positions", err)
	}
	var p Positions
	if p.Slave, err = gtid.ParsePosition(row.String("slave")); err != nil {
		return p, wrap("read positions", err)
	}
	if p.Binlog, err = gtid.ParsePosition(row.String("log")); err != nil {
		return p, wrap("read positions", err)
	}
	p.State, err = gtid.ParseState(row.String("state"))
	return p, wrap("read positions", err)
}

// OldestPosition is the position before the oldest transaction that a server
// still has in its binary log: what stands before it was purged. The log's
// files are named with it for messages.
func OldestPosition(ctx context.Context, c *Conn) (file string, before gtid.State, err error) {
	logs, err := c.Query(ctx, "SHOW BINARY LOGS")
	if err != nil || len(logs) == 0 {
		return "", gtid.State{}, wrap("list binary logs", err)
	}
	file = logs[0].String("Log_name")
	rows, err := c.Query(ctx, "SHOW BINLOG EVENTS IN "+QuoteString(file)+" LIMIT 5")
	if err != nil {
		return file, gtid.State{}, wrap("read the oldest binary log", err)
	}
	for i := range rows {
		if rows[i].String("Event_type") == "Gtid_list" {
			before, err = gtid.ParseState(strings.Trim(rows[i].String("Info"), "[]"))
			return file, before, wrap("read the oldest binary log", err)
		}
	}
	return file, gtid.State{}, fmt.Errorf("read the oldest binary log: %s does not begin with a list of GTIDs", file)
}
