package partition

import (
	"database/sql"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/ledger"
)

// A14: while the master is frozen, how far its slaves are behind is unknown: the
// server says 0 seconds, repld never 0.
func TestCaseA14_LagBehindAFrozenMasterIsUnknown(t *testing.T) {
	t.Parallel()
	c := up(t, 3, "failover: {mode: manual}")
	c.must(ledger.Install(c.soon(), c.Server("db1")))
	c.until("a known lag", func(st *api.Status) bool {
		return serverStatus(st, "db2").LagMS != nil && serverStatus(st, "db3").LagMS != nil
	})
	c.must(c.Server("db1").Freeze())
	frozen := time.Now()
	c.untilProblem("master_hung")
	for time.Since(frozen) < 4*time.Second {
		st, err := c.Status(c.soon())
		c.must(err)
		for _, name := range []string{"db2", "db3"} {
			if s := serverStatus(st, name); time.Since(frozen) > hangTimeout+time.Second && s.LagMS != nil {
				t.Fatalf("%v after the freeze %s is said to be %d ms behind", time.Since(frozen), name, *s.LagMS)
			}
		}
	}
	row, err := c.Server("db2").Row(c.soon(), "SHOW SLAVE STATUS")
	c.must(err)
	t.Logf("the slave itself says IO thread %s, %s seconds behind", row["Slave_IO_Running"], row["Seconds_Behind_Master"])
	c.must(c.Server("db1").Thaw())
	c.until("a known lag again", func(st *api.Status) bool {
		return st.Health == "healthy" && serverStatus(st, "db2").LagMS != nil && serverStatus(st, "db3").LagMS != nil
	})
	c.noFailover()
}

// A22: the only acker is frozen, or killed. That is no death of the master; it is
// said at once that nothing protects it, zero loss is claimed no more once
// commits go on alone, and it is armed again when the acker is back.
func TestCaseA22_TheOnlyAckerIsGone(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"frozen", "killed"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			c := up(t, 2, "semi_sync: {ack_timeout: 4s, server_timeout: 2m}")
			c.write(app1)
			acker := c.Server("db2")
			gone := time.Now()
			if how == "frozen" {
				c.must(acker.Freeze())
			} else {
				c.must(acker.Kill())
			}
			c.until("the alarm", func(st *api.Status) bool {
				return st.Health == "degraded" && find(st.Problems, "no_acker") != nil && find(st.Problems, "no_promotable_slave") != nil &&
					st.Forecast.Candidate == nil && len(st.Forecast.BlockedBecause) > 0
			})
			t.Logf("alarm after %v", time.Since(gone).Round(time.Millisecond))
			c.untilProblem("durability_degraded")
			t.Logf("degraded after %v", time.Since(gone).Round(time.Millisecond))
			c.goesOn(50, 1)
			c.stays(time.Second, "no claim of zero loss", func(st *api.Status) bool {
				return st.Epoch == 1 && (st.Forecast.TransactionsAtRisk == nil || *st.Forecast.TransactionsAtRisk > 0)
			})
			if how == "frozen" {
				c.must(acker.Thaw())
			} else {
				c.must(acker.StartAgain(c.soon()))
			}
			if st := c.healthy(); st.Durability.State != "armed" {
				t.Errorf("%+v", st.Durability)
			}
			c.noFailover()
			c.settle()
		})
	}
}

