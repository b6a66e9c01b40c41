package mysql

import (
	"context"
)

// Witness is something that is created on a master to be seen on a slave: a
// schema, or a table in a schema that a filter lets through.
type Witness struct {
	// Schema is created and dropped if Table is empty; otherwise Table is, in it.
	Schema, Table string
}

// String is the witness' name.
func (w Witness) String() string {
	if w.Table == "" {
		return "schema " + w.Schema
	}
	return "table " + w.Schema + "." + w.Table
}

// Create makes the witness. It fails if something of its name exists.
func (w Witness) Create(ctx context.Context, c *Conn) error {
	if w.Table == "" {
		return c.Exec(ctx, "CREATE DATABASE "+QuoteName(w.Schema))
	}
	return c.Exec(ctx, "CREATE TABLE "+QuoteName(w.Schema)+"."+QuoteName(w.Table)+" (id INT NOT NULL PRIMARY KEY) ENGINE=InnoDB")
}

// Drop removes the witness.
func (w Witness) Drop(ctx context.Context, c *Conn) error {
	if w.Table == "" {
		return c.Exec(ctx, "DROP DATABASE IF EXISTS "+QuoteName(w.Schema))
	}
	return c.Exec(ctx, "DROP TABLE IF EXISTS "+QuoteName(w.Schema)+"."+QuoteName(w.Table))
}

// There tells whether the witness is on a server.
func (w Witness) There(ctx context.Context, c *Conn) (bool, error) {
	query, args := "SELECT 1 AS there FROM information_schema.SCHEMATA WHERE SCHEMA_NAME=?", []any{w.Schema}
	if w.Table != "" {
		query, args = "SELECT 1 AS there FROM information_schema.TABLES WHERE TABLE_SCHEMA=? AND TABLE_NAME=?", []any{w.Schema, w.Table}
	}
	row, err := c.QueryRow(ctx, query, args...)
	return row != nil, err
}

// Shut closes a server for everybody but privileged accounts, and keeps its
// events from running.
func Shut(ctx context.Context, c *Conn) error {
	if err := c.Exec(ctx, "SET GLOBAL read_only=1"); err != nil {
		return wrap("make read-only", err)
	}
	row, err := c.QueryRow(ctx, "SELECT @@GLOBAL.event_scheduler AS e")
	if err != nil || row.String("e") == "DISABLED" {
		return wrap("switch events off", err)
	}
	return wrap("switch events off", c.Exec(ctx, "SET GLOBAL event_scheduler=OFF"))
}

// StopReplication stops the default connection's threads.
func StopReplication(ctx context.Context, c *Conn) error {
	return wrap("stop replication", c.Exec(ctx, "STOP SLAVE"))
}

// HostsWithoutTLS are the hosts from which an account of the name may log in
// without TLS; none is right.
func HostsWithoutTLS(ctx context.Context, c *Conn, user string) ([]string, error) {
	return column(ctx, c, "SELECT Host FROM mysql.user WHERE User=? AND Host<>'' AND ssl_type='' ORDER BY 1", user)
}
