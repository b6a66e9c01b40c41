package mysql

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
)

// grantTables are the tables in which MariaDB keeps accounts, roles and grants,
// by the column that names the account's user and the one that names its host.
// Their rows are copied as they are: statements (SHOW CREATE USER, SHOW GRANTS)
// would fail on an authentication plugin that is not loaded yet or on a grant for
// an object that no longer exists, and lose who administers a role.
var grantTables = []string{"global_priv", "db", "tables_priv", "columns_priv", "procs_priv", "proxies_priv", "roles_mapping"}

// Accounts is a copy of all accounts, roles and grants of a server.
type Accounts struct {
	tables []grantTable
}

type grantTable struct {
	name    string
	columns []string
	rows    []Row
}

// ReadAccounts reads all accounts, roles and grants of a server. They are not
// kept in transactional tables: read them before and after a snapshot and
// compare their Sums to know that they belong to it.
func ReadAccounts(ctx context.Context, c *Conn) (Accounts, error) {
	var out Accounts
	for _, name := range grantTables {
		cols, err := c.Query(ctx, `SELECT COLUMN_NAME AS name FROM information_schema.COLUMNS
			WHERE TABLE_SCHEMA='mysql' AND TABLE_NAME=? ORDER BY ORDINAL_POSITION`, name)
		if err != nil {
			return out, fmt.Errorf("read accounts: %w", err)
		}
		t := grantTable{name: name}
		var quoted []string
		for i := range cols {
			// Set by the server itself with each write.
			if column := cols[i].String("name"); column != "Timestamp" {
				t.columns = append(t.columns, column)
				quoted = append(quoted, QuoteName(column))
			}
		}
		if len(quoted) == 0 {
			return out, fmt.Errorf("read accounts: mysql.%s: no such table; is this MariaDB 10.4 or later?", name)
		}
		t.rows, err = c.Query(ctx, "SELECT "+strings.Join(quoted, ",")+" FROM mysql."+QuoteName(name)+" ORDER BY "+strings.Join(quoted, ","))
		if err != nil {
			return out, fmt.Errorf("read accounts: %w", err)
		}
		out.tables = append(out.tables, t)
	}
	return out, nil
}

// Sum is a digest of all of it.
func (a Accounts) Sum() string {
	h := sha256.New()
	for _, t := range a.tables {
		fmt.Fprintf(h, "%s %d\n", t.name, len(t.rows))
		for i := range t.rows {
			for _, column := range t.columns {
				fmt.Fprintf(h, "%q ", t.rows[i].String(column))
			}
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// WriteAccounts makes a server's accounts those of another one, but for the
// accounts that keep names (both the account and its grants stay as they are,
// only roles granted to it on the other server are added) and those that the
// other server does not have, which stay too. Nothing is written to the binary
// log. It returns the names of the accounts that were kept although the other
// server has them. Running it again gives the same result.
func WriteAccounts(ctx context.Context, c *Conn, from Accounts, keep func(user, host string) bool) ([]AccountName, error) {
	if err := c.Exec(ctx, "SET SESSION sql_log_bin=0"); err != nil {
		return nil, fmt.Errorf("write accounts: %w", err)
	}
	var kept []AccountName
	for _, t := range from.tables {
		have, err := columnsOf(ctx, c, t.name)
		if err != nil {
			return nil, err
		}
		if t.name == "global_priv" {
			if kept, err = clearAccounts(ctx, c, t.rows, keep); err != nil {
				return nil, err
			}
		}
		for i := range t.rows {
			r := &t.rows[i]
			verb := "REPLACE"
			if keep(r.String("User"), r.String("Host")) {
				if t.name != "roles_mapping" {
					continue
				}
				verb = "INSERT IGNORE"
			}
			if err := writeRow(ctx, c, verb, t, r, have); err != nil {
				return nil, err
			}
		}
	}
	if err := c.Exec(ctx, "FLUSH PRIVILEGES"); err != nil {
		return nil, fmt.Errorf("write accounts: %w", err)
	}
	return kept, nil
}

// clearAccounts removes what a server has of the accounts that are about to be
// written, so that no grant is left of an older meaning of a name.
func clearAccounts(ctx context.Context, c *Conn, rows []Row, keep func(user, host string) bool) ([]AccountName, error) {
	var kept []AccountName
	for i := range rows {
		user, host := rows[i].String("User"), rows[i].String("Host")
		if keep(user, host) {
			kept = append(kept, AccountName{User: user, Host: host})
			continue
		}
		// The row of the account itself is replaced in one statement: the account in
		// use may be among them, and must be able to log in after a crash in between.
		for _, table := range grantTables[1:] {
			if err := c.Exec(ctx, "DELETE FROM mysql."+QuoteName(table)+" WHERE User=? AND Host=?", user, host); err != nil {
				return nil, fmt.Errorf("write accounts: %w", err)
			}
		}
	}
	return kept, nil
}

func writeRow(ctx context.Context, c *Conn, verb string, t grantTable, r *Row, have []string) error {
	var names, marks []string
	var values []any
	for _, column := range t.columns {
		// An older slave is refused; a newer one may have dropped a column.
		if !slices.Contains(have, column) {
			continue
		}
		names, marks = append(names, QuoteName(column)), append(marks, "?")
		if r.Null(column) {
			values = append(values, nil)
		} else {
			values = append(values, Secret(r.String(column)))
		}
	}
	statement := verb + " INTO mysql." + QuoteName(t.name) + " (" + strings.Join(names, ",") + ") VALUES (" + strings.Join(marks, ",") + ")"
	if err := c.Exec(ctx, statement, values...); err != nil {
		return fmt.Errorf("write accounts: %w", err)
	}
	return nil
}

func columnsOf(ctx context.Context, c *Conn, table string) ([]string, error) {
	rows, err := c.Query(ctx, "SELECT COLUMN_NAME AS name FROM information_schema.COLUMNS WHERE TABLE_SCHEMA='mysql' AND TABLE_NAME=?", table)
	if err != nil {
		return nil, fmt.Errorf("write accounts: %w", err)
	}
	out := make([]string, len(rows))
	for i := range rows {
		out[i] = rows[i].String("name")
	}
	return out, nil
}
