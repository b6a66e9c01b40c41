package binlog_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/binlog"
	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/topology"
)

func position(t *testing.T, s string) gtid.Position {
	t.Helper()
	p, err := gtid.ParsePosition(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// firstError runs a stream until something is wrong with it.
func firstError(t *testing.T, o binlog.Options, start binlog.Start) *fault.Error {
	t.Helper()
	var r recorder
	s := run(t, o, start, &r)
	mariadb.Eventually(t, soon, r.look(func(r *recorder) error {
		if len(r.lost) == 0 {
			return errors.New("nothing is wrong")
		}
		return nil
	}))
	s.Close()
	err := r.lost[0].Err
	var f *fault.Error
	if !errors.As(err, &f) {
		t.Fatalf("%v is no fault", err)
	}
	t.Logf("%v\n", f)
	if f.Code == "" || f.What == "" || f.Cause == "" || f.Server == "" || f.State == "" {
		t.Errorf("a part of %+v is missing", f)
	}
	if strings.Contains(f.Error(), o.Password) && o.Password != "" {
		t.Error("the error contains the password")
	}
	return f
}

func TestCaseA6APositionTheServerDoesNotHaveIsNamed(t *testing.T) {
	s := master(t, "binlog-format=ROW")
	s.MustExec(t, "CREATE DATABASE d", "CREATE DATABASE e", "CREATE DATABASE f")
	for _, c := range []struct {
		after string
		want  error
		code  string
	}{
		{"0-1-500", binlog.ErrNotInBinlog, "position_unknown"},
		{"0-77-2", binlog.ErrDiverged, "position_diverged"},
	} {
		f := firstError(t, options(s), binlog.After(position(t, c.after)))
		if !errors.Is(f, c.want) || f.Code != c.code || f.Errno != 1236 {
			t.Errorf("%s: %s, error %d, want %s", c.after, f.Code, f.Errno, c.code)
		}
	}
}

func TestCaseA7PurgedBinaryLogsAreNamed(t *testing.T) {
	s := master(t)
	s.MustExec(t, "CREATE DATABASE d", "CREATE DATABASE e", "FLUSH BINARY LOGS", "CREATE DATABASE f",
		"FLUSH BINARY LOGS", "PURGE BINARY LOGS TO 'binlog.000003'")
	for _, after := range []string{"", "0-1-1"} {
		f := firstError(t, options(s), binlog.After(position(t, after)))
		if !errors.Is(f, binlog.ErrPurged) || f.Code != "position_purged" || f.Errno != 1236 {
			t.Errorf("%q: %s, error %d", after, f.Code, f.Errno)
		}
	}
}

func TestCaseA2ABinaryLogThatIsOffIsNamed(t *testing.T) {
	s := mariadb.Start(t, mariadb.Options{})
	s.MustExec(t, replAccount, replGrant)
	if f := firstError(t, options(s), binlog.Now()); !errors.Is(f, binlog.ErrBinlogOff) {
		t.Errorf("%s", f.Code)
	}
}

func TestTwoStreamsWithOneServerIDAreNamed(t *testing.T) {
	s := master(t)
	var one, two recorder
	run(t, options(s), binlog.Now(), &one)
	mariadb.Eventually(t, soon, one.connectedTimes(1))
	run(t, options(s), binlog.Now(), &two)
	mariadb.Eventually(t, soon, one.look(func(r *recorder) error {
		for _, d := range r.lost {
			if errors.Is(d.Err, binlog.ErrServerIDClash) {
				t.Log(d.Err)
				if pause := d.Retry.Sub(d.At); pause < time.Second {
					t.Errorf("comes back after %v: the two would throw each other out all the time", pause)
				}
				return nil
			}
		}
		return fmt.Errorf("no clash was told: %v", r.lost)
	}))
}

func TestWhatIsNotAReachableServerIsNamed(t *testing.T) {
	s := master(t)
	s.MustExec(t, "SET sql_log_bin=0", "CREATE USER plain@'%' IDENTIFIED BY 'secret'",
		"CREATE USER tls@'%' IDENTIFIED BY 'secret' REQUIRE SSL", "SET sql_log_bin=1")
	web := listen(t, func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") })
	hello := listen(t, func(c net.Conn) { _, _ = c.Write([]byte{3, 0, 0, 0, 10, 'x', 0}) })
	mute := listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	slam := listen(t, func(net.Conn) {})
	for _, c := range []struct {
		name   string
		change func(*binlog.Options)
		want   error
		errno  uint16
	}{
		{"nobody there", func(o *binlog.Options) { o.Address = "127.0.0.1:1" }, binlog.ErrRefused, 0},
		{"wrong password", func(o *binlog.Options) { o.Password = "wrong" }, binlog.ErrAccess, 1045},
		{"no privilege", func(o *binlog.Options) { o.User = "plain" }, binlog.ErrAccess, 1045},
		{"account that requires TLS", func(o *binlog.Options) { o.User = "tls" }, binlog.ErrAccess, 1045},
		{"server without TLS", func(o *binlog.Options) { o.TLS = &tls.Config{InsecureSkipVerify: true} }, binlog.ErrTLS, 0},
		{"a web server", func(o *binlog.Options) { o.Address = web }, binlog.ErrNotServer, 0},
		{"a truncated greeting", func(o *binlog.Options) { o.Address = hello }, binlog.ErrNotServer, 0},
		{"a mute server", func(o *binlog.Options) { o.Address = mute }, binlog.ErrSilent, 0},
		{"a server that hangs up", func(o *binlog.Options) { o.Address = slam }, binlog.ErrBroken, 0},
		{"another server", func(o *binlog.Options) { o.Identity = &topology.Identity{ServerID: 2} }, binlog.ErrForeign, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := options(s)
			o.DialTimeout = 700 * time.Millisecond
			c.change(&o)
			if f := firstError(t, o, binlog.Now()); !errors.Is(f, c.want) || f.Errno != c.errno {
				t.Errorf("%s, error %d, want %v, %d", f.Code, f.Errno, c.want, c.errno)
			}
		})
	}
}

func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c)
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}

