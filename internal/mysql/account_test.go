package mysql

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/health"
	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/topology"
)

// TestNoPrivilegeOfTheDaemonIsNeedless takes each away in turn, and something
// must then fail with "access denied". All other tests run with exactly
// DaemonGrants.
func TestNoPrivilegeOfTheDaemonIsNeedless(t *testing.T) {
	n := rig(t, 2)
	n[0].lead()
	// A verb that needs the privilege, on a server where it has something to do.
	exercise := map[string]func(s *node) error{
		"PROCESS": func(s *node) error {
			defer s.sleeper()()
			if err := s.server.Fence(bounded(t)); err != nil {
				return err
			}
			return s.sleeping()
		},
		"CONNECTION ADMIN": func(s *node) error {
			defer s.sleeper()()
			return s.server.Fence(bounded(t))
		},
		"READ_ONLY ADMIN":          func(s *node) error { return s.server.Open(bounded(t), time.Second) },
		"REPLICATION SLAVE ADMIN":  func(s *node) error { return s.server.Attach(bounded(t), failover.Attachment{Source: n[0].source()}) },
		"REPLICATION MASTER ADMIN": func(s *node) error { return s.server.Arm(bounded(t), time.Second) },
		"SLAVE MONITOR": func(s *node) error {
			o := s.prober.Probe(bounded(t))
			if o.Errno == 0 {
				return nil
			}
			return fmt.Errorf("%d: access denied: %s", o.Errno, o.Err)
		},
		"BINLOG MONITOR": func(s *node) error {
			c, err := s.server.connect(bounded(t))
			if err != nil {
				return err
			}
			defer s.server.release(c)
			_, err = c.Query(bounded(t), "SHOW BINARY LOGS")
			return err
		},
		"RELOAD": func(s *node) error { return s.server.Detach(bounded(t)) },
		"SUPER": func(s *node) error {
			s.MustExec(t, "SET GLOBAL event_scheduler = ON")
			return s.server.Fence(bounded(t))
		},
		"EVENT":    func(s *node) error { return s.resumes("root@localhost") },
		"SET USER": func(s *node) error { return s.resumes("another@localhost") },
		"SELECT": func(s *node) error {
			_, err := ReadCluster(bounded(t), s.conn())
			return err
		},
		"INSERT": func(s *node) error { return s.server.Announce(bounded(t), failover.ClusterRow{ClusterID: "a"}) },
		"UPDATE": func(s *node) error {
			return s.server.Announce(bounded(t), failover.ClusterRow{ClusterID: "a", Epoch: 9})
		},
		"REPLICATION SLAVE": func(s *node) error {
			out, err := exec.Command("mariadb-binlog", "--no-defaults", "--read-from-remote-server", "--host=127.0.0.1", "--port="+port(s.Server),
				"--protocol=tcp", "--user="+daemonUser, "--password="+daemonPassword, "--ssl-ca="+s.ca.file, "binlog.000001").CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		},
	}
	// On 10.11 SUPER includes these, from 11.0 on it does not.
	implied := map[string]bool{"CONNECTION ADMIN": true, "REPLICATION SLAVE ADMIN": true, "REPLICATION MASTER ADMIN": true,
		"SLAVE MONITOR": true, "BINLOG MONITOR": true, "SET USER": true}
	s := n[1]
	account := QuoteAccount(daemonUser, "%")
	for _, g := range DaemonGrants() {
		for _, p := range g.Privileges {
			t.Run(p, func(t *testing.T) {
				verb := exercise[p]
				if verb == nil {
					t.Fatal("nothing needs it")
				}
				s.MustExec(t, "SET GLOBAL read_only = 1", "STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL rpl_semi_sync_slave_enabled = 0",
					"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = 1, MASTER_USER = 'x'")
				s.MustExec(t, fmt.Sprintf("REVOKE %s ON %s FROM %s", p, g.On, account))
				if implied[p] {
					s.MustExec(t, "REVOKE SUPER ON *.* FROM "+account)
					defer s.MustExec(t, "GRANT SUPER ON *.* TO "+account)
				}
				s.fresh()
				if err := verb(s); err == nil || !refused(err) {
					t.Errorf("without it: %v", err)
				}
				s.MustExec(t, fmt.Sprintf("GRANT %s ON %s TO %s", p, g.On, account))
				s.fresh()
				if err := verb(s); err != nil {
					t.Errorf("with it: %v", err)
				}
			})
		}
	}
}

// resumes lets an event run that is another account's.
func (n *node) resumes(definer string) error {
	n.MustExec(n.t, "CREATE DATABASE IF NOT EXISTS evt", "CREATE OR REPLACE DEFINER = "+definer+" EVENT evt.e ON SCHEDULE EVERY 1 DAY DISABLE ON SLAVE DO SELECT 1")
	e, err := n.server.Events(bounded(n.t), &topology.Events{Enabled: []topology.Event{{Schema: "evt", Name: "e"}}})
	if err == nil && len(e.Enabled) == 0 {
		return errors.New("access denied: the event is not seen")
	}
	return err
}

