package e2e

import (
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

	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/test/rig"
)

// What a user gets wrong on the way to the first master is told in four parts
// and changes nothing; then the right command works all the same.
func TestBadInputBeforeTheFirstMaster(t *testing.T) {
	r := start(t, rig.Options{Servers: 1})
	if err := r.StartRepld(within(t)); err != nil {
		t.Fatal(err)
	}
	db1 := r.Servers[0]
	before := footprint(t, db1)
	t.Run("wrong_password", func(t *testing.T) {
		wrong := writeFile(t, filepath.Join(r.Dir, "wrong"), "not-the-password-7\n", 0o600)
		f := wantFaultBoth(t, r, 1, "access_denied", initMaster(r, db1, "--admin-password-file", wrong), "db1", "1045", "admin")
		if f.Error.ServerErrno == nil || *f.Error.ServerErrno != 1045 || f.Error.Server == nil || *f.Error.Server != "db1" {
			t.Errorf("%+v", f.Error)
		}
	})
	t.Run("unreachable_port", func(t *testing.T) {
		port, err := r.Kit.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		address := fmt.Sprintf("127.0.0.1:%d", port)
		wantFaultBoth(t, r, 1, "unreachable", initMaster(r, db1, "--address", address), "db1", address, "refused")
	})
	t.Run("unknown_host", func(t *testing.T) {
		wantFaultBoth(t, r, 1, "unknown_host", initMaster(r, db1, "--address", "no-such-host.invalid:3306"), "no-such-host.invalid")
	})
	t.Run("not_a_mysql_server", func(t *testing.T) {
		wantFaultBoth(t, r, 1, "not_mysql", initMaster(r, db1, "--address", listener(t, "SSH-2.0-OpenSSH_9.2\r\n")), "db1")
	})
	t.Run("a_port_that_says_nothing", func(t *testing.T) {
		begun := time.Now()
		wantFault(t, r.Ctl(within(t), initMaster(r, db1, "--address", listener(t, ""))...), 1, "no_answer", "db1")
		if took := time.Since(begun); took > 15*time.Second {
			t.Errorf("it took %v to find out", took)
		}
	})
	t.Run("wrong_ca", func(t *testing.T) {
		caA, keyA := authority(t, "A")
		cert, key := certificate(t, caA, keyA)
		caB, _ := authority(t, "B")
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		args := initMaster(r, db1,
			"--ssl-ca", writeFile(t, filepath.Join(dir, "ca.pem"), string(pemOf("CERTIFICATE", caB.Raw)), 0o644),
			"--ssl-cert", writeFile(t, filepath.Join(dir, "cert.pem"), string(cert), 0o644),
			"--ssl-key", writeFile(t, filepath.Join(dir, "key.pem"), string(key), 0o644))
		wantFaultBoth(t, r, 1, "tls", args, "db1", "authority")
	})
	t.Run("statement_format", func(t *testing.T) {
		wantFaultBoth(t, r, 2, "statement_format", initMaster(r, db1, "--binlog-format", "statement"), "UUID")
	})
	t.Run("a_bad_server_id", func(t *testing.T) {
		wantFault(t, r.Ctl(within(t), initMaster(r, db1, "--server-id", "many")...), 2, "usage")
	})
	t.Run("a_slave_without_a_master", func(t *testing.T) {
		wantFaultBoth(t, r, 5, "no_master", initSlave(r, db1), "init master")
	})
	t.Run("not_confirmed", func(t *testing.T) {
		args := without(initMaster(r, db1), "--yes")
		args = changed(args, []string{"--restart", ""})
		wantFaultBoth(t, r, 8, "not_confirmed", args, "--yes", "restart")
	})
	t.Run("dry_run", func(t *testing.T) {
		out := r.Ctl(within(t), append(initMaster(r, db1), "--dry-run")...)
		if out.Code != 0 || !strings.Contains(out.Stdout, "restart") || !strings.Contains(out.Stdout, "outage") {
			t.Errorf("exit %d\n%s%s", out.Code, out.Stdout, out.Stderr)
		}
		for _, line := range []string{"[mysqld]", "read_only", "log_bin"} {
			if !strings.Contains(strings.ReplaceAll(out.Stdout, "-", "_"), line) {
				t.Errorf("the plan does not show the drop-in (%s):\n%s", line, out.Stdout)
			}
		}
	})
	sameFootprint(t, "what was refused or only planned", before, footprint(t, db1))
	if st := status(t, r); len(st.Servers) != 0 || st.Health != "no_master" {
		t.Errorf("something was recorded: %+v", st)
	}
	if err := r.InitMaster(within(t), db1); err != nil {
		t.Error(err)
	}
}

// The restart command is the user's: it can fail, do nothing, or leave the
// server down. What is left is said, and the same verb goes on.
func TestBadInputRestartCommand(t *testing.T) {
	r := start(t, rig.Options{Servers: 1})
	if err := r.StartRepld(within(t)); err != nil {
		t.Fatal(err)
	}
	db1 := r.Servers[0]
	script := func(name, text string) string {
		return writeFile(t, filepath.Join(r.Dir, name), "#!/bin/sh\n"+text+"\n", 0o755)
	}
	t.Run("there_is_no_such_command", func(t *testing.T) {
		wantFault(t, r.Ctl(within(t), append(initMaster(r, db1, "--restart-command", "/no/such/program"), "-o", "json")...), 1, "restart_failed", "/no/such/program", "runs as before")
	})
	t.Run("it_fails", func(t *testing.T) {
		command := script("fails", "echo unit mariadb is masked >&2; exit 5")
		f := wantFault(t, r.Ctl(within(t), append(initMaster(r, db1, "--restart-command", command), "-o", "json")...), 1, "restart_failed", "exit status 5", "unit mariadb is masked", "runs as before")
		if !strings.Contains(f.Error.State, "drop-in") {
			t.Errorf("the drop-in that is left is not named: %+v", f.Error)
		}
	})
	t.Run("it_does_nothing", func(t *testing.T) {
		wantFault(t, r.Ctl(within(t), initMaster(r, db1, "--restart-command", "/bin/true")...), 1, "restart_not_back", "still runs as before")
	})
	if v := db1.MustValue(t, "SELECT @@read_only"); v != "0" {
		t.Errorf("a server that was not restarted has read_only=%s", v)
	}
}

