package mysql

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strings"
	"syscall"

	sqldriver "github.com/go-sql-driver/mysql"

	"github.com/repld/repld/health"
)

// ConnectError is a connection that could not be made. It never holds a secret.
type ConnectError struct {
	Server string
	// Where is the address or the socket's path.
	Where string
	Err   error
}

// Error names the server, where it was looked for, and what was met.
func (e *ConnectError) Error() string {
	if e.Server == e.Where {
		return fmt.Sprintf("connect to %s: %v", e.Server, e.Err)
	}
	return fmt.Sprintf("connect to %s at %s: %v", e.Server, e.Where, e.Err)
}

// Unwrap gives the error below.
func (e *ConnectError) Unwrap() error { return e.Err }

// StatementError is a statement that failed.
type StatementError struct {
	Server string
	// Statement is its first words, never a value.
	Statement string
	Err       error
}

// Error names the server, the statement and what the server said.
func (e *StatementError) Error() string {
	return fmt.Sprintf("%s: %s: %v", e.Server, e.Statement, e.Err)
}

// Unwrap gives the error below.
func (e *StatementError) Unwrap() error { return e.Err }

// errNotMySQL is what greets like no MySQL or MariaDB server.
var errNotMySQL = errors.New("not a MySQL or MariaDB server")

// Errno is the server's own error number, 0 if the error is not the server's.
func Errno(err error) uint16 {
	var e *sqldriver.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

// Message is the server's own words, "" if the error is not the server's.
func Message(err error) string {
	var e *sqldriver.MySQLError
	if errors.As(err, &e) {
		return e.Message
	}
	return ""
}

// Classify says what an error of [Dial], [Conn.Exec] or [Conn.Query] means for
// the question whether the server is there. An error packet of any kind, and a
// TLS handshake that failed on a certificate, come from a server that lives;
// a reset or an end of an open connection does not.
func Classify(err error) (health.Reach, uint16) {
	var (
		number  = Errno(err)
		dns     *net.DNSError
		address *net.AddrError
	)
	switch {
	case err == nil:
		return health.ReachOK, 0
	case number != 0:
		return health.ReachUnkind, number
	case errors.Is(err, context.DeadlineExceeded):
		return health.ReachTimeout, 0
	case errors.Is(err, context.Canceled):
		return health.ReachUnknown, 0
	case errors.Is(err, errNotMySQL):
		return health.ReachForeign, 0
	case isTLS(err):
		return health.ReachUnkind, 0
	case errors.As(err, &dns), errors.As(err, &address):
		return health.ReachUnreachable, 0
	case errors.Is(err, syscall.ECONNREFUSED):
		return health.ReachRefused, 0
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH),
		errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENETDOWN), errors.Is(err, syscall.EHOSTDOWN):
		return health.ReachUnreachable, 0
	case isBroken(err):
		return health.ReachBroken, 0
	}
	var slow net.Error
	if errors.As(err, &slow) && slow.Timeout() {
		return health.ReachTimeout, 0
	}
	return health.ReachUnkind, 0
}

// isBroken tells whether an open connection ended, in the driver's words or the
// system's.
func isBroken(err error) bool {
	return errors.Is(err, sqldriver.ErrInvalidConn) || errors.Is(err, driver.ErrBadConn) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNABORTED)
}

func isTLS(err error) bool {
	var (
		verify *tls.CertificateVerificationError
		alert  *net.OpError
		record tls.RecordHeaderError
		name   x509.HostnameError
		bad    x509.CertificateInvalidError
		ca     x509.UnknownAuthorityError
	)
	return errors.Is(err, sqldriver.ErrNoTLS) || errors.As(err, &verify) || errors.As(err, &record) ||
		(errors.As(err, &alert) && (alert.Op == "remote error" || alert.Op == "local error")) ||
		errors.As(err, &name) || errors.As(err, &bad) || errors.As(err, &ca)
}

// near is where the server begins to quote a statement that it cannot parse.
var near = regexp.MustCompile(`(?s) near '.*`)

// redact takes the quotation of a statement out of the server's message if a
// secret was part of the statement: error 1064 repeats the text.
func redact(err error, secret bool) error {
	var e *sqldriver.MySQLError
	if !secret || !errors.As(err, &e) || !strings.Contains(e.Message, " near '") {
		return err
	}
	clean := *e
	clean.Message = near.ReplaceAllString(e.Message, " near … (not shown: the statement holds a secret)")
	return &clean
}