// refused tells whether the server said no, or a client's session was not seen.
func refused(err error) bool {
	const errNotOwner = 1095
	return strings.Contains(strings.ToLower(err.Error()), "denied") || strings.Contains(err.Error(), "sleeps") || Errno(err) == errNotOwner
}

// fresh drops the open connections: privileges are read at login.
func (n *node) fresh() {
	_ = n.server.Close()
	_ = n.prober.Close()
	n.server = NewServer(n.server.opts)
	n.prober = NewProber(n.prober.opts)
}

// sleeper is a client whose session must not survive a fence.
func (n *node) sleeper() (end func()) {
	n.t.Helper()
	c, err := Dial(bounded(n.t), Target{Address: n.Addr(), User: n.AdminUser, Password: n.AdminPassword})
	n.must(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Exec(context.Background(), "SELECT SLEEP(25)")
	}()
	mariadb.Eventually(n.t, 5*time.Second, func() error {
		if n.sleeping() == nil {
			return errors.New("not yet asleep")
		}
		return nil
	})
	return func() {
		c.wire.shut()
		<-done
		_ = c.Close()
	}
}

func (n *node) sleeping() error {
	n.t.Helper()
	if got := n.MustValue(n.t, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE 'SELECT SLEEP%'"); got != "0" {
		return errors.New("a client still sleeps")
	}
	return nil
}

func TestTheAccountsComeOnlyByTLS(t *testing.T) {
	n := rig(t, 1)[0]
	for user, password := range map[string]string{daemonUser: daemonPassword, replicationUser: replicationPassword} {
		_, err := Dial(bounded(t), Target{Address: n.Addr(), User: user, Password: password})
		if Errno(err) != 1045 {
			t.Errorf("%s in clear text: %v", user, err)
		}
		c, err := Dial(bounded(t), Target{Address: n.Addr(), User: user, Password: password, TLS: n.target().TLS})
		if err != nil {
			t.Fatal(err)
		}
		row, err := c.QueryRow(bounded(t), "SHOW SESSION STATUS LIKE 'Ssl_cipher'")
		if err != nil || row.String("Value") == "" || !c.TLS() {
			t.Errorf("%s: cipher %v %v", user, row, err)
		}
		_ = c.Close()
	}
}

// TestASecretNeverShowsInAnError, not even where the server repeats the statement.
func TestASecretNeverShowsInAnError(t *testing.T) {
	c := rig(t, 1)[0].conn()
	const secret = "s3cret'with quote"
	for _, statement := range []string{"CREATE USRE x IDENTIFIED BY ?", "ALTER USER nobody@'%' IDENTIFIED BY ? WITH NONSENSE", "DO ? ?", "DO 1"} {
		err := c.Exec(bounded(t), statement, Secret(secret))
		if err == nil {
			t.Fatalf("%s succeeded", statement)
		}
		if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%v", err)
		}
	}
	if err := c.Exec(bounded(t), "SELECT 1"); err != nil {
		t.Errorf("the connection is lost: %v", err)
	}
	for _, s := range []string{fmt.Sprintf("%v", Target{Password: secret}), fmt.Sprintf("%+v", Target{Password: secret}), fmt.Sprintf("%#v", Target{Password: secret}),
		fmt.Sprintf("%+v", Credentials{"u", secret}), fmt.Sprintf("%#v", Credentials{"u", secret})} {
		if strings.Contains(s, "s3cret") {
			t.Errorf("%s", s)
		}
	}
}

func TestValuesAndNamesComeBackAsTheyWere(t *testing.T) {
	n := rig(t, 1)[0]
	n.MustExec(t, "SET GLOBAL sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'", "SET GLOBAL autocommit = 0")
	c := n.conn()
	for _, value := range []string{`it's`, `back\slash`, "new\nline", "nul\x00byte", `"`, "`", "ünï", `\' OR 1=1 -- `, "%_"} {
		row, err := c.QueryRow(bounded(t), "SELECT ? AS argument, "+QuoteString(value)+" AS quoted, 1 AS "+QuoteName(value+"x"), value)
		if err != nil {
			t.Errorf("%q: %v", value, err)
			continue
		}
		if row.String("argument") != value || row.String("quoted") != value || row.Uint(strings.ReplaceAll(value, "\x00", "")+"x") != 1 {
			t.Errorf("%q came back as %q and %q", value, row.String("argument"), row.String("quoted"))
		}
	}
	row, err := c.QueryRow(bounded(t), "SELECT NULL AS a, 18446744073709551615 AS b, 1.5 AS c")
	if err != nil || !row.Null("a") || row.Uint("b") != 18446744073709551615 || row.Float("c") != 1.5 || !row.Null("absent") || row.Has("absent") || !row.Has("a") {
		t.Errorf("%+v %v", row, err)
	}
}

