package mysql

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/repld/repld/failover"
)

// heartbeatPeriod, in seconds, is how often an idle master tells its slaves
// that it is there: well below the hang timeout, for a slave that hears its
// master vetoes a failover.
const heartbeatPeriod = "0.5"

// changeMaster writes every option, because RESET SLAVE ALL leaves MASTER_SSL*
// and others behind and CHANGE MASTER keeps in silence what it is not told.
const changeMaster = "MASTER_HOST = ?, MASTER_PORT = ?, MASTER_USER = ?, MASTER_PASSWORD = ?," +
	" MASTER_SSL = 1, MASTER_SSL_VERIFY_SERVER_CERT = 1, MASTER_SSL_CA = ?, MASTER_SSL_CAPATH = ''," +
	" MASTER_SSL_CERT = ?, MASTER_SSL_KEY = ?, MASTER_SSL_CIPHER = '', MASTER_SSL_CRL = '', MASTER_SSL_CRLPATH = ''," +
	" MASTER_HEARTBEAT_PERIOD = " + heartbeatPeriod + ", MASTER_CONNECT_RETRY = 1, MASTER_DELAY = ?," +
	" IGNORE_SERVER_IDS = (), DO_DOMAIN_IDS = (), IGNORE_DOMAIN_IDS = (), MASTER_USE_GTID = slave_pos"

func (s *Server) changeMasterArgs(from failover.Source, delay time.Duration) []any {
	account := s.opts.Replication()
	return []any{hostOf(from.Host), from.Port, account.User, Secret(account.Password),
		from.CAFile, from.CertFile, from.KeyFile, int64(delay / time.Second)}
}

// Attach implements [failover.Server]. A server that is still armed as a
// master is fenced first: only so does nobody who waits there get an answer.
func (s *Server) Attach(ctx context.Context, to failover.Attachment) error {
	return s.do(ctx, "attach to "+to.Source.Name, func(c *effectConn) error {
		s.unlock()
		row, err := slaveRow(ctx, c, "")
		if err != nil {
			return err
		}
		now, err := c.QueryRow(ctx, "SELECT @@GLOBAL.read_only AS ro, @@GLOBAL.rpl_semi_sync_master_enabled AS armed,"+
			" @@GLOBAL.rpl_semi_sync_slave_enabled AS acker, @@GLOBAL.replicate_wild_do_table AS rule")
		if err != nil {
			return err
		}
		if !now.Bool("ro") || now.Bool("armed") {
			if err := s.fence(ctx, c); err != nil {
				return err
			}
		}
		if err := ownEventsOff(ctx, c.Conn); err != nil {
			return err
		}
		rule := wildDo(to.DoDB)
		if row != nil && attached(row, to) && now.Bool("acker") == to.Acker && now.String("rule") == rule {
			return nil
		}
		return s.attach(ctx, c, to, row, now.String("rule"), rule)
	})
}

func (s *Server) attach(ctx context.Context, c *effectConn, to failover.Attachment, slave *Row, oldRule, rule string) error {
	if slave != nil {
		if err := s.stopBoth(ctx, c, slave); err != nil {
			return err
		}
		if err := s.applyAsBefore(ctx, c, slave); err != nil {
			return err
		}
	}
	// Read by the IO thread when it starts, so it must stand before.
	if err := c.Exec(ctx, "SET GLOBAL rpl_semi_sync_slave_enabled = ?, GLOBAL rpl_semi_sync_slave_kill_conn_timeout = 1", to.Acker); err != nil {
		return err
	}
	if oldRule != rule {
		if err := c.Exec(ctx, "SET GLOBAL replicate_wild_do_table = ?", rule); err != nil {
			return err
		}
	}
	if to.StartAt != nil {
		if err := c.Exec(ctx, "SET GLOBAL gtid_slave_pos = ?", to.StartAt.String()); err != nil {
			return err
		}
	}
	if err := c.Exec(ctx, "CHANGE MASTER TO "+changeMaster, s.changeMasterArgs(to.Source, to.Delay)...); err != nil {
		return err
	}
	return c.Exec(ctx, c.facts.Dialect.startSlave)
}

// attached tells whether a slave already does what is wanted. An IO thread that
// is trying to connect counts: to start it anew would drop the relay log.
func attached(row *Row, to failover.Attachment) bool {
	for column, want := range map[string]string{
		"Master_Host": hostOf(to.Source.Host), "Using_Gtid": "Slave_Pos",
		"Master_SSL_Allowed": "Yes", "Master_SSL_Verify_Server_Cert": "Yes",
		"Master_SSL_CA_File": to.Source.CAFile, "Master_SSL_Cert": to.Source.CertFile, "Master_SSL_Key": to.Source.KeyFile,
		"Slave_SQL_Running": "Yes",
	} {
		if row.String(column) != want {
			return false
		}
	}
	return row.String("Slave_IO_Running") != "No" && row.Uint("Master_Port") == uint64(to.Source.Port) &&
		row.Uint("SQL_Delay") == uint64(to.Delay/time.Second)
}

// wildDo is replicate_wild_do_table for whole schemas. Unlike replicate_do_db
// it looks at the table that is changed, not at the current schema.
func wildDo(schemas []string) string {
	rules := make([]string, len(schemas))
	for i, db := range schemas {
		rules[i] = strings.NewReplacer(`\`, `\\`, `_`, `\_`, `%`, `\%`).Replace(db) + ".%"
	}
	return strings.Join(rules, ",")
}

// Fetch implements [failover.Server]. It fetches as no acker: a server that
// is being left behind must not be told that its tail is safe.
func (s *Server) Fetch(ctx context.Context, from failover.Source) error {
	return s.do(ctx, "fetch from "+from.Name, func(c *effectConn) error {
		row, err := slaveRow(ctx, c, RescueConnection)
		if err != nil {
			return err
		}
		if row != nil {
			same := row.String("Master_Host") == hostOf(from.Host) && row.Uint("Master_Port") == uint64(from.Port)
			if same && row.String("Slave_IO_Running") != "No" && row.String("Slave_SQL_Running") == "Yes" {
				return nil
			}
			if err := endFetch(ctx, c); err != nil {
				return err
			}
		}
		if err := c.Exec(ctx, "SET GLOBAL rpl_semi_sync_slave_enabled = 0"); err != nil {
			return err
		}
		args := append([]any{RescueConnection}, s.changeMasterArgs(from, 0)...)
		if err := c.Exec(ctx, "CHANGE MASTER ? TO "+changeMaster, args...); err != nil {
			return err
		}
		return c.Exec(ctx, "START SLAVE ?", RescueConnection)
	})
}

// EndFetch implements [failover.Server].
func (s *Server) EndFetch(ctx context.Context) error {
	return s.do(ctx, "end fetching", func(c *effectConn) error {
		row, err := slaveRow(ctx, c, RescueConnection)
		if err != nil || row == nil {
			return err
		}
		return endFetch(ctx, c)
	})
}

func endFetch(ctx context.Context, c *effectConn) error {
	if err := c.Exec(ctx, "STOP SLAVE ?", RescueConnection); err != nil {
		return err
	}
	if err := c.Exec(ctx, "RESET SLAVE ? ALL", RescueConnection); err != nil {
		return fmt.Errorf("remove the rescue connection: %w", err)
	}
	return nil
}
