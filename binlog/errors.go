package binlog

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/repld/repld/internal/fault"
)

// What can be wrong with a dump. Every error of this package that concerns a
// server is a *fault.Error that wraps one of these where it applies, and the
// original error: errors.Is also finds syscall.ECONNREFUSED, io.EOF,
// context.Canceled and the like.
var (
	// ErrClosed: [Stream.Close] or the context ended it.
	ErrClosed = errors.New("the stream was closed")
	// ErrRefused: nobody listens at the address.
	ErrRefused = errors.New("connection refused")
	// ErrBroken: an open connection was closed or reset by the other side.
	ErrBroken = errors.New("connection broken by the server")
	// ErrSilent: nothing came within DialTimeout or Silence.
	ErrSilent = errors.New("no answer in time")
	// ErrNotServer: what answered is not a MariaDB server.
	ErrNotServer = errors.New("not a MariaDB server")
	// ErrForeign: another server than the recorded one answered.
	ErrForeign = errors.New("another server answers at this address")
	// ErrAccess: wrong user or password, no TLS where the account wants it, or no
	// REPLICATION SLAVE privilege.
	ErrAccess = errors.New("access denied")
	// ErrTLS: the TLS handshake failed, or the server has no TLS.
	ErrTLS = errors.New("TLS failed")
	// ErrServerIDClash: another dump registered with the same server_id.
	ErrServerIDClash = errors.New("another slave uses the same server_id")
	// ErrBinlogOff: the server writes no binary log.
	ErrBinlogOff = errors.New("the server has no binary log")
	// ErrPurged: the binary logs that follow the position are gone.
	ErrPurged = errors.New("the binary logs after the position were purged")
	// ErrNotInBinlog: the server does not have the position asked for.
	ErrNotInBinlog = errors.New("the position is not in the server's binary log")
	// ErrDiverged: as ErrNotInBinlog, and the server went on without it.
	ErrDiverged = errors.New("the position is off the server's history")
	// ErrCorrupt: an event's checksum or shape is wrong, on the way or in the log.
	ErrCorrupt = errors.New("corrupt event")
	// ErrKeep: what was received could not be kept, see [Recorder].
	ErrKeep = errors.New("the binary log is not kept")
	// ErrServer: any other error of the server itself. It answers, so it lives.
	ErrServer = errors.New("the server refused")
)

// verb names a step for an error message.
type verb string

const (
	verbConnect  verb = "connecting to the binary log"
	verbRegister verb = "registering as a slave"
	verbDump     verb = "asking for the binary log"
	verbRead     verb = "reading the binary log"
	verbKeep     verb = "keeping the binary log"
)

// MariaDB's error numbers.
const (
	erHostBlocked      = 1129
	erHostDenied       = 1130
	erAccessDenied     = 1045
	erSpecificAccess   = 1227
	erFatalReading     = 1236
	erNetPacketLarge   = 1153
	erSlaveSameID      = 4052
	erConnectionKilled = 1927
)

// advice is what is said about one kind of failure.
type advice struct {
	is    error
	code  string
	cause string
	do    string
}

// fail makes a *fault.Error of what went wrong in a step.
func fail(o Options, v verb, err error) error {
	var done *fault.Error
	if errors.As(err, &done) {
		return err
	}
	a := diagnose(o, v, err)
	f := &fault.Error{
		Kind: fault.Failed, Code: a.code, What: string(v) + " failed", Server: o.Address,
		Cause: a.cause, Do: a.do, Err: fmt.Errorf("%w: %w", a.is, err),
		State: "nothing was changed on the server",
	}
	var my *mysql.MyError
	if errors.As(err, &my) {
		f.Errno = my.Code
	}
	return f
}

func diagnose(o Options, v verb, err error) advice {
	var my *mysql.MyError
	switch {
	case errors.Is(err, ErrKeep):
		return advice{is: ErrKeep, code: "binlog_not_kept", cause: strings.TrimPrefix(err.Error(), ErrKeep.Error()+": ")}
	case errors.Is(err, ErrClosed), errors.Is(err, context.Canceled):
		return advice{is: ErrClosed, code: "closed", cause: "repld itself closed the connection"}
	case errors.Is(err, ErrForeign):
		return advice{is: ErrForeign, code: "foreign_server", cause: err.Error(),
			do: "give the server's own address, not a virtual one; if the server was rebuilt, remove it and init it again"}
	case errors.As(err, &my):
		return AdviseDump(my.Code, my.Message).advice()
	case strings.Contains(err.Error(), "does not support TLS"):
		return advice{is: ErrTLS, code: "tls_missing", cause: "the server has no TLS", do: "give it a certificate: ssl_cert, ssl_key"}
	case isTLS(err):
		return advice{is: ErrTLS, code: "tls_failed", cause: describeTLS(err),
			do: "give the authority that signed the server's certificate, and an address that the certificate names"}
	case errors.Is(err, syscall.ECONNREFUSED):
		return advice{is: ErrRefused, code: "connection_refused", cause: "nobody listens at " + o.Address,
			do: "see whether the server runs, and its port, bind_address and skip_networking"}
	case errors.Is(err, ErrNotServer), v == verbConnect && isNonsense(err):
		return advice{is: ErrNotServer, code: "not_a_server", cause: "what answers does not speak the server's protocol: " + err.Error(), do: "check the port"}
	case errors.Is(err, errChecksum), errors.Is(err, errMalformed), errors.Is(err, errSequence):
		return advice{is: ErrCorrupt, code: "binlog_corrupt", cause: err.Error(),
			do: "see the server's error log; compare with mariadb-binlog --verify-binlog-checksum"}
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		cause := fmt.Sprintf("not a byte within %s; a heartbeat is due every %s", o.Silence, o.Heartbeat)
		if v != verbRead {
			cause = fmt.Sprintf("not answered within %s", o.DialTimeout)
		}
		return advice{is: ErrSilent, code: "no_answer", cause: cause,
			do: "see whether the server hangs, is frozen, or is cut off from repld"}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed):
		return advice{is: ErrBroken, code: "connection_broken", cause: "the other side closed the connection" + detail(err), do: "see whether the server was stopped, or died"}
	}
	return advice{is: ErrServer, code: "binlog_failed", cause: err.Error()}
}

// detail tells a reset, which a dying process leaves, from an orderly close.
func detail(err error) string {
	if errors.Is(err, syscall.ECONNRESET) {
		return " with a reset"
	}
	return ""
}

// isNonsense knows by go-mysql's words that a greeting was none.
func isNonsense(err error) bool {
	return strings.Contains(err.Error(), "invalid protocol version") || strings.Contains(err.Error(), "invalid sequence")
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

func isTLS(err error) bool {
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var cert *tls.CertificateVerificationError
	return errors.As(err, &record) || errors.As(err, &alert) || errors.As(err, &cert) ||
		strings.Contains(err.Error(), "tls: ") // alerts of the other side have no type of their own
}

// describeTLS says what the certificate is, not only that it is wrong.
func describeTLS(err error) string {
	var cert *tls.CertificateVerificationError
	if !errors.As(err, &cert) || len(cert.UnverifiedCertificates) == 0 {
		return err.Error()
	}
	return fmt.Sprintf("%v (%s)", cert.Err, describeCertificate(cert.UnverifiedCertificates[0]))
}

func describeCertificate(c *x509.Certificate) string {
	names := c.DNSNames
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	return fmt.Sprintf("the certificate is for %s, issued by %s, valid until %s",
		strings.Join(names, ", "), c.Issuer, c.NotAfter.UTC().Format(time.RFC3339))
}