func TestALockTellsATwinFromOnesOwnCrashedProcess(t *testing.T) {
	n := rig(t, 1)[0]
	long := strings.Repeat("c", 60)
	first, err := TakeLock(bounded(t), n.target(), long, "instance-1", n.seen)
	n.must(err)
	if _, err := TakeLock(bounded(t), n.target(), long, "instance-2", &Sessions{}); !errors.Is(err, ErrManaged) {
		t.Errorf("a twin: %v", err)
	}
	if _, err := TakeLock(bounded(t), n.target(), long, "instance-1", n.seen); !errors.Is(err, ErrManaged) {
		t.Errorf("the same process again: %v", err)
	}
	other, err := TakeLock(bounded(t), n.target(), "another cluster", "instance-2", &Sessions{})
	n.must(err)
	n.must(other.Close())
	n.must(first.Check(bounded(t)))
	// The process of instance-1 crashes and its session lingers on the server.
	again, err := TakeLock(bounded(t), n.target(), long, "instance-1", &Sessions{})
	n.must(err)
	if err := first.Check(bounded(t)); err == nil {
		t.Error("the crashed session still holds the lock")
	}
	n.must(again.Check(bounded(t)))
	n.must(again.Close())
	_ = first.Close()
	mariadb.Eventually(t, 5*time.Second, func() error {
		l, err := TakeLock(bounded(t), n.target(), long, "instance-2", &Sessions{})
		if err == nil {
			err = l.Close()
		}
		return err
	})
}

func TestOldAndForeignVersionsAreRefusedWithTheReason(t *testing.T) {
	for text, want := range map[string]string{
		"10.11.19-MariaDB-0+deb12u1-log": "", "11.8.9-MariaDB": "", "5.5.5-10.11.2-MariaDB-log": "",
		"10.6.16-MariaDB": "10.11 is the oldest", "10.11": "manages MariaDB", "9.7.4": "manages MariaDB", "8.0.36-28 Percona": "manages MariaDB",
		"nonsense": "want major.minor.patch", "a.b-MariaDB": "is no number",
	} {
		d, err := DialectFor(text)
		if want == "" {
			if err != nil || d == nil {
				t.Errorf("%s: %v", text, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestCaseA16_TheSlaveStatusHangsAndTheServerIsAlive: the disk of the relay log
// is full, in a file system of its own.
func TestCaseA16_TheSlaveStatusHangsAndTheServerIsAlive(t *testing.T) {
	disk := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=10m,mode=1777", "tmpfs", disk).CombinedOutput(); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v %s", err, out)
	}
	for _, d := range []string{disk, disk + "/..", disk + "/../.."} {
		_ = os.Chmod(d, 0o777)
	}
	n := rig(t, 1)
	master := n[0]
	slaveServer := mariadb.Start(t, mariadb.Options{Config: append(append(mariadb.Replicating(2), "read-only=1", "relay-log="+disk+"/relay"),
		master.ca.server("db2", tomorrow(), "127.0.0.1")...)})
	t.Cleanup(func() {
		_ = slaveServer.Kill()
		if out, err := exec.Command("umount", disk).CombinedOutput(); err != nil {
			t.Errorf("umount: %v %s", err, out)
		}
	})
	slave := newNode(t, slaveServer, master.ca)
	master.lead()
	master.MustExec(t, "CREATE TABLE app.big (id INT PRIMARY KEY, b LONGBLOB)")
	slave.follow(master, false)
	slave.MustExec(t, "STOP SLAVE SQL_THREAD")
	for i := range 5 {
		master.MustExec(t, "SET SESSION binlog_format = ROW", fmt.Sprintf("INSERT INTO app.big VALUES (%d, REPEAT('x', 3000000))", i))
	}
	mariadb.Eventually(t, 15*time.Second, func() error {
		if slave.MustValue(t, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE LIKE 'Waiting for someone to free space%'") == "0" {
			return errors.New("the disk is not full yet")
		}
		return nil
	})
	var o health.Observation
	for range 5 {
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		o = slave.prober.Probe(ctx)
		cancel()
		if !o.Reach.Answers() || o.Reach == health.ReachOK || !strings.Contains(o.Err, "slave status does not answer") {
			t.Fatalf("%q: %s", o.Reach, o.Err)
		}
	}
	if hung := slave.MustValue(t, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE '%SLAVES STATUS' AND INFO NOT LIKE '%PROCESSLIST%' AND USER = 'repld'"); hung != "1" {
		all, err := slave.Rows(bounded(t), "SELECT ID, COMMAND, TIME_MS, STATE, INFO FROM information_schema.PROCESSLIST")
		t.Errorf("%s sessions hang in the slave status, want one: %v %v", hung, all, err)
	}
	t.Logf("says: %s", o.Err)
	// Effects that do not need the slave status are not held up by the one that hangs.
	slave.must(slave.server.Disarm(bounded(t)))
	// A restart ends what hung; the prober must not go by the old session's number.
	if out, err := exec.Command("mount", "-o", "remount,size=100m", disk).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	slave.must(slave.Kill())
	slave.must(slave.StartAgain(bounded(t)))
	slave.until("ok again", func(o health.Observation) bool { return o.Reach == health.ReachOK && o.Slave != nil })
}
