package mysql

import (
	"context"
	"slices"
	"strings"
)

// The names of repld's accounts on the servers: the daemon's own, and the one
// by which slaves fetch.
const (
	UserRepld       = "repld"
	UserReplication = "repld_replication"
)

// allAdmin is what an administrator needs besides being able to pass on the
// privileges of repld's account: to create accounts, change settings, and write
// while the server is read-only.
var allAdmin = []string{"CREATE USER", "RELOAD", "SUPER", "READ_ONLY ADMIN", "CREATE", "DROP", "INSERT", "UPDATE", "DELETE", "SELECT"}

// MissingForAdmin lists what SHOW GRANTS lacks of an administrator's
// privileges, none if it suffices. It is pure.
func MissingForAdmin(grants []string) []string {
	have := map[string]bool{}
	for _, line := range grants {
		upper := strings.ToUpper(line)
		privileges, rest, ok := strings.Cut(strings.TrimPrefix(upper, "GRANT "), " ON *.* ")
		if !ok {
			continue
		}
		if strings.Contains(rest, "WITH GRANT OPTION") {
			have["GRANT OPTION"] = true
		}
		for word := range strings.SplitSeq(privileges, ",") {
			have[strings.TrimSpace(word)] = true
		}
	}
	if have["ALL PRIVILEGES"] {
		if have["GRANT OPTION"] {
			return nil
		}
		return []string{"GRANT OPTION"}
	}
	var missing []string
	for _, p := range append(slices.Clone(allAdmin), "GRANT OPTION") {
		if !have[p] {
			missing = append(missing, p)
		}
	}
	return missing
}

// EnsureAccount makes the account exist with exactly this password, TLS
// required, and the grants; it is written to the binary log, so that every
// later master has it. It is idempotent.
func EnsureAccount(ctx context.Context, c *Conn, user, host string, password Secret, grants []Grant) error {
	account := QuoteAccount(user, host)
	if err := c.Exec(ctx, "CREATE USER IF NOT EXISTS "+account+" IDENTIFIED BY ? REQUIRE SSL", password); err != nil {
		return err
	}
	// The account may be left from an interrupted run, with another password.
	if err := c.Exec(ctx, "ALTER USER "+account+" IDENTIFIED BY ? REQUIRE SSL", password); err != nil {
		return err
	}
	for _, g := range grants {
		if err := c.Exec(ctx, "GRANT "+strings.Join(g.Privileges, ", ")+" ON "+g.On+" TO "+account); err != nil {
			return err
		}
	}
	return nil
}

// hostsOfAccounts are the hosts that a name may have accounts for: those that
// repld makes them for, and, if the login may look, all others.
func hostsOfAccounts(ctx context.Context, c *Conn, user string) ([]string, error) {
	hostname, err := GlobalVariable(ctx, c, "hostname")
	if err != nil {
		return nil, err
	}
	hosts := []string{"%", "localhost", hostname}
	more, err := column(ctx, c, "SELECT Host FROM mysql.user WHERE User=? AND Host<>''", user)
	if err != nil && Errno(err) == 0 {
		return nil, err
	}
	for _, h := range more {
		if !slices.Contains(hosts, h) {
			hosts = append(hosts, h)
		}
	}
	return hosts, nil
}

// FarewellGrants are what repld's account needs besides [DaemonGrants] to take
// itself away again without an administrator (remove --purge-config).
func FarewellGrants() []Grant {
	return []Grant{
		{[]string{"CREATE USER"}, "*.*", "drop repld's own accounts when a server is removed"},
		{[]string{"DROP"}, "repld.*", "drop repld's own schema when a server is removed"},
	}
}

// DropAccounts removes repld's schema and all accounts of repld's names, the
// account that is logged in last. Nothing of it is written to the binary log:
// on a slave it would be a transaction of its own.
func DropAccounts(ctx context.Context, c *Conn) error {
	if err := c.Exec(ctx, "SET SESSION sql_log_bin=0"); err != nil {
		return err
	}
	if err := c.Exec(ctx, "DROP DATABASE IF EXISTS repld"); err != nil {
		return err
	}
	var accounts []string
	for _, user := range []string{UserReplication, UserCopy, UserRepld} {
		hosts, err := hostsOfAccounts(ctx, c, user)
		if err != nil {
			return err
		}
		for _, h := range hosts {
			accounts = append(accounts, QuoteAccount(user, h))
		}
	}
	// In one statement: the account that runs it is among them.
	return c.Exec(ctx, "DROP USER IF EXISTS "+strings.Join(accounts, ", "))
}

// LoginProblem says why a user who comes from a host is, or would be, refused
// although the password is right; "" if nothing stands in the way. All of these
// causes look alike from outside: error 1045. It is pure: logins and grants are
// the server's own rows, tls tells whether the connection is encrypted.
func LoginProblem(logins []Login, grants []string, user, fromHost string, tls, replication bool) string {
	match := matchLogin(logins, user, fromHost)
	switch {
	case match == nil, !slices.ContainsFunc(logins, func(l Login) bool { return l.User == user && hostMatches(l.Host, fromHost) }):
		return "no account '" + user + "' may come from " + fromHost + hostsOf(logins, user)
	case match.User != user:
		return "the anonymous account ''@'" + match.Host + "' is matched before '" + user + "'@'%': DROP USER ''@'" + match.Host + "'"
	case match.TLS != "" && !tls:
		return "the account '" + user + "'@'" + match.Host + "' requires TLS, and the connection has none"
	case replication && !slices.ContainsFunc(grants, func(g string) bool {
		g = strings.ToUpper(g)
		return strings.Contains(g, "REPLICATION SLAVE") || strings.Contains(g, "ALL PRIVILEGES ON *.*")
	}):
		return "the account '" + user + "'@'" + match.Host + "' lacks REPLICATION SLAVE"
	}
	return ""
}

// matchLogin finds the account that the server picks: the most specific host
// first, then a name before the anonymous one.
func matchLogin(logins []Login, user, host string) *Login {
	var best *Login
	for i := range logins {
		l := &logins[i]
		if l.User != "" && l.User != user || !hostMatches(l.Host, host) {
			continue
		}
		if best == nil || specific(l.Host) > specific(best.Host) || specific(l.Host) == specific(best.Host) && best.User == "" {
			best = l
		}
	}
	return best
}

// specific ranks a host pattern: a literal one before one with a wildcard, and
// a longer beginning without one before a shorter.
func specific(pattern string) int {
	if i := strings.IndexAny(pattern, "%_"); i >= 0 {
		return i
	}
	return 1 << 16
}

// hostMatches is LIKE on host names, where localhost and the loopback addresses
// are one.
func hostMatches(pattern, host string) bool {
	if pattern == "localhost" && (host == "127.0.0.1" || host == "::1") {
		return true
	}
	return like(strings.ToLower(pattern), strings.ToLower(host))
}

func like(pattern, s string) bool {
	if pattern == "" {
		return s == ""
	}
	switch pattern[0] {
	case '%':
		for i := 0; i <= len(s); i++ {
			if like(pattern[1:], s[i:]) {
				return true
			}
		}
		return false
	case '_':
		return s != "" && like(pattern[1:], s[1:])
	}
	return s != "" && s[0] == pattern[0] && like(pattern[1:], s[1:])
}

func hostsOf(logins []Login, user string) string {
	var hosts []string
	for _, l := range logins {
		if l.User == user {
			hosts = append(hosts, "'"+l.Host+"'")
		}
	}
	if len(hosts) == 0 {
		return ""
	}
	return " (it may come from " + strings.Join(hosts, ", ") + ")"
}
