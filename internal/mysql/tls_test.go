package mysql

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/health"
	"github.com/repld/repld/test/mariadb"
)

// verifyWant checks what VerifyTLS says of a server.
func verifyWant(t *testing.T, err error, code string, words ...string) {
	t.Helper()
	var bad *TLSError
	if !errors.As(err, &bad) {
		t.Fatalf("error is %v, want %s", err, code)
	}
	if bad.Code != code || bad.Do == "" {
		t.Errorf("code %q do %q, want %q", bad.Code, bad.Do, code)
	}
	for _, w := range words {
		if !strings.Contains(bad.Text, w) {
			t.Errorf("%q does not say %q", bad.Text, w)
		}
	}
}

// serverWith starts a server that shows the given certificate.
func serverWith(t *testing.T, lines []string) *mariadb.Server {
	t.Helper()
	return mariadb.Start(t, mariadb.Options{Config: append(mariadb.Replicating(1), lines...)})
}

func TestCaseA11_ExpiredAndWrongCAAreNamed(t *testing.T) {
	ours, theirs := newAuthority(t, "our authority"), newAuthority(t, "their authority")
	ended := time.Now().Add(-26 * time.Hour).Truncate(time.Second)
	expired := serverWith(t, ours.server("expired", ended, "127.0.0.1"))
	foreign := serverWith(t, theirs.server("foreign", tomorrow(), "127.0.0.1"))

	verifyWant(t, VerifyTLS(bounded(t), expired.Addr(), ours.pool(), "127.0.0.1"), "tls_expired", stamp(ended), "26h0m")
	verifyWant(t, VerifyTLS(bounded(t), foreign.Addr(), ours.pool(), "127.0.0.1"), "tls_wrong_ca", "CN=their authority", "CN=foreign")

	// A slave's own error says nothing of this.
	slave := mariadb.Start(t, mariadb.Options{Config: mariadb.Replicating(2)})
	slave.MustExec(t, "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT="+port(expired)+", MASTER_USER='x', MASTER_SSL=1, MASTER_SSL_CA='"+ours.file+"', MASTER_SSL_VERIFY_SERVER_CERT=1", "START SLAVE")
	mariadb.Eventually(t, 10*time.Second, func() error {
		row, err := slave.Row(bounded(t), "SHOW SLAVE STATUS")
		if err == nil && row["Last_IO_Errno"] != "2026" {
			err = errors.New("not yet 2026: " + row["Last_IO_Error"])
		}
		return err
	})

	// What a user reads who connects with the wrong authority.
	target := Target{Name: "db1", Address: foreign.Addr(), User: "admin", Password: "never shown", TLS: TLSFor(ours.pool(), foreign.Addr())}
	_, err := Dial(bounded(t), target)
	if reach, _ := Classify(err); reach != health.ReachUnkind {
		t.Errorf("a server with a wrong certificate is %q: %v", reach, err)
	}
	f := Explain(bounded(t), err, target)
	if f.Code != "tls_wrong_ca" || !strings.Contains(f.Cause, "their authority") || f.Do == "" || f.State == "" {
		t.Errorf("%v", f)
	}
}

func port(s *mariadb.Server) string {
	_, p, _ := net.SplitHostPort(s.Addr())
	return p
}

func TestCaseA12_ACertificateForAnotherNameIsNamed(t *testing.T) {
	ca := newAuthority(t, "our authority")
	s := serverWith(t, ca.server("other", tomorrow(), "other.example", "10.1.2.3"))
	verifyWant(t, VerifyTLS(bounded(t), s.Addr(), ca.pool(), "127.0.0.1"), "tls_name_mismatch", "127.0.0.1", "other.example, 10.1.2.3")
	if err := VerifyTLS(bounded(t), s.Addr(), ca.pool(), "other.example"); err != nil {
		t.Errorf("by its own name: %v", err)
	}
	if err := VerifyTLS(bounded(t), s.Addr(), ca.pool(), "10.1.2.3"); err != nil {
		t.Errorf("by its own address: %v", err)
	}
	info, err := InspectTLS(bounded(t), s.Addr())
	if err != nil || info.Issuer != "CN=our authority" || info.Subject != "CN=other" || len(info.SANs) != 2 || len(info.Chain) == 0 ||
		!strings.Contains(info.Version, "MariaDB") || time.Until(info.NotAfter) > 25*time.Hour {
		t.Errorf("%+v %v", info, err)
	}
	target := Target{Address: s.Addr(), User: "admin", TLS: TLSFor(ca.pool(), s.Addr())}
	_, err = Dial(bounded(t), target)
	if f := Explain(bounded(t), err, target); f.Code != "tls_name_mismatch" {
		t.Errorf("%v", f)
	}
}

