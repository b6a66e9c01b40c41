package mysql

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/topology"
)

const (
	daemonUser          = "repld"
	daemonPassword      = "daemon-test-password-1"
	replicationUser     = "repld_replication"
	replicationPassword = "replication-test-password-1"
)

// authority signs certificates for a test.
type authority struct {
	t    *testing.T
	dir  string
	name string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir(), name: name, key: newKey(t)}
	for d := a.dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755) // the server runs as another user
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.cert, a.file = a.sign(template, a.key, "ca")
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) sign(template *x509.Certificate, key *ecdsa.PrivateKey, file string) (*x509.Certificate, string) {
	a.t.Helper()
	parent := a.cert
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	path := filepath.Join(a.dir, file+".pem")
	writePEM(a.t, path, "CERTIFICATE", der)
	return cert, path
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
}

// server makes a certificate for names and addresses and gives the lines of
// configuration that use it.
func (a *authority) server(file string, notAfter time.Time, names ...string) []string {
	a.t.Helper()
	key := newKey(a.t)
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: file},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: notAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, n)
		}
	}
	_, cert := a.sign(template, key, file)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	keyFile := filepath.Join(a.dir, file+".key")
	writePEM(a.t, keyFile, "PRIVATE KEY", der)
	return []string{"ssl-ca=" + a.file, "ssl-cert=" + cert, "ssl-key=" + keyFile}
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

func tomorrow() time.Time { return time.Now().Add(24 * time.Hour) }

// node is a real server with what repld has of it: the account with exactly
// DaemonGrants, over TLS.
type node struct {
	*mariadb.Server
	t      *testing.T
	ca     *authority
	server *Server
	prober *Prober
	seen   *Sessions
}

// rig starts n empty servers of one authority, with accounts but no replication.
func rig(t *testing.T, n int, config ...string) []*node {
	t.Helper()
	ca := newAuthority(t, "test authority")
	var options []mariadb.Options
	for i := range n {
		lines := append(mariadb.Replicating(i+1), "read-only=1", "slave-net-timeout=10")
		lines = append(lines, ca.server(fmt.Sprintf("db%d", i+1), tomorrow(), "127.0.0.1", "localhost")...)
		options = append(options, mariadb.Options{Config: append(lines, config...)})
	}
	var nodes []*node
	for _, s := range mariadb.StartAll(t, options...) {
		nodes = append(nodes, newNode(t, s, ca))
	}
	return nodes
}

func newNode(t *testing.T, s *mariadb.Server, ca *authority) *node {
	t.Helper()
	n := &node{Server: s, t: t, ca: ca, seen: &Sessions{}}
	ctx := bounded(t)
	admin, err := Dial(ctx, Target{Name: s.Name, Address: s.Addr(), User: s.AdminUser, Password: s.AdminPassword, TLS: TLSFor(ca.pool(), s.Addr())})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	for _, statement := range Schema() {
		n.must(admin.Exec(ctx, statement))
	}
	for _, statement := range append(AccountStatements(Credentials{daemonUser, daemonPassword}, DaemonGrants()),
		AccountStatements(Credentials{replicationUser, replicationPassword}, ReplicationGrants())...) {
		n.must(admin.Exec(ctx, statement.SQL, statement.Args...))
	}
	n.must(admin.Exec(ctx, "RESET MASTER"))
	n.must(admin.Exec(ctx, "SET GLOBAL gtid_slave_pos = ''"))
	facts, err := ReadFacts(ctx, admin)
	n.must(err)
	identity := func() topology.Identity { return facts.Identity }
	n.server = NewServer(Options{Server: s.Name, Target: n.target, Identity: identity, Sessions: n.seen,
		Replication: func() Credentials { return Credentials{replicationUser, replicationPassword} }})
	n.prober = NewProber(ProberOptions{Server: s.Name, Target: n.target, Identity: identity, Sessions: n.seen})
	t.Cleanup(func() {
		_ = n.server.Close()
		_ = n.prober.Close()
	})
	return n
}

func (n *node) target() Target {
	return Target{Name: n.Name, Address: n.Addr(), User: daemonUser, Password: daemonPassword, TLS: TLSFor(n.ca.pool(), n.Addr())}
}

func (n *node) source() failover.Source {
	return failover.Source{Name: n.Name, Host: n.Host, Port: uint16(n.Port), CAFile: n.ca.file}
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatalf("%s: %v", n.Name, err)
	}
}

func (n *node) conn() *Conn {
	n.t.Helper()
	c, err := Dial(bounded(n.t), n.target())
	n.must(err)
	n.t.Cleanup(func() { _ = c.Close() })
	return c
}

// look probes once and wants an answer.
func (n *node) look() health.Observation {
	n.t.Helper()
	o := n.prober.Probe(bounded(n.t))
	if o.Reach != health.ReachOK {
		n.t.Fatalf("%s: reach %q: %s", n.Name, o.Reach, o.Err)
	}
	return o
}

// until probes until the observation is right.
func (n *node) until(what string, right func(health.Observation) bool) health.Observation {
	n.t.Helper()
	var last health.Observation
	mariadb.Eventually(n.t, 15*time.Second, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if last = n.prober.Probe(ctx); right(last) {
			return nil
		}
		return fmt.Errorf("%s: not yet %s: %+v slave %+v", n.Name, what, last, last.Slave)
	})
	return last
}

// lead opens a node as the master, with a table.
func (n *node) lead() {
	n.t.Helper()
	n.must(n.server.Open(bounded(n.t), time.Second))
	n.MustExec(n.t, "CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY, v VARCHAR(100)) ENGINE=InnoDB")
}

// follow attaches a node to a source and waits until it streams.
func (n *node) follow(source *node, acker bool) {
	n.t.Helper()
	n.must(n.server.Attach(bounded(n.t), failover.Attachment{Source: source.source(), Acker: acker}))
	n.until("streaming", func(o health.Observation) bool {
		return o.Slave != nil && o.Slave.IO == health.ThreadYes && o.Slave.SQL == health.ThreadYes && o.SemiSync.SlaveOn == acker
	})
}

// write inserts rows on the master and gives its position.
func (n *node) write(from, to int) gtid.GTID {
	n.t.Helper()
	for i := from; i <= to; i++ {
		n.MustExec(n.t, fmt.Sprintf("INSERT INTO app.t VALUES (%d, 'row %d')", i, i))
	}
	return n.look().BinlogPos.Of(0)
}

func (n *node) rows() string {
	n.t.Helper()
	return n.MustValue(n.t, "SELECT COUNT(*) FROM app.t")
}

func (n *node) received(g gtid.GTID) {
	n.t.Helper()
	n.until("received "+g.String(), func(o health.Observation) bool { return o.Slave != nil && o.Slave.Received.Of(0).Seq >= g.Seq })
}

func (n *node) applied(g gtid.GTID) {
	n.t.Helper()
	n.until("applied "+g.String(), func(o health.Observation) bool { return o.SlavePos.Of(0).Seq >= g.Seq })
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// Freeze returns once every thread has stopped: the signal alone lets a running
// one go on for a moment, in which it can still acknowledge.
func (n *node) Freeze() error {
	if err := n.Server.Freeze(); err != nil {
		return err
	}
	mariadb.Eventually(n.t, 5*time.Second, func() error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", n.Pid()))
		if err != nil || len(threads) == 0 {
			return fmt.Errorf("threads of %s: %d %w", n.Name, len(threads), err)
		}
		for _, path := range threads {
			stat, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if _, rest, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(rest, "T") {
				return fmt.Errorf("%s: a thread still runs: %.40s", n.Name, stat)
			}
		}
		return nil
	})
	return nil
}
