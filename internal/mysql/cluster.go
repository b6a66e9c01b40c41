package mysql

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/repld/repld/failover"
)

// Schema lists the statements that make repld's own schema: the replicated
// table by which a server's cluster, a rebuilt state file and a second repld
// are recognised.
func Schema() []string {
	return []string{
		"CREATE DATABASE IF NOT EXISTS repld CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
		"CREATE TABLE IF NOT EXISTS repld.cluster (" +
			"id VARCHAR(64) NOT NULL PRIMARY KEY, name VARCHAR(64) NOT NULL, epoch BIGINT UNSIGNED NOT NULL, " +
			"master VARCHAR(64) NOT NULL, durability VARCHAR(16) NOT NULL, ackers TEXT NOT NULL, " +
			"instance VARCHAR(64) NOT NULL, changed TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6)" +
			") ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin COMMENT='written by repld; do not edit'",
	}
}

// announce writes the row; epoch comes last because each assignment sees those
// before it.
func announce(ctx context.Context, c *Conn, row failover.ClusterRow) error {
	ackers, err := json.Marshal(append([]string{}, row.Ackers...))
	if err != nil {
		return fmt.Errorf("ackers: %w", err)
	}
	return c.Exec(ctx, "INSERT INTO repld.cluster (id, name, epoch, master, durability, ackers, instance) VALUES (?, ?, ?, ?, ?, ?, ?)"+
		" ON DUPLICATE KEY UPDATE name = IF(VALUES(epoch) < epoch, name, VALUES(name)), master = IF(VALUES(epoch) < epoch, master, VALUES(master)),"+
		" durability = IF(VALUES(epoch) < epoch, durability, VALUES(durability)), ackers = IF(VALUES(epoch) < epoch, ackers, VALUES(ackers)),"+
		" instance = IF(VALUES(epoch) < epoch, instance, VALUES(instance)), epoch = GREATEST(epoch, VALUES(epoch))",
		row.ClusterID, row.Cluster, row.Epoch, row.Master, row.Durability, string(ackers), row.Instance)
}

// ReadCluster reads the rows of repld.cluster; none if the table is not there.
func ReadCluster(ctx context.Context, c *Conn) ([]failover.ClusterRow, error) {
	const errNoSuchTable, errNoSuchSchema = 1146, 1049
	rows, err := c.Query(ctx, "SELECT id, name, epoch, master, durability, ackers, instance FROM repld.cluster ORDER BY id")
	if n := Errno(err); n == errNoSuchTable || n == errNoSuchSchema {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []failover.ClusterRow
	for i := range rows {
		r := &rows[i]
		row := failover.ClusterRow{ClusterID: r.String("id"), Cluster: r.String("name"), Epoch: r.Uint("epoch"),
			Master: r.String("master"), Durability: r.String("durability"), Instance: r.String("instance")}
		if err := json.Unmarshal([]byte(r.String("ackers")), &row.Ackers); err != nil {
			return nil, fmt.Errorf("%s: ackers in repld.cluster: %w", c.target.Label(), err)
		}
		out = append(out, row)
	}
	return out, nil
}