func TestIdentityIsReadAndAccepted(t *testing.T) {
	s := master(t)
	var r recorder
	o := options(s)
	o.Identity = &topology.Identity{ServerID: 1, UID: s.MustValue(t, "SELECT @@server_uid"),
		Hostname: s.MustValue(t, "SELECT @@hostname"), Port: uint16(s.Port), DataDir: s.MustValue(t, "SELECT @@datadir")}
	run(t, o, binlog.Now(), &r)
	mariadb.Eventually(t, soon, r.connectedTimes(1))
	if got := r.connected[0]; got.Identity != *o.Identity || got.Version != s.MustValue(t, "SELECT @@version") {
		t.Errorf("%+v, want %+v", got, o.Identity)
	}
}

func TestTheStreamIsEncryptedAndVerified(t *testing.T) {
	dir := t.TempDir()
	good, files := certificate(t, dir, "good", "127.0.0.1", time.Now().Add(time.Hour))
	other, _ := certificate(t, dir, "other", "127.0.0.1", time.Now().Add(time.Hour))
	s := master(t, files...)
	s.MustExec(t, "CREATE USER tls@'%' IDENTIFIED BY 'secret' REQUIRE SSL", "GRANT REPLICATION SLAVE ON *.* TO tls@'%'")
	o := options(s)
	o.User, o.TLS = "tls", &tls.Config{RootCAs: good}
	var r recorder
	run(t, o, binlog.After(gtid.Position{}), &r)
	mariadb.Eventually(t, soon, r.has(now(t, s)))
	s.MustExec(t, "CREATE DATABASE d", "CREATE TABLE d.t (b LONGBLOB)",
		"SET GLOBAL max_allowed_packet=64*1024*1024")
	s.MustExec(t, "INSERT INTO d.t VALUES (REPEAT('x', 2000000))")
	mariadb.Eventually(t, soon, r.has(now(t, s)))
	compare(t, r.transactions(), listed(t, s))

	o.TLS = &tls.Config{RootCAs: other}
	f := firstError(t, o, binlog.Now())
	if !errors.Is(f, binlog.ErrTLS) || !strings.Contains(f.Cause, "issued by CN=good") {
		t.Errorf("%v", f)
	}
	o.TLS = &tls.Config{RootCAs: good, ServerName: "elsewhere.example"}
	if f := firstError(t, o, binlog.Now()); !errors.Is(f, binlog.ErrTLS) || !strings.Contains(f.Cause, "127.0.0.1") {
		t.Errorf("%v", f)
	}
}

// certificate makes a self-signed certificate and the server's lines for it.
func certificate(t *testing.T, dir, name, ip string, until time.Time) (*x509.CertPool, []string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.ParseIP(ip)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: until, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	pk, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for file, data := range map[string][]byte{certFile: certPEM,
		keyFile: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pk})} {
		if err := os.WriteFile(file, data, 0o644); err != nil { // the server runs as another user
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certPEM)
	return pool, []string{"ssl-cert=" + certFile, "ssl-key=" + keyFile, "ssl-ca=" + certFile}
}

func TestOptionsThatCannotWorkAreRefused(t *testing.T) {
	for _, o := range []binlog.Options{
		{Address: "127.0.0.1", ServerID: 9},
		{Address: "127.0.0.1:1"},
		{Address: "127.0.0.1:1", ServerID: 9, Heartbeat: time.Microsecond},
		{Address: "127.0.0.1:1", ServerID: 9, Heartbeat: time.Second, Silence: time.Second},
	} {
		if _, err := binlog.NewStream(o, binlog.Now(), &recorder{}); err == nil {
			t.Errorf("%#v was accepted", o)
		}
	}
	secret := binlog.Options{Address: "127.0.0.1:1", Password: "secret"}
	if text := fmt.Sprintf("%v %+v %#v %s", secret, secret, secret, secret); strings.Contains(text, "secret") {
		t.Errorf("a password is printed: %s", text)
	}
}

func TestAContextEndsAStream(t *testing.T) {
	s := master(t)
	ctx, cancel := context.WithCancel(context.Background())
	var r recorder
	stream, err := binlog.NewStream(options(s), binlog.Now(), &r)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); stream.Run(ctx) }()
	mariadb.Eventually(t, soon, r.connectedTimes(1))
	cancel()
	select {
	case <-done:
	case <-time.After(time.Second):
		t.Fatal("Run goes on after its context")
	}
	stream.Close()
	// The server, too, has lost the connection: it is really closed.
	mariadb.Eventually(t, soon, func() error {
		s.MustExec(t, "CREATE OR REPLACE DATABASE x")
		if n := s.MustValue(t, "SELECT COUNT(*) FROM information_schema.processlist WHERE user='repl'"); n != "0" {
			return fmt.Errorf("%s connections", n)
		}
		return nil
	})
}
