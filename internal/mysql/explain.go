package mysql

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/fault"
)

// advice is what a user is told about one of the server's error numbers.
type advice struct{ code, what, cause, do string }

// byErrno explains the refusals that people meet when they connect. %[1]s is
// the user, %[2]s the address.
var byErrno = map[uint16]advice{
	1040: {"too_many_connections", "the server takes no more connections",
		"max_connections is used up; the server itself is alive",
		"close idle sessions or raise max_connections (SET GLOBAL max_connections), then run the command again"},
	1044: {"access_denied", "the account may not use the database",
		"user %[1]s lacks a privilege", "check SHOW GRANTS FOR the account on the server"},
	1045: {"access_denied", "the server refused the login",
		"wrong user name or password for %[1]s, or no account of that name may come from this host, or an anonymous account shadows it, or the account requires TLS",
		"check the password file and, on the server, SELECT user, host, ssl_type FROM mysql.user WHERE user IN ('%[1]s', '')"},
	1129: {"host_blocked", "the server has blocked this host",
		"too many connections were broken off (max_connect_errors)",
		"run FLUSH HOSTS on the server (mariadb-admin flush-hosts)"},
	1130: {"host_not_allowed", "the server accepts no account from this host",
		"no account matches the host that this connection comes from",
		"create the account for this host, or for '%%'"},
	1203: {"too_many_connections", "the account has too many connections",
		"max_user_connections of the account or the server is used up",
		"raise max_user_connections, or close sessions of %[1]s"},
	1226: {"resource_limit", "the account has used up a limit",
		"a MAX_… resource limit of the account", "raise the limit with ALTER USER … WITH …"},
	1275: {"access_denied", "the account's password is of the old, insecure kind",
		"the password was set with old_passwords=1", "set the password again on the server"},
	1698: {"access_denied", "the server refused the login",
		"user %[1]s may log in only through the operating system (unix_socket)",
		"use --admin-socket, or an account with a password"},
	1862: {"password_expired", "the account's password has expired",
		"the server's policy", "set a new password for %[1]s on the server"},
	4151: {"account_locked", "the account is locked", "ACCOUNT LOCK", "run ALTER USER … ACCOUNT UNLOCK on the server"},
}

// Explain turns an error of [Dial] into the four parts that a user needs. For
// TLS failures it makes a handshake of its own, within ctx, to say exactly what
// is wrong with the certificate.
func Explain(ctx context.Context, err error, t Target) *fault.Error {
	f := &fault.Error{Kind: fault.Failed, Server: t.Label(), Errno: Errno(err), Err: err, State: "nothing was changed"}
	reach, number := Classify(err)
	if a, known := byErrno[number]; known {
		f.Code, f.What = a.code, a.what
		f.Cause = Message(err) + ": " + sprintUser(a.cause, t)
		f.Do = sprintUser(a.do, t)
		return f
	}
	host, port := t.where(), ""
	if h, p, splitErr := net.SplitHostPort(t.Address); splitErr == nil && t.Socket == "" {
		host, port = h, p
	}
	var dns *net.DNSError
	switch {
	case number != 0:
		f.Code, f.What, f.Cause = "server_error", "the server refused the connection", Message(err)
		f.Do = "look the number up and put it right on the server"
	case errors.Is(err, errNotMySQL):
		f.Code, f.What, f.Cause = "not_mysql", "no MySQL or MariaDB server answers at "+t.where(), rootCause(err)
		f.Do = "check the address and the port"
	case isTLS(err):
		explainTLS(ctx, f, err, t)
	case errors.As(err, &dns):
		f.Code, f.What, f.Cause = "unknown_host", "the host name "+host+" is not known here", dns.Err
		f.Do = "check the spelling, or give an IP address"
	case reach == health.ReachRefused:
		f.Code, f.What = "unreachable", "nobody listens at "+t.where()
		f.Cause = "the connection was refused: the server is down, listens on another port, or only on another interface (bind-address, skip-networking)"
		f.Do = "start the server, or check port " + port + " and bind-address in its configuration"
	case reach == health.ReachTimeout:
		f.Code, f.What = "timeout", "no answer from "+t.where()+" in time"
		f.Cause = "a firewall drops the connection, the host is down, the server hangs, or what listens there waits for the client to speak first and so is no MySQL server"
		f.Do = "check the address, the firewall and the server"
	case reach == health.ReachUnreachable:
		f.Code, f.What, f.Cause = "unreachable", "there is no way to "+t.where(), rootCause(err)
		f.Do = "check the address and the network"
	case reach == health.ReachBroken:
		f.Code, f.What, f.Cause = "broken", "the connection to "+t.where()+" was closed before the login was done", rootCause(err)
		f.Do = "check that a MySQL or MariaDB server listens there, and look into its error log"
	default:
		f.Code, f.What, f.Cause = "connect_failed", "the login did not succeed", rootCause(err)
		f.Do = "check the account and the server's error log"
	}
	return f
}

// rootCause is the innermost text, without the words that name the server.
func rootCause(err error) string {
	var c *ConnectError
	if errors.As(err, &c) {
		return c.Err.Error()
	}
	return err.Error()
}

func explainTLS(ctx context.Context, f *fault.Error, err error, t Target) {
	f.Code, f.What, f.Cause = "tls", "the encrypted connection could not be made", rootCause(err)
	f.Do = "check the server's certificate (ssl_cert, ssl_ca) and the authority given with --ssl-ca"
	if t.TLS == nil {
		return
	}
	var bad *TLSError
	if errors.As(VerifyTLS(ctx, t.Address, t.TLS.RootCAs, t.TLS.ServerName), &bad) {
		f.Code, f.Cause, f.Do = bad.Code, bad.Text, bad.Do
	}
}

// sprintUser puts the user and the address into a text of byErrno.
func sprintUser(text string, t Target) string {
	return strings.NewReplacer("%[1]s", t.User, "%[2]s", t.where(), "%%", "%").Replace(text)
}
