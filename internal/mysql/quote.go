package mysql

import "strings"

// QuoteName quotes an identifier: a schema, a table, a column. It is the only
// place where a name becomes part of a statement. A name cannot hold a NUL
// byte; one is left out.
func QuoteName(name string) string {
	name = strings.ReplaceAll(name, "\x00", "")
	return "`" + strings.ReplaceAll(name, "`", "``") + "`"
}

// quoter escapes what ends or changes a quoted string under the sql_mode of
// repld's own sessions (see sessionSettings).
var quoter = strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\x00", `\0`, "\n", `\n`, "\r", `\r`, "\x1a", `\Z`)

// QuoteString quotes a value where it cannot be an argument: in a statement
// that is shown, or kept as text. Everywhere else pass it to [Conn.Exec].
func QuoteString(value string) string { return "'" + quoter.Replace(value) + "'" }

// QuoteAccount is 'user'@'host'.
func QuoteAccount(user, host string) string { return QuoteString(user) + "@" + QuoteString(host) }
