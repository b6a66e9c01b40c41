package mysql

// UserCopy is the account that is used only while data is copied from one
// server to another, so that the daemon's own account, which is logged in all
// the time, can neither read nor write anybody's data.
const UserCopy = "repld_copy"

// CopyGrants are the fewest privileges with which a server's data and accounts
// can be read for a copy and replaced by one. The account is created with
// REQUIRE SSL.
func CopyGrants() []Grant {
	return []Grant{
		{[]string{"SELECT", "SHOW VIEW", "TRIGGER", "EVENT", "SHOW DATABASES", "PROCESS"}, "*.*", "read schemas with all that belongs to them, and the accounts"},
		{[]string{"BINLOG MONITOR", "REPLICATION SLAVE", "SLAVE MONITOR"}, "*.*", "know the copy's position; save a former master's binary log"},
		{[]string{"CREATE", "DROP", "ALTER", "INDEX", "REFERENCES", "INSERT", "UPDATE", "DELETE", "LOCK TABLES"}, "*.*", "load schemas and accounts; make and remove the probe database"},
		{[]string{"CREATE VIEW", "CREATE ROUTINE", "ALTER ROUTINE", "EXECUTE"}, "*.*", "load views and routines"},
		{[]string{"SET USER", "BINLOG ADMIN", "READ_ONLY ADMIN", "REPLICATION SLAVE ADMIN", "SUPER", "RELOAD"}, "*.*", "keep definers; write outside the binary log on a read-only server; set the position; keep events from running"},
	}
}
