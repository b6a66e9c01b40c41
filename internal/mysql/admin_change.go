package mysql

import (
	"context"
	"fmt"
	"regexp"
	"strconv"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

var variableForm = regexp.MustCompile(`^[a-z0-9_]+$`)

// SetGlobal sets a global variable of the running server. A value that is a
// number is sent as one, for the server takes no other for a numeric variable.
func SetGlobal(ctx context.Context, c *Conn, name, value string) error {
	if !variableForm.MatchString(name) {
		return fmt.Errorf("%s: %q is no variable's name", c.target.Label(), name)
	}
	if n, err := strconv.ParseUint(value, 10, 64); err == nil {
		return c.Exec(ctx, "SET GLOBAL "+name+" = "+strconv.FormatUint(n, 10))
	}
	return c.Exec(ctx, "SET GLOBAL "+name+" = ?", value)
}

// GlobalVariable reads one global variable.
func GlobalVariable(ctx context.Context, c *Conn, name string) (string, error) {
	row, err := c.QueryRow(ctx, "SHOW GLOBAL VARIABLES WHERE Variable_name = ?", name)
	if err != nil || row == nil {
		return "", err
	}
	return row.String("Value"), nil
}

// FlushSSL makes the server read its certificate files again.
func FlushSSL(ctx context.Context, c *Conn) error { return c.Exec(ctx, "FLUSH SSL") }

// IdentityOf asks a server who it is, without more.
func IdentityOf(ctx context.Context, c *Conn) (topology.Identity, error) {
	f, err := ReadFacts(ctx, c)
	return f.Identity, err
}

// BinlogPos is where the server's binary log stands.
func BinlogPos(ctx context.Context, c *Conn) (gtid.Position, error) {
	row, err := c.QueryRow(ctx, "SELECT @@GLOBAL.gtid_binlog_pos p")
	if err != nil || row == nil {
		return gtid.Position{}, err
	}
	return gtid.ParsePosition(row.String("p"))
}

// SlavePos is what the server has applied as a slave.
func SlavePos(ctx context.Context, c *Conn) (gtid.Position, error) {
	row, err := c.QueryRow(ctx, "SELECT @@GLOBAL.gtid_slave_pos AS p")
	if err != nil || row == nil {
		return gtid.Position{}, err
	}
	return gtid.ParsePosition(row.String("p"))
}

// MakeProbe makes a table of repld's own for [Probe]; DropProbe removes it.
func MakeProbe(ctx context.Context, c *Conn) error {
	return c.Exec(ctx, "CREATE TABLE IF NOT EXISTS repld.probe (token VARCHAR(64) NOT NULL PRIMARY KEY) ENGINE=InnoDB")
}

// Probe writes one row and says by which transaction.
func Probe(ctx context.Context, c *Conn, token string) (gtid.GTID, error) {
	if err := c.Exec(ctx, "INSERT INTO repld.probe (token) VALUES (?)", token); err != nil {
		return gtid.GTID{}, err
	}
	row, err := c.QueryRow(ctx, "SELECT @@SESSION.last_gtid AS g")
	if err != nil || row == nil {
		return gtid.GTID{}, err
	}
	return gtid.Parse(row.String("g"))
}

// DropProbe removes what [MakeProbe] made.
func DropProbe(ctx context.Context, c *Conn) error {
	return c.Exec(ctx, "DROP TABLE IF EXISTS repld.probe")
}

// OpenBy makes a server writable on an administrator's connection, by the same
// self-expiring statement as [Server.Open].
func OpenBy(ctx context.Context, c *Conn) error {
	return open(ctx, &effectConn{Conn: c}, maxOpening, func() error { return nil })
}

// AnnounceBy makes repld's schema and writes the row of repld.cluster on an
// administrator's connection.
func AnnounceBy(ctx context.Context, c *Conn, row failover.ClusterRow) error {
	for _, statement := range Schema() {
		if err := c.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return announce(ctx, c, row)
}

// ReadFile reads a file on the server's host, as the server sees it: nil if it
// cannot (no such file, not readable, secure_file_priv).
func ReadFile(ctx context.Context, c *Conn, path string) ([]byte, error) {
	row, err := c.QueryRow(ctx, "SELECT LOAD_FILE(?) f", path)
	if err != nil || row == nil || row.Null("f") {
		return nil, err
	}
	return []byte(row.String("f")), nil
}

// HasSession tells whether a connection id is one of the server's: the proof
// that an address leads to the server that is spoken to by a socket.
func HasSession(ctx context.Context, c *Conn, id uint64) (bool, error) {
	row, err := c.QueryRow(ctx, "SELECT COUNT(*) n FROM information_schema.PROCESSLIST WHERE ID = ?", id)
	return row != nil && row.Uint("n") == 1, err
}