// A server that the restart command stops and does not start is given up after
// a minute; once it is started, the same verb goes on.
func TestBadInputServerThatNeverComesBack(t *testing.T) {
	r := start(t, rig.Options{Servers: 1})
	if err := r.StartRepld(within(t)); err != nil {
		t.Fatal(err)
	}
	db1 := r.Servers[0]
	command := writeFile(t, filepath.Join(r.Dir, "stops"), fmt.Sprintf("#!/bin/sh\nkill -9 %d\n", db1.Pid()), 0o755)
	out := r.Ctl(t.Context(), append(initMaster(r, db1, "--restart-command", command), "-o", "json")...)
	wantFault(t, out, 1, "restart_not_back", "does not answer", "refused")
	if db1.Running() {
		t.Error("the server runs")
	}
	if err := db1.StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := r.InitMaster(within(t), db1); err != nil {
		t.Fatal(err)
	}
	if st := status(t, r); *st.Master != "db1" {
		t.Errorf("%+v", st)
	}
	if v := db1.MustValue(t, "SELECT @@read_only"); v != "0" {
		t.Errorf("the master has read_only=%s", v)
	}
}

// A configuration that repld may not write ends in exit 7 with the drop-in on
// stdout; placed by hand, with the restart, the same verb goes on.
func TestBadInputConfigurationNotWritable(t *testing.T) {
	r := start(t, rig.Options{Servers: 1})
	if err := r.StartRepld(within(t)); err != nil {
		t.Fatal(err)
	}
	db1 := r.Servers[0]
	before := footprint(t, db1)
	// Permissions are no barrier to root: a folder that is not there is.
	args := initMaster(r, db1, "--config-file", filepath.Join(r.Dir, "none", "99-repld.cnf"))
	out := r.Ctl(within(t), args...)
	wantFault(t, out, 7, "config_not_writable", "db1", "99-repld.cnf", "run the command again")
	for _, line := range []string{"[mysqld]", "read_only", "log_bin"} {
		if !strings.Contains(strings.ReplaceAll(out.Stdout, "-", "_"), line) {
			t.Errorf("%s is missing on stdout:\n%s", line, out.Stdout)
		}
	}
	wantFault(t, r.Ctl(within(t), append(args, "-o", "json")...), 7, "config_not_writable")
	sameFootprint(t, "exit 7", before, footprint(t, db1))

	// Now a command on the other end that refuses to write.
	refuses := writeFile(t, filepath.Join(r.Dir, "refuses"), "#!/bin/sh\ncat >/dev/null\necho permission denied >&2\nexit 1\n", 0o755)
	out = r.Ctl(within(t), initMaster(r, db1, "--config-command", refuses)...)
	wantFault(t, out, 7, "config_not_writable", "permission denied")

	// A person places what was printed, as the error says, and restarts.
	writeFile(t, db1.DropInPath(), out.Stdout, 0o644)
	if err := db1.Restart(within(t)); err != nil {
		t.Fatal(err)
	}
	out = r.Ctl(within(t), initMaster(r, db1, "--config-command", refuses)...)
	if out.Code != 0 {
		t.Fatalf("it does not go on: %v", out.Err())
	}
	if v := db1.MustValue(t, "SELECT @@read_only"); v != "0" {
		t.Errorf("the master has read_only=%s", v)
	}
	if out = r.Ctl(within(t), initMaster(r, db1, "--config-command", refuses)...); out.Code != 0 || !strings.Contains(out.Stdout, "nothing to do") {
		t.Errorf("a further run: %v", out.Err())
	}
}

// A server older than what is supported is refused, as a master and as a slave.
// The server is a real one that is told to announce itself as older.
func TestBadInputOldServer(t *testing.T) {
	r := start(t, rig.Options{Servers: 1})
	old, err := r.Kit.Start(within(t), mariadb.Options{Name: "old", Args: []string{"--version=10.5.29-MariaDB"}})
	if err != nil {
		t.Fatal(err)
	}
	if v := old.MustValue(t, "SELECT @@version"); !strings.HasPrefix(v, "10.5.") {
		t.Fatalf("it announces %s", v)
	}
	if err := r.StartRepld(within(t)); err != nil {
		t.Fatal(err)
	}
	before := footprint(t, old)
	wantFaultBoth(t, r, 5, "version", initMaster(r, old), "old", "10.5.29", "10.11")
	if err := r.InitMaster(within(t), r.Servers[0]); err != nil {
		t.Fatal(err)
	}
	wantFaultBoth(t, r, 5, "version", initSlave(r, old), "old", "10.5.29", "10.11")
	sameFootprint(t, "the refusal", before, footprint(t, old))
}

// authority makes a certificate authority of the test's own.
func authority(t *testing.T, name string) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority " + name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// certificate makes a server's certificate for loopback, as PEM.
func certificate(t *testing.T, ca *x509.Certificate, caKey *ecdsa.PrivateKey) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "db"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca, &private.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pemOf("CERTIFICATE", der), pemOf("EC PRIVATE KEY", raw)
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
