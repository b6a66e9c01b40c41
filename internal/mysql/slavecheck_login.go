package mysql

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// LoginRow is what a server knows of one account that matters to a login.
type LoginRow struct {
	User, Host string
	// SSL is "", "ANY", "X509" or "SPECIFIED".
	SSL string
	// Replication is true if the account has REPLICATION SLAVE.
	Replication bool
	Locked      bool
}

// ReadLogins reads the accounts that a client of the given name can be matched
// with: those of that name, and anonymous ones.
func ReadLogins(ctx context.Context, c *Conn, user string) ([]LoginRow, error) {
	const replicationSlave = 1 << 19
	rows, err := c.Query(ctx, `SELECT User AS user, Host AS host, COALESCE(JSON_VALUE(Priv,'$.ssl_type'),0) AS tls,
		COALESCE(JSON_VALUE(Priv,'$.access'),0) & ? AS repl, JSON_VALUE(Priv,'$.account_locked') IN ('1','true') AS locked
		FROM mysql.global_priv WHERE User IN (?, '') AND Host<>''`, uint64(replicationSlave), user)
	if err != nil {
		return nil, wrap("read logins", err)
	}
	kinds := []string{"", "ANY", "X509", "SPECIFIED"}
	var out []LoginRow
	for i := range rows {
		r := &rows[i]
		l := LoginRow{User: r.String("user"), Host: r.String("host"), Replication: r.Uint("repl") != 0, Locked: r.Bool("locked")}
		if n := r.Uint("tls"); n < uint64(len(kinds)) {
			l.SSL = kinds[n]
		}
		out = append(out, l)
	}
	return out, nil
}

// LoginFault is why a login is refused, as far as the server's accounts tell.
type LoginFault struct {
	// Code is anonymous_shadows, host_not_allowed, ssl_required, account_locked,
	// replication_privilege_missing, or password_wrong.
	Code, Cause, Do string
}

var deniedFor = regexp.MustCompile(`Access denied for user '([^']*)'@'([^']*)'`)

// ExplainDenied names which of the causes that hide behind errors 1045 and 1597
// it is. message is the slave's or the server's own, from which the client's
// host is taken as the server sees it; encrypted and certificate say how the
// client connects. It is pure.
func ExplainDenied(message, user string, logins []LoginRow, encrypted, certificate bool) LoginFault {
	host := "localhost"
	if m := deniedFor.FindStringSubmatch(message); m != nil {
		host = m[2]
	}
	matched, ok := MatchLogin(logins, user, host)
	who := fmt.Sprintf("'%s'@'%s'", user, host)
	switch {
	case !ok:
		var hosts []string
		for _, l := range logins {
			if l.User == user {
				hosts = append(hosts, "'"+l.Host+"'")
			}
		}
		cause := fmt.Sprintf("the master sees the slave as %s, but the account %s exists for the hosts %s only", who, user, strings.Join(hosts, ", "))
		if len(hosts) == 0 {
			cause = fmt.Sprintf("there is no account %s on the master", user)
		}
		return LoginFault{"host_not_allowed", cause, fmt.Sprintf("on the master: CREATE USER for '%s'@'%s', or for '%s'@'%%'", user, host, user)}
	case matched.User == "" && user != "":
		return LoginFault{"anonymous_shadows",
			fmt.Sprintf("the anonymous account ''@'%s' of the master is matched before the account %s, because its host is more exact", matched.Host, user),
			fmt.Sprintf("on the master: DROP USER ''@'%s'", matched.Host)}
	case matched.Locked:
		return LoginFault{"account_locked", fmt.Sprintf("the account '%s'@'%s' is locked", user, matched.Host), fmt.Sprintf("on the master: ALTER USER '%s'@'%s' ACCOUNT UNLOCK", user, matched.Host)}
	case matched.SSL != "" && !encrypted, (matched.SSL == "X509" || matched.SSL == "SPECIFIED") && !certificate:
		return LoginFault{"ssl_required", fmt.Sprintf("the account '%s'@'%s' requires TLS (%s), and the slave connects without it or without a certificate", user, matched.Host, matched.SSL),
			"let the slave connect with TLS, and with a client certificate if the account asks for one"}
	case !matched.Replication:
		return LoginFault{"replication_privilege_missing", fmt.Sprintf("the account '%s'@'%s' lacks REPLICATION SLAVE", user, matched.Host),
			fmt.Sprintf("on the master: GRANT REPLICATION SLAVE ON *.* TO '%s'@'%s'", user, matched.Host)}
	}
	return LoginFault{"password_wrong", fmt.Sprintf("the password of '%s'@'%s' is not the one that repld has recorded", user, matched.Host),
		"set the password back, or remove and init the server again"}
}

// MatchLogin finds the account that a server matches a client with: the most
// exact host wins over the user's name, so that an anonymous account can shadow
// a named one. It is pure.
func MatchLogin(logins []LoginRow, user, host string) (LoginRow, bool) {
	var fit []LoginRow
	for _, l := range logins {
		if (l.User == user || l.User == "") && hostMatches(l.Host, host) {
			fit = append(fit, l)
		}
	}
	if len(fit) == 0 {
		return LoginRow{}, false
	}
	return slices.MinFunc(fit, func(a, b LoginRow) int {
		if d := exactness(b.Host) - exactness(a.Host); d != 0 {
			return d
		}
		return strings.Compare(b.User, a.User) // a name before the empty one
	}), true
}

// exactness orders hosts as the server does: by the length of what stands
// before the first wildcard, complete ones first.
func exactness(pattern string) int {
	i := strings.IndexAny(pattern, "%_")
	switch {
	case strings.Contains(pattern, "/"):
		return 128
	case i < 0:
		return 256
	}
	return min(i, 127)
}

func hostMatches(pattern, host string) bool {
	if network, mask, ok := strings.Cut(pattern, "/"); ok {
		return inNetwork(network, mask, host)
	}
	return like(strings.ToLower(pattern), strings.ToLower(host))
}

func inNetwork(network, mask, host string) bool {
	base, err1 := netip.ParseAddr(network)
	addr, err2 := netip.ParseAddr(host)
	m := net.ParseIP(mask).To4()
	if err1 != nil || err2 != nil || m == nil {
		return false
	}
	ones, _ := net.IPMask(m).Size()
	p, err := base.Prefix(ones)
	return err == nil && p.Contains(addr)
}

// like is SQL's LIKE without an escape character.
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
