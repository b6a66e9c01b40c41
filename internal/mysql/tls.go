package mysql

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	sqldriver "github.com/go-sql-driver/mysql"
)

// CertInfo is what a server's certificate says.
type CertInfo struct {
	Issuer, Subject string
	// SANs are the names and addresses that the certificate is good for.
	SANs                []string
	NotBefore, NotAfter time.Time
	// Chain is the certificate and what was sent with it, leaf first.
	Chain []*x509.Certificate
	// Version is the server's version as it greets.
	Version string
}

// TLSError says exactly what is wrong with a server's TLS: servers and clients
// themselves say only "2026 … error:00000000" for most of it.
type TLSError struct {
	// Code is tls_absent, tls_expired, tls_not_yet_valid, tls_wrong_ca, tls_name_mismatch,
	// tls_wrong_use or tls_handshake.
	Code string
	Text string
	Do   string
	Err  error
}

// Error is the text.
func (e *TLSError) Error() string { return e.Text }

// Unwrap gives the error below.
func (e *TLSError) Unwrap() error { return e.Err }

// capabilities of the protocol's first packets.
const (
	capProtocol41 = 1 << 9
	capSSL        = 1 << 11
	capSecureConn = 1 << 15
	capPluginAuth = 1 << 19
	charsetUTF8   = 33
)

// InspectTLS fetches the certificate of the server at address, trusting
// nothing and without logging in.
func InspectTLS(ctx context.Context, address string) (CertInfo, error) {
	var info CertInfo
	conn, version, err := startTLS(ctx, address)
	if err != nil {
		return info, err
	}
	defer conn.Close()
	chain, err := handshake(ctx, conn)
	if err != nil {
		return info, &TLSError{Code: "tls_handshake", Err: err,
			Text: fmt.Sprintf("%s offers TLS but the handshake failed: %v", address, err),
			Do:   "look into the server's error log; check tls_version and ssl_cipher"}
	}
	leaf := chain[0]
	return CertInfo{
		Issuer: leaf.Issuer.String(), Subject: leaf.Subject.String(), SANs: sans(leaf),
		NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter, Chain: chain, Version: version,
	}, nil
}

// VerifyTLS checks the certificate of the server at address against the
// authorities and the name (or IP address) by which it is going to be called;
// a nil pool means the system's. It returns a [*TLSError] that says what is
// wrong, or a [*ConnectError] if the server could not be asked.
func VerifyTLS(ctx context.Context, address string, authorities *x509.CertPool, serverName string) error {
	info, err := InspectTLS(ctx, address)
	if err != nil {
		return err
	}
	return checkCertificate(info, address, authorities, serverName, time.Now())
}

