package mariadb

import (
	"context"
	"fmt"
)

// Follow makes s a slave of master by plain GTID replication as the
// administrator, without TLS or semi-sync, and waits until both threads run: for
// tests that need replication but not repld's own set-up of it. Both servers
// want [Replicating] settings.
func (s *Server) Follow(ctx context.Context, master *Server) error {
	err := s.Exec(ctx, "STOP SLAVE", fmt.Sprintf(
		"CHANGE MASTER TO MASTER_HOST='%s', MASTER_PORT=%d, MASTER_USER='%s', MASTER_PASSWORD='%s', MASTER_CONNECT_RETRY=1, MASTER_HEARTBEAT_PERIOD=1, MASTER_USE_GTID=slave_pos",
		master.Host, master.Port, master.AdminUser, master.AdminPassword), "START SLAVE")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return Wait(ctx, func() error {
		row, err := s.Row(ctx, "SHOW SLAVE STATUS")
		if err != nil {
			return err
		}
		if row["Slave_IO_Running"] != "Yes" || row["Slave_SQL_Running"] != "Yes" {
			return fmt.Errorf("server %s: IO thread %s, SQL thread %s (%s %s)", s.Name,
				row["Slave_IO_Running"], row["Slave_SQL_Running"], row["Last_IO_Error"], row["Last_SQL_Error"])
		}
		return nil
	})
}

// CatchUp waits until s, a slave, has applied all that master has committed.
func (s *Server) CatchUp(ctx context.Context, master *Server) error {
	position, err := master.Value(ctx, "SELECT @@global.gtid_binlog_pos")
	if err != nil {
		return err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	return Wait(ctx, func() error {
		v, err := s.Value(ctx, "SELECT MASTER_GTID_WAIT(?, 0)", position)
		if err == nil && v != "0" {
			err = fmt.Errorf("server %s has not reached %s of %s", s.Name, position, master.Name)
		}
		return err
	})
}
