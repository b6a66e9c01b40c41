package provision

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/mysql"
	"github.com/repld/repld/topology"
)

// session is one server while a verb works on it: the administrator's
// connection, what was measured, and what follows from it.
type session struct {
	p     *Provisioner
	r     Request
	role  topology.Role
	conn  *mysql.Conn
	facts Facts
	env   Context
	ca    *Authority
	// caPEM is the authority that the server is verified by.
	caPEM []byte
	// beforeRestart, if set, is called right before a restart: adopt stops a
	// slave then.
	beforeRestart func(context.Context) error
}

// open connects as the administrator and gathers the facts. Close the session.
func (p *Provisioner) open(ctx context.Context, r Request, role topology.Role) (*session, error) {
	env, err := p.context(ctx, r)
	if err != nil {
		return nil, err
	}
	s := &session{p: p, r: r, role: role, env: env}
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	if err := s.gather(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *session) close() {
	if s.conn != nil {
		_ = s.conn.Close() // the verb is over; the server notices a lost client by itself
		s.conn = nil
	}
}

// target is the administrator's login. Over the network it is encrypted if the
// server can: who the server is, is judged by its identity and, once it has a
// certificate from a known authority, by that.
func (s *session) target(ctx context.Context) (mysql.Target, error) {
	t := mysql.Target{Name: s.r.Name, Address: s.r.Address, Socket: s.r.Admin.Socket, User: s.r.Admin.User, Password: s.r.Admin.Password}
	if t.Socket != "" {
		return t, nil
	}
	var bad *mysql.TLSError
	_, err := mysql.InspectTLS(ctx, s.r.Address)
	switch {
	case err == nil:
		t.TLS = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}
	case !errors.As(err, &bad):
		return t, mysql.Explain(ctx, err, t)
	}
	return t, nil
}

func (s *session) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.p.Timeouts.withDefaults().Dial)
	defer cancel()
	t, err := s.target(ctx)
	if err != nil {
		return err
	}
	conn, err := mysql.Dial(ctx, t)
	if err != nil {
		return mysql.Explain(ctx, err, t)
	}
	s.close()
	s.conn = conn
	return nil
}

// gather measures everything anew.
func (s *session) gather(ctx context.Context) error {
	admin, err := mysql.GatherAdminFacts(ctx, s.conn)
	if err != nil {
		return s.fail("look_failed", "the server could not be examined", err, "nothing was changed by this step")
	}
	f := Facts{AdminFacts: *admin}
	if f.Host, f.Port, _, err = ParseAddress(s.r.Address); err != nil {
		return err
	}
	f.Loopback = isLoopback(f.Host)
	f.AddressIPs = resolve(ctx, f.Host)
	f.HostnameIPs = resolve(ctx, f.Identity.Hostname)
	pid, local := localServer(f)
	f.Local = local
	f.Places = findPlaces(ctx, s.r, f, pid)
	if f.Sum = recordedSum(s.env, s.r.Name); f.Places.Current != "" {
		f.Sum = ""
	}
	s.facts = f
	if err := s.samePlace(ctx); err != nil {
		return err
	}
	return s.gatherTLS(ctx)
}

// recordedSum is the drop-in's checksum as it was last written.
func recordedSum(c Context, name string) string {
	if srv := c.Cluster.Servers[name]; srv != nil {
		return srv.DropInSum
	}
	return ""
}

// samePlace proves that the address leads to the server that the socket does.
func (s *session) samePlace(ctx context.Context) error {
	if s.r.Admin.Socket == "" || s.facts.On("skip_networking") {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.p.Timeouts.withDefaults().Dial)
	defer cancel()
	id, done, err := mysql.Greeting(ctx, s.r.Address)
	if err != nil {
		f := mysql.Explain(ctx, err, mysql.Target{Name: s.r.Name, Address: s.r.Address, User: s.r.Admin.User})
		if bind := s.facts.Value("bind_address"); bind != "" {
			f.Cause += "; the server's bind_address is " + bind + " and its port " + s.facts.Value("port")
		}
		return f
	}
	defer done()
	same, err := mysql.HasSession(ctx, s.conn, id)
	if err != nil {
		return s.fail("look_failed", "the server could not be examined", err, "nothing was changed by this step")
	}
	if !same {
		return usage("other_server", fmt.Sprintf("the address %s leads to another server than the socket %s", s.r.Address, s.r.Admin.Socket),
			fmt.Sprintf("the connection to the address is not among the sessions of the server at the socket, whose port is %s", s.facts.Value("port")), "give the address of the same server")
	}
	return nil
}