// A17: a master that is unkind is alive, and repld that does not run is no
// silence of the master. Status names what is wrong, and nothing is promoted.
func TestCaseA17_NoFailoverOfAMasterThatIsAlive(t *testing.T) {
	t.Parallel()
	c := up(t, 3, quick)
	master := c.Server("db1")
	c.write(app1)
	only := func(st *api.Status) bool { return st.Epoch == 1 && *st.Master == "db1" && st.Health != "failing_over" }

	t.Run("too many connections", func(t *testing.T) {
		admin, err := master.Conn(t.Context())
		c.must(err)
		defer admin.Close()
		set := func(n string) {
			_, err := admin.ExecContext(t.Context(), "SET GLOBAL max_connections = "+n)
			c.must(err)
		}
		// So many that not even the place in reserve is left, by which repld, as an
		// administrator, would still get in.
		release := c.occupy(app2, 30)
		set("10")
		c.dropRepld(admin)
		c.unkind(t, "1040")
		c.stays(2*time.Second, "left alone", only)
		release()
		set("151")
	})
	c.healthy()
	t.Run("access denied", func(t *testing.T) {
		hash := master.MustValue(t, "SELECT authentication_string FROM mysql.user WHERE User = 'repld'")
		master.MustExec(t, "SET sql_log_bin = 0", "ALTER USER 'repld'@'%' IDENTIFIED BY 'another-one-1'")
		admin, err := master.Conn(t.Context())
		c.must(err)
		defer admin.Close()
		c.dropRepld(admin)
		c.unkind(t, "1045")
		c.stays(2*time.Second, "left alone", only)
		master.MustExec(t, "SET sql_log_bin = 0", "ALTER USER 'repld'@'%' IDENTIFIED BY PASSWORD '"+hash+"'")
	})
	c.healthy()
	t.Run("a global read lock", func(t *testing.T) {
		conn, err := master.Conn(t.Context())
		c.must(err)
		_, err = conn.ExecContext(t.Context(), "FLUSH TABLES WITH READ LOCK")
		c.must(err)
		c.stays(3*time.Second, "left alone", only)
		c.must(conn.Close())
	})
	t.Run("a slow query", func(t *testing.T) {
		master.MustExec(t, "SELECT SLEEP(3)")
		c.stays(100*time.Millisecond, "left alone", only)
	})
	t.Run("repld does not run", func(t *testing.T) {
		for _, d := range []time.Duration{500 * time.Millisecond, 4 * time.Second} {
			c.must(syscall.Kill(c.Repld.Pid(), syscall.SIGSTOP))
			time.Sleep(d)
			c.must(syscall.Kill(c.Repld.Pid(), syscall.SIGCONT))
			c.stays(time.Second, "left alone", only)
		}
	})
	c.goesOn(50, 1)
	c.healthy()
	c.noFailover()
	c.settle()
}

// unkind waits until status names the error with which the master refuses repld.
func (c *cluster) unkind(t *testing.T, errno string) {
	t.Helper()
	c.until("the master's error "+errno, func(st *api.Status) bool {
		p := find(st.Problems, "master_unkind")
		return p != nil && strings.Contains(p.Text, "error "+errno)
	})
}

// occupy opens idle sessions on the master until they are released.
func (c *cluster) occupy(node string, sessions int) (release func()) {
	c.t.Helper()
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net, cfg.Addr = ledger.User, ledger.Password, "tcp", c.Server("db1").Addr()
	cfg.DialFunc, cfg.Logger = c.net.Node(node).Dial, &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	c.must(err)
	db := sql.OpenDB(connector)
	held := make([]*sql.Conn, sessions)
	for i := range held {
		held[i], err = db.Conn(c.soon())
		c.must(err)
	}
	return func() {
		for _, conn := range held {
			_ = conn.Close()
		}
		_ = db.Close()
	}
}

// dropRepld ends all of repld's sessions on a server.
func (c *cluster) dropRepld(admin *sql.Conn) {
	c.t.Helper()
	rows, err := admin.QueryContext(c.soon(), "SELECT ID FROM information_schema.PROCESSLIST WHERE USER = 'repld'")
	c.must(err)
	var ids []string
	for rows.Next() {
		var id string
		c.must(rows.Scan(&id))
		ids = append(ids, id)
	}
	c.must(errors.Join(rows.Err(), rows.Close()))
	for _, id := range ids {
		_, _ = admin.ExecContext(c.soon(), "KILL "+id) // it may have ended by itself
	}
}
