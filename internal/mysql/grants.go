package mysql

import (
	"fmt"
	"strings"
)

// Grant is a set of privileges with the reason for it.
type Grant struct {
	Privileges []string
	// On is what they are granted on: *.* or a schema's tables.
	On  string
	Why string
}

// DaemonGrants are the fewest privileges with which repld's own account can
// do all that this package and the binlog stream do on MariaDB 10.11. The
// account is created with REQUIRE SSL.
func DaemonGrants() []Grant {
	return []Grant{
		{[]string{"PROCESS"}, "*.*", "see which sessions wait for an acknowledgement or must be ended"},
		{[]string{"CONNECTION ADMIN"}, "*.*", "end them, and connect when max_connections is used up"},
		{[]string{"READ_ONLY ADMIN"}, "*.*", "set read_only: open and fence"},
		{[]string{"REPLICATION SLAVE ADMIN"}, "*.*", "start, stop and re-point slaves, gtid_slave_pos, semi-sync as a slave"},
		{[]string{"REPLICATION MASTER ADMIN"}, "*.*", "semi-sync as a master"},
		{[]string{"SLAVE MONITOR"}, "*.*", "slave status and relay log positions"},
		{[]string{"BINLOG MONITOR"}, "*.*", "find a former master's extra transactions in its binary log"},
		{[]string{"REPLICATION SLAVE"}, "*.*", "the binary log stream, the second witness of a master's life"},
		{[]string{"RELOAD"}, "*.*", "RESET SLAVE ALL asks for it"},
		{[]string{"SUPER"}, "*.*", "switch the event scheduler off at fencing: no lesser privilege can"},
		{[]string{"EVENT"}, "*.*", "see which events run, and let them run on a new master"},
		{[]string{"SET USER"}, "*.*", "keep their definers"},
		{[]string{"SELECT", "INSERT", "UPDATE"}, "repld.*", "the row by which a cluster is recognised"},
	}
}

// ReplicationGrants are what a slave's login at its source needs. The account
// is created with REQUIRE SSL.
func ReplicationGrants() []Grant {
	return []Grant{{[]string{"REPLICATION SLAVE"}, "*.*", "read the binary log"}}
}

// Statement is a statement with its arguments, of which a [Secret] is never shown.
type Statement struct {
	SQL  string
	Args []any
}

// AccountStatements create an account that may come from any host, by TLS only,
// or put an existing one right: its password, the requirement and its
// privileges.
func AccountStatements(account Credentials, grants []Grant) []Statement {
	name := QuoteAccount(account.User, "%")
	out := []Statement{
		{SQL: "CREATE USER IF NOT EXISTS " + name + " IDENTIFIED BY ? REQUIRE SSL", Args: []any{Secret(account.Password)}},
		{SQL: "ALTER USER " + name + " IDENTIFIED BY ? REQUIRE SSL", Args: []any{Secret(account.Password)}},
	}
	for _, g := range grants {
		out = append(out, Statement{SQL: fmt.Sprintf("GRANT %s ON %s TO %s", strings.Join(g.Privileges, ", "), g.On, name)})
	}
	return out
}