func checkCertificate(info CertInfo, address string, authorities *x509.CertPool, serverName string, now time.Time) error {
	leaf := info.Chain[0]
	switch {
	case now.After(leaf.NotAfter):
		return &TLSError{Code: "tls_expired",
			Text: fmt.Sprintf("the certificate of %s (%s) has expired at %s, %s ago", address, info.Subject, stamp(leaf.NotAfter), now.Sub(leaf.NotAfter).Round(time.Second)),
			Do:   "give the server a new certificate and run FLUSH SSL on it"}
	case now.Before(leaf.NotBefore):
		return &TLSError{Code: "tls_not_yet_valid",
			Text: fmt.Sprintf("the certificate of %s (%s) is valid only from %s", address, info.Subject, stamp(leaf.NotBefore)),
			Do:   "check the clocks of both hosts"}
	}
	between := x509.NewCertPool()
	for _, c := range info.Chain[1:] {
		between.AddCert(c)
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: authorities, Intermediates: between, CurrentTime: now,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	if err != nil {
		return explainChain(err, info, address)
	}
	if err := leaf.VerifyHostname(strings.Trim(serverName, "[]")); err != nil {
		return &TLSError{Code: "tls_name_mismatch", Err: err,
			Text: fmt.Sprintf("the certificate of %s is not for %q: it is good for %s", address, serverName, listSANs(info.SANs)),
			Do:   "use one of these names as the address, or give the server a certificate that names " + serverName}
	}
	return nil
}

func explainChain(err error, info CertInfo, address string) error {
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) {
		switch invalid.Reason {
		case x509.Expired:
			return &TLSError{Code: "tls_expired", Err: err,
				Text: fmt.Sprintf("an authority in the certificate chain of %s has expired: %s, valid until %s", address, invalid.Cert.Subject, stamp(invalid.Cert.NotAfter)),
				Do:   "renew the authority and all that it has signed"}
		case x509.IncompatibleUsage:
			return &TLSError{Code: "tls_wrong_use", Err: err,
				Text: fmt.Sprintf("the certificate of %s (%s) may not be used by a server: its extended key usage lacks serverAuth", address, info.Subject),
				Do:   "give the server a certificate with serverAuth and clientAuth"}
		}
	}
	return &TLSError{Code: "tls_wrong_ca", Err: err,
		Text: fmt.Sprintf("the certificate of %s (%s) is not signed by the authority that was given: its issuer is %s (%v)", address, info.Subject, info.Issuer, err),
		Do:   "give the authority that signed it, or let the expected one sign a certificate for the server"}
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

func listSANs(names []string) string {
	if len(names) == 0 {
		return "no name or address at all (it has no subjectAltName)"
	}
	return strings.Join(names, ", ")
}

func sans(c *x509.Certificate) []string {
	out := append([]string(nil), c.DNSNames...)
	for _, ip := range c.IPAddresses {
		out = append(out, ip.String())
	}
	return out
}

// startTLS reads the greeting and asks for TLS; the connection that it returns
// waits for the client's hello.
func startTLS(ctx context.Context, address string) (net.Conn, string, error) {
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, "", &ConnectError{Server: address, Where: address, Err: err}
	}
	w := &wire{}
	w.set(raw)
	disarm := w.arm(ctx)
	defer disarm()
	version, capabilities, err := readGreeting(w)
	if err == nil && capabilities&capSSL == 0 {
		err = &TLSError{Code: "tls_absent", Err: sqldriver.ErrNoTLS,
			Text: fmt.Sprintf("the server at %s (%s) has no TLS", address, version),
			Do:   "give it ssl_cert, ssl_key and ssl_ca and restart it"}
	}
	if err == nil {
		err = requestTLS(w)
	}
	if err == nil {
		return raw, version, nil
	}
	cause := w.cause(ctx, err)
	w.shut()
	var absent *TLSError
	if errors.As(err, &absent) {
		return nil, "", absent
	}
	return nil, "", &ConnectError{Server: address, Where: address, Err: cause}
}

// readGreeting reads the first packet of a server.
func readGreeting(r io.Reader) (version string, capabilities uint32, err error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return "", 0, err
	}
	body := make([]byte, int(head[0])|int(head[1])<<8|int(head[2])<<16)
	if len(body) > maxGreeting || head[3] != 0 {
		return "", 0, fmt.Errorf("%w: it greets with %q", errNotMySQL, printable(head[:]))
	}
	if _, err := io.ReadFull(r, body); err != nil {
		return "", 0, err
	}
	if len(body) > 3 && body[0] == 0xff {
		return "", 0, &sqldriver.MySQLError{Number: binary.LittleEndian.Uint16(body[1:]), Message: printable(bytes.TrimPrefix(body[3:], []byte("#")))}
	}
	end := bytes.IndexByte(body, 0)
	// version, NUL, connection id (4), scramble (8), filler (1), capabilities (2)
	if len(body) < 2 || body[0] != 10 || end < 0 || len(body) < end+1+4+8+1+2 {
		return "", 0, fmt.Errorf("%w: it greets with %q", errNotMySQL, printable(body))
	}
	return string(body[1:end]), uint32(binary.LittleEndian.Uint16(body[end+1+4+8+1:])), nil
}

// requestTLS sends the packet after which both sides go on in TLS.
func requestTLS(w io.Writer) error {
	packet := make([]byte, 4+32)
	packet[0], packet[3] = 32, 1
	binary.LittleEndian.PutUint32(packet[4:], capProtocol41|capSSL|capSecureConn|capPluginAuth)
	binary.LittleEndian.PutUint32(packet[8:], 1<<24)
	packet[12] = charsetUTF8
	_, err := w.Write(packet)
	return err
}

// handshake runs TLS without judging the certificate, and gives the chain.
func handshake(ctx context.Context, conn net.Conn) ([]*x509.Certificate, error) {
	// The certificate is looked at, not trusted: nothing is sent on this
	// connection, and checkCertificate judges it afterwards.
	client := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12})
	if err := client.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	chain := client.ConnectionState().PeerCertificates
	if len(chain) == 0 {
		return nil, errors.New("the server sent no certificate")
	}
	return chain, nil
}

// TLSFor is the configuration of verified connections to address: these
// authorities and no others, the name taken from the address.
func TLSFor(authorities *x509.CertPool, address string, client ...tls.Certificate) *tls.Config {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	return &tls.Config{RootCAs: authorities, ServerName: strings.Trim(host, "[]"), MinVersion: tls.VersionTLS12, Certificates: client}
}