// TestCaseA13_AttachNeverReplicatesInClearText: the source has no TLS, and the
// replication account would let a slave in without it.
func TestCaseA13_AttachNeverReplicatesInClearText(t *testing.T) {
	slave := rig(t, 1)[0]
	master := mariadb.Start(t, mariadb.Options{Config: mariadb.Replicating(7)})
	master.MustExec(t, "CREATE USER '"+replicationUser+"'@'%' IDENTIFIED BY '"+replicationPassword+"'", "GRANT REPLICATION SLAVE ON *.* TO '"+replicationUser+"'@'%'")
	verifyWant(t, VerifyTLS(bounded(t), master.Addr(), slave.ca.pool(), "127.0.0.1"), "tls_absent", "has no TLS")
	slave.must(slave.server.Attach(bounded(t), failover.Attachment{Source: failover.Source{Name: "m", Host: master.Host, Port: uint16(master.Port), CAFile: slave.ca.file}}))
	o := slave.until("an error", func(o health.Observation) bool { return o.Slave != nil && o.Slave.IOErrno != 0 })
	if o.Slave.IOErrno != 2026 || o.Slave.IO == health.ThreadYes {
		t.Errorf("%+v", o.Slave)
	}
	target := Target{Address: master.Addr(), User: "admin", TLS: TLSFor(slave.ca.pool(), master.Addr())}
	_, err := Dial(bounded(t), target)
	if f := Explain(bounded(t), err, target); f.Code != "tls_absent" {
		t.Errorf("%v", f)
	}
}

func TestACertificateThatAServerMayNotUseIsNamed(t *testing.T) {
	ca := newAuthority(t, "our authority")
	info := CertInfo{Chain: []*x509.Certificate{ca.cert}}
	if err := checkCertificate(info, "db1:3306", ca.pool(), "db1", time.Now()); err == nil {
		t.Error("an authority was taken for a server")
	}
	verifyWant(t, checkCertificate(info, "db1:3306", ca.pool(), "db1", time.Now().Add(-24*time.Hour)), "tls_not_yet_valid")
}

// stranger listens and says something to whoever connects; "" says nothing.
func stranger(t *testing.T, says string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var open []net.Conn
		defer func() {
			for _, c := range open {
				_ = c.Close()
			}
		}()
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte(says))
			open = append(open, c)
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return l.Addr().String()
}

func TestWhatAUserReadsWhenAConnectionFails(t *testing.T) {
	n := rig(t, 1)[0]
	n.MustExec(t, "CREATE USER locked@'%' IDENTIFIED BY 'x' ACCOUNT LOCK")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closedPort := free.Addr().String()
	_ = free.Close()
	tls := n.target().TLS
	const secret = "a-wrong-secret"
	for name, c := range map[string]struct {
		target Target
		reach  health.Reach
		code   string
		errno  uint16
		says   string
	}{
		"wrong password":     {Target{Address: n.Addr(), User: daemonUser, Password: secret, TLS: tls}, health.ReachUnkind, "access_denied", 1045, "password"},
		"account wants TLS":  {Target{Address: n.Addr(), User: daemonUser, Password: daemonPassword}, health.ReachUnkind, "access_denied", 1045, "TLS"},
		"locked":             {Target{Address: n.Addr(), User: "locked", Password: "x"}, health.ReachUnkind, "account_locked", 4151, "locked"},
		"nobody listens":     {Target{Address: closedPort, Password: secret}, health.ReachRefused, "unreachable", 0, "refused"},
		"unknown host":       {Target{Address: "no-such-host.invalid:3306"}, health.ReachUnreachable, "unknown_host", 0, "no such host"},
		"no such socket":     {Target{Socket: "/nowhere/mysqld.sock"}, health.ReachUnreachable, "unreachable", 0, "no such file"},
		"a mail server":      {Target{Address: stranger(t, "220 mail.example ESMTP\r\n")}, health.ReachForeign, "not_mysql", 0, "220 mail.example ESMTP"},
		"a shell server":     {Target{Address: stranger(t, "SSH-2.0-OpenSSH_9.2\r\n")}, health.ReachForeign, "not_mysql", 0, "SSH-2.0-OpenSSH_9.2"},
		"a malformed packet": {Target{Address: stranger(t, "\x05\x00\x00\x00\x0aabcd")}, health.ReachForeign, "not_mysql", 0, "greets"},
		"a web server":       {Target{Address: stranger(t, "")}, health.ReachTimeout, "timeout", 0, "speak first"},
	} {
		t.Run(name, func(t *testing.T) {
			limit := 5 * time.Second
			if c.reach == health.ReachTimeout {
				limit = 200 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			defer cancel()
			c.target.Name = "db1"
			conn, err := Dial(ctx, c.target)
			if err == nil {
				_ = conn.Close()
				t.Fatal("connected")
			}
			if reach, number := Classify(err); reach != c.reach || number != c.errno {
				t.Errorf("%q %d, want %q %d: %v", reach, number, c.reach, c.errno, err)
			}
			f := Explain(bounded(t), err, c.target)
			if f.Code != c.code || f.Errno != c.errno || f.Server != "db1" || f.Cause == "" || f.Do == "" || f.State == "" {
				t.Errorf("%+v", f)
			}
			if !strings.Contains(f.Cause, c.says) {
				t.Errorf("cause %q does not say %q", f.Cause, c.says)
			}
			for _, s := range []string{f.Error(), err.Error(), c.target.String()} {
				if strings.Contains(s, secret) || strings.Contains(s, daemonPassword) {
					t.Errorf("a password shows: %s", s)
				}
			}
		})
	}
}
