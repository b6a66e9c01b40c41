package provision

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/mysql"
	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/topology"
)

// configureSlave gives a server a slave's configuration, as init slave does
// before it copies.
func configureSlave(t *testing.T, p *Provisioner, r Request) (Facts, error) {
	t.Helper()
	if err := r.Normalize(); err != nil {
		return Facts{}, err
	}
	s, err := p.open(t.Context(), r, topology.RoleSlave)
	if err != nil {
		return Facts{}, err
	}
	defer s.close()
	plan := Plan{Verb: "init slave", Server: r.Name, Checks: Judge(CommonRules(), s.r, s.facts, s.env), Needs: NeedsOf(topology.RoleSlave, s.r, s.facts, s.env)}
	if err := Refusal(plan.Verb, r.Name, plan.Checks); err != nil {
		return s.facts, err
	}
	err = s.configure(t.Context(), plan)
	return s.facts, err
}

// A1: two servers on the default server_id. The second gets a free one, in its
// file, and keeps it over a restart; the master keeps the default.
func TestCaseA1_EqualServerIDs(t *testing.T) {
	all := mariadb.StartAll(t, mariadb.Options{Name: "db1"}, mariadb.Options{Name: "db2"})
	p, m := newProvisioner(t)
	if res := mustInit(t, p, m, all[0]); res.Server.Identity.ServerID != 1 {
		t.Errorf("the master's default server_id was not kept: %d", res.Server.Identity.ServerID)
	}
	taken := requestFor(all[1])
	taken.ServerID = 1
	_, err := configureSlave(t, p, taken)
	wantFault(t, err, fault.Usage, "server_id", "db1's")
	if _, err := configureSlave(t, p, requestFor(all[1])); err != nil {
		t.Fatal(err)
	}
	if err := all[1].Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v := all[1].MustValue(t, "SELECT @@server_id"); v != "2" {
		t.Errorf("server_id after a restart is %s, want 2", v)
	}
}

// A4: the ways in which a master cannot be reached are told apart, and an IPv6
// literal works with and without brackets.
func TestCaseA4_MasterNotReachable(t *testing.T) {
	p, _ := newProvisioner(t)
	try := func(r Request) error {
		_, err := p.InitMaster(t.Context(), MasterRequest{r})
		return err
	}
	s := mariadb.Start(t, mariadb.Options{})
	port := strings.TrimPrefix(s.Addr(), "127.0.0.1:")
	r := requestFor(s)
	r.Address = "no-such-host.invalid:3306"
	wantFault(t, try(r), fault.Failed, "unknown_host", "no-such-host.invalid")
	r = requestFor(s)
	r.Address = "[::1]:" + port
	wantFault(t, try(r), fault.Failed, "unreachable", "bind-address")
	// By the socket the server itself says where it listens.
	r.Admin.Socket = s.Socket
	wantFault(t, try(r), fault.Failed, "unreachable", "bind_address is 127.0.0.1")
	// A socket and an address of different servers.
	other := mariadb.Start(t, mariadb.Options{Name: "other"})
	r.Address = other.Addr()
	wantFault(t, try(r), fault.Usage, "other_server", "another server")
	// The plan itself works by the socket.
	r.Address, r.DryRun = s.Addr(), true
	if err := try(r); err != nil {
		t.Errorf("by the socket: %v", err)
	}

	quiet := mariadb.Start(t, mariadb.Options{Name: "quiet", Bind: "::1", Host: "::1"})
	six := requestFor(quiet)
	if !strings.HasPrefix(six.Address, "[::1]:") {
		t.Fatalf("address %s", six.Address)
	}
	res, err := p.InitMaster(t.Context(), MasterRequest{six})
	if err != nil || res.Server.Address != six.Address {
		t.Errorf("over IPv6: %v", err)
	}
}

// A10: a slave that would refuse the master's events gets the largest limit;
// a limit on the command line, which would come back, is refused by name.
func TestCaseA10_PacketSizes(t *testing.T) {
	s := mariadb.Start(t, mariadb.Options{Config: []string{"slave-max-allowed-packet=1M"}})
	p, m := newProvisioner(t)
	mustInit(t, p, m, s)
	if v := s.MustValue(t, "SELECT @@slave_max_allowed_packet"); v != slaveMaxPacket {
		t.Errorf("slave_max_allowed_packet is %s", v)
	}
	fixed := mariadb.Start(t, mariadb.Options{Name: "fixed", Args: []string{"--slave-max-allowed-packet=1M"}})
	_, err := configureSlave(t, p, requestFor(fixed))
	wantFault(t, err, fault.Refused, "command_line", "slave-max-allowed-packet", "1048576")
}

func TestNotAMySQLServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("SSH-2.0-OpenSSH_9.2\r\n"))
			_ = c.Close()
		}
	}()
	defer func() {
		_ = l.Close()
		<-done
	}()
	p, _ := newProvisioner(t)
	_, err = p.InitMaster(t.Context(), MasterRequest{Request{Name: "db1", Address: l.Addr().String(), Admin: Admin{User: "root"}}})
	wantFault(t, err, fault.Failed, "not_mysql", "no MySQL or MariaDB server")
}

// The user's own certificates: a wrong authority is refused before anything is
// touched, the right one is used and never replaced.
func TestOwnCertificates(t *testing.T) {
	s := mariadb.Start(t, mariadb.Options{})
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name string, ca *Authority) Request {
		m, err := ca.Issue("x", name, Names("127.0.0.1", "h"), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		r := requestFor(s)
		r.SSLCA, r.SSLCert, r.SSLKey = filepath.Join(dir, name+"-ca.pem"), filepath.Join(dir, name+"-cert.pem"), filepath.Join(dir, name+"-key.pem")
		for path, text := range map[string][]byte{r.SSLCA: m.CA, r.SSLCert: m.Cert, r.SSLKey: m.Key} {
			if err := os.WriteFile(path, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return r
	}
	authority := func() *Authority {
		ca, err := OpenAuthority(t.TempDir(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return ca
	}
	right, wrong := write("right", authority()), write("wrong", authority())
	p, m := newProvisioner(t)
	mixed := right
	mixed.SSLCA = wrong.SSLCA
	_, err := p.InitMaster(t.Context(), MasterRequest{mixed})
	wantFault(t, err, fault.Failed, "tls", "not accepted under --ssl-ca")

	res, err := p.InitMaster(t.Context(), MasterRequest{right})
	if err != nil {
		t.Fatal(err)
	}
	m.recordMaster("main", res)
	if res.Server.TLS != "user" || s.MustValue(t, "SELECT @@ssl_cert") != right.SSLCert {
		t.Errorf("the user's certificate is not in use: %+v", res.Server)
	}
	_, err = p.InitMaster(t.Context(), MasterRequest{mixed})
	wantFault(t, err, fault.Failed, "tls", "not accepted")
	again, err := p.InitMaster(t.Context(), MasterRequest{right})
	if err != nil || again.Changed {
		t.Errorf("the second run: %v, %+v", err, again)
	}
	roots, err := RootsOf(p.DataDir, "main", s.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := mysql.VerifyTLS(t.Context(), s.Addr(), roots, "127.0.0.1"); err != nil {
		t.Errorf("by the saved authority: %v", err)
	}
}

// What another repld manages is refused.
func TestManagedByAnotherRepld(t *testing.T) {
	s := mariadb.Start(t, mariadb.Options{})
	p, m := newProvisioner(t)
	mustInit(t, p, m, s)
	q, _ := newProvisioner(t)
	q.Instance = "instance-2"
	_, err := q.InitMaster(t.Context(), MasterRequest{requestFor(s)})
	wantFault(t, err, fault.Refused, "managed_by", "managed by repld instance instance-1")
	if f := fault.As(err); strings.Contains(f.Do, "--purge-config), or") == false {
		t.Errorf("no way out is named: %s", f.Do)
	}
}

func TestAuthority(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	a, err := OpenAuthority(dir, now)
	if err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{"ca": 0o700, "ca/ca-key.pem": 0o600} {
		info, err := os.Stat(filepath.Join(dir, path))
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v, want %o", path, info, err, mode)
		}
	}
	b, err := OpenAuthority(dir, now)
	if err != nil || string(a.PEM) != string(b.PEM) {
		t.Fatalf("opened again it is another: %v", err)
	}
	names := Names("10.0.0.1", "db1")
	first, err := a.Issue("main", "db1", names, now)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := parseCertificate(first.Cert)
	if err != nil || len(cert.ExtKeyUsage) != 2 || cert.VerifyHostname("10.0.0.1") != nil || cert.VerifyHostname("db1") != nil || cert.VerifyHostname("127.0.0.1") == nil {
		t.Errorf("certificate: %v, usages %v", err, cert.ExtKeyUsage)
	}
	same, err := b.Issue("main", "db1", names, now)
	if err != nil || string(same.Cert) != string(first.Cert) {
		t.Error("a good certificate was replaced")
	}
	late, err := b.Issue("main", "db1", names, cert.NotAfter.Add(-renewBefore+time.Hour))
	if err != nil || string(late.Cert) == string(first.Cert) {
		t.Error("a certificate that ends soon was not replaced")
	}
	moved, err := b.Issue("main", "db1", Names("10.0.0.2", "db1"), now)
	if err != nil || string(moved.Cert) == string(late.Cert) {
		t.Error("a certificate for another address was kept")
	}
}
