package mysql

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Print is a fingerprint of what a consistent snapshot does not cover: views,
// routines, triggers, events, accounts and the rows of tables without
// transactions. If it is the same before and after a copy, the copy holds all of
// it as it was at the snapshot; otherwise replication would later repeat, or
// miss, a change.
type Print map[string]string

// tableKey marks a key whose presence alone matters: a table's rows are covered
// by the snapshot, and the server itself refuses to read a table through a
// snapshot that is older than the table's definition (error 1412).
const tableKey = "table "

// Changed lists, in words, what differs. A table that was added is no
// difference: its creation and its rows arrive by replication.
func (p Print) Changed(later Print) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(p)) {
		switch now, still := later[key]; {
		case !still:
			out = append(out, key+" was dropped or renamed")
		case now != p[key]:
			out = append(out, key+" was changed")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(later)) {
		if _, before := p[key]; !before && !strings.HasPrefix(key, tableKey) {
			out = append(out, key+" was created")
		}
	}
	return out
}

// printQueries give the parts of a fingerprint as kind, name and sum; each ?
// stands for the list of schemas.
var printQueries = []string{
	`SELECT 'table ' AS kind, CONCAT(TABLE_SCHEMA,'.',TABLE_NAME) AS name, '' AS sum
		FROM information_schema.TABLES WHERE TABLE_TYPE<>'VIEW' AND TABLE_SCHEMA IN (?)`,
	`SELECT 'view ' AS kind, CONCAT(TABLE_SCHEMA,'.',TABLE_NAME) AS name,
		MD5(CONCAT_WS('|',VIEW_DEFINITION,CHECK_OPTION,DEFINER,SECURITY_TYPE,ALGORITHM)) AS sum
		FROM information_schema.VIEWS WHERE TABLE_SCHEMA IN (?)`,
	`SELECT CONCAT(LOWER(type),' ') AS kind, CONCAT(db,'.',name) AS name,
		MD5(CONCAT_WS('|',param_list,returns,body,definer,security_type,sql_mode,modified,comment)) AS sum
		FROM mysql.proc WHERE db IN (?)`,
	`SELECT 'trigger ' AS kind, CONCAT(TRIGGER_SCHEMA,'.',TRIGGER_NAME) AS name,
		MD5(CONCAT_WS('|',EVENT_MANIPULATION,EVENT_OBJECT_TABLE,ACTION_ORDER,ACTION_STATEMENT,ACTION_TIMING,CREATED,DEFINER)) AS sum
		FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA IN (?)`,
	`SELECT 'event ' AS kind, CONCAT(EVENT_SCHEMA,'.',EVENT_NAME) AS name,
		MD5(CONCAT_WS('|',DEFINER,EVENT_DEFINITION,EVENT_TYPE,EXECUTE_AT,INTERVAL_VALUE,INTERVAL_FIELD,STARTS,ENDS,STATUS,ON_COMPLETION,LAST_ALTERED)) AS sum
		FROM information_schema.EVENTS WHERE EVENT_SCHEMA IN (?)`,
	`SELECT 'schema ' AS kind, SCHEMA_NAME AS name,
		MD5(CONCAT_WS('|',DEFAULT_CHARACTER_SET_NAME,DEFAULT_COLLATION_NAME,SCHEMA_COMMENT)) AS sum
		FROM information_schema.SCHEMATA WHERE SCHEMA_NAME IN (?)`,
}

// TakePrint takes the fingerprint of schemas and of the accounts, which it also
// returns.
func TakePrint(ctx context.Context, c *Conn, schemas []string) (Print, Accounts, error) {
	p := Print{}
	list := make([]string, len(schemas))
	for i, s := range schemas {
		list[i] = QuoteString(s)
	}
	for _, q := range printQueries {
		rows, err := c.Query(ctx, strings.Replace(q, "?", strings.Join(list, ","), 1))
		if err != nil {
			return nil, Accounts{}, fmt.Errorf("fingerprint: %w", err)
		}
		for i := range rows {
			p[rows[i].String("kind")+rows[i].String("name")] = rows[i].String("sum")
		}
	}
	if err := printPlainTables(ctx, c, p, strings.Join(list, ",")); err != nil {
		return nil, Accounts{}, err
	}
	accounts, err := ReadAccounts(ctx, c)
	if err != nil {
		return nil, Accounts{}, err
	}
	p["accounts and grants"] = accounts.Sum()
	return p, accounts, nil
}

// printPlainTables adds a checksum of each table whose engine keeps rows on this
// server and has no transactions.
func printPlainTables(ctx context.Context, c *Conn, p Print, list string) error {
	rows, err := c.Query(ctx, `SELECT TABLE_SCHEMA AS db, TABLE_NAME AS name FROM information_schema.TABLES
		WHERE TABLE_TYPE='BASE TABLE' AND ENGINE IN ('Aria','MyISAM','MEMORY','CSV','ARCHIVE') AND TABLE_SCHEMA IN (`+list+`)`)
	if err != nil {
		return fmt.Errorf("fingerprint: %w", err)
	}
	for i := range rows {
		db, name := rows[i].String("db"), rows[i].String("name")
		sum, err := c.QueryRow(ctx, "CHECKSUM TABLE "+QuoteName(db)+"."+QuoteName(name))
		if err != nil {
			return fmt.Errorf("fingerprint: %w", err)
		}
		if sum != nil {
			p["rows of "+db+"."+name+" (an engine without transactions)"] = sum.String("Checksum")
		}
	}
	return nil
}