// gatherTLS makes a handshake against the authority that the server is going to
// be verified by.
func (s *session) gatherTLS(ctx context.Context) error {
	now := time.Now()
	s.facts.TLS.Now = now
	if s.r.SSLCA != "" {
		s.caPEM = s.userFile(ctx, s.r.SSLCA)
		s.facts.TLS.FilesProblem = s.userFiles(ctx, now)
	} else {
		ca, err := OpenAuthority(s.p.DataDir, now)
		if err != nil {
			return err
		}
		s.ca, s.caPEM = ca, ca.PEM
		s.facts.TLS.Missing = missingFile(s.facts, TLSOf(s.r, s.facts))
	}
	ctx, cancel := context.WithTimeout(ctx, s.p.Timeouts.withDefaults().Dial)
	defer cancel()
	info, err := mysql.InspectTLS(ctx, s.r.Address)
	if err != nil {
		s.facts.TLS.Problem = fault.Brief(err)
		return nil
	}
	s.facts.TLS.Offered, s.facts.TLS.NotAfter = true, info.NotAfter
	if err := mysql.VerifyTLS(ctx, s.r.Address, s.pool(), s.facts.Host); err != nil {
		s.facts.TLS.Problem = fault.Brief(err)
		return nil
	}
	s.facts.TLS.Verified = true
	return nil
}

// missingFile is the first of the files that is not there, "" if all are or if
// they are on another host.
func missingFile(f Facts, at TLSPaths) string {
	if !f.Local {
		return ""
	}
	for _, path := range []string{at.CA, at.Cert, at.Key} {
		if _, err := os.Stat(path); os.IsNotExist(err) {
			return path
		}
	}
	return ""
}

// pool holds the server's authority; it is empty, and so verifies nothing, if
// that is not known.
func (s *session) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.caPEM)
	return pool
}

// userFile reads a file of the user's as the server sees it; nil if nobody can.
func (s *session) userFile(ctx context.Context, path string) []byte {
	if s.facts.Local {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		return text
	}
	ctx, cancel := context.WithTimeout(ctx, s.p.Timeouts.withDefaults().Statement)
	defer cancel()
	if text, err := mysql.ReadFile(ctx, s.conn, path); err == nil && text != nil {
		return text
	}
	// The same authority often lies under the same path on all hosts.
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return text
}

// userFiles judges the user's certificate before a restart depends on it.
func (s *session) userFiles(ctx context.Context, now time.Time) string {
	if s.caPEM == nil {
		return s.r.SSLCA + " cannot be read, neither by repld nor by the server"
	}
	cert := s.userFile(ctx, s.r.SSLCert)
	if cert == nil {
		if s.facts.Local {
			return s.r.SSLCert + " cannot be read"
		}
		return "" // only the server itself can tell, after its restart
	}
	if err := checkUserCertificate(cert, s.caPEM, s.facts.Host, now); err != nil {
		return err.Error()
	}
	return ""
}

func checkUserCertificate(certPEM, caPEM []byte, host string, now time.Time) error {
	cert, err := parseCertificate(certPEM)
	if err != nil {
		return fmt.Errorf("--ssl-cert: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(caPEM) {
		return errors.New("--ssl-ca: no PEM certificate")
	}
	between := x509.NewCertPool()
	between.AppendCertsFromPEM(certPEM)
	if _, err := cert.Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err != nil {
		return fmt.Errorf("--ssl-cert is not accepted under --ssl-ca: %w", err)
	}
	if err := cert.VerifyHostname(host); err != nil {
		return fmt.Errorf("--ssl-cert: %w", err)
	}
	return nil
}

// fail makes a fault of an error that a statement or a command met.
func (s *session) fail(code, what string, err error, state string) *fault.Error {
	f := &fault.Error{Kind: fault.Failed, Code: code, What: what, Server: s.r.Name, Errno: mysql.Errno(err), Cause: fault.Brief(err), State: state,
		Do: "put the cause right and run the command again: it goes on where it stopped", Err: err}
	return f
}

// statement bounds one quick statement.
func (s *session) statement(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.p.Timeouts.withDefaults().Statement)
}
