package mysql

import (
	"context"
	"strconv"
	"time"

	"github.com/repld/repld/internal/gtid"
)

// streamHost is how repld's own binary log stream calls itself.
const streamHost = "repld"

// factsReplication reads who replicates from the server and from whom it does.
func factsReplication(ctx context.Context, c *Conn, f *AdminFacts) error {
	if isOn(f.Value("log_bin")) {
		row, err := c.QueryRow(ctx, "SHOW MASTER STATUS")
		if err != nil && Errno(err) == 0 {
			return err
		}
		if err == nil && row != nil {
			f.BinlogDoDB, f.BinlogIgnoreDB = row.String("Binlog_Do_DB"), row.String("Binlog_Ignore_DB")
		}
	}
	rows, err := c.Query(ctx, "SHOW SLAVE HOSTS")
	if err != nil && Errno(err) == 0 {
		return err
	}
	for i := range rows {
		r := &rows[i]
		if r.String("Host") == streamHost {
			continue // a stream of repld's own
		}
		f.Slaves = append(f.Slaves, SlaveHost{ServerID: uint32(r.Uint("Server_id")), Host: r.String("Host"), Port: uint16(r.Uint("Port"))})
	}
	f.DumpThreads, err = column(ctx, c, "SELECT HOST FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%' AND USER <> ?", UserRepld)
	if err != nil && Errno(err) == 0 {
		return err
	}
	f.Sources, err = Sources(ctx, c)
	if Errno(err) != 0 {
		return nil // not allowed to: the rule about privileges says so
	}
	return err
}

// Sources reads the replication connections that are configured on a server.
func Sources(ctx context.Context, c *Conn) ([]SourceStatus, error) {
	rows, err := c.Query(ctx, "SHOW ALL SLAVES STATUS")
	if err != nil {
		return nil, err
	}
	var out []SourceStatus
	for i := range rows {
		r := &rows[i]
		received, err := gtid.ParsePosition(r.String("Gtid_IO_Pos"))
		if err != nil {
			return nil, err
		}
		out = append(out, SourceStatus{
			Connection: r.String("Connection_name"), Host: r.String("Master_Host"), Port: uint16(r.Uint("Master_Port")),
			ServerID: uint32(r.Uint("Master_Server_Id")), User: r.String("Master_User"), UsingGTID: r.String("Using_Gtid"),
			IO: r.String("Slave_IO_Running"), SQL: r.String("Slave_SQL_Running"),
			LastIOError: numbered(r, "Last_IO_Errno", "Last_IO_Error"), LastSQLError: numbered(r, "Last_SQL_Errno", "Last_SQL_Error"),
			LogFile: r.String("Master_Log_File"), ReadPos: r.Uint("Read_Master_Log_Pos"),
			ExecLogFile: r.String("Relay_Master_Log_File"), ExecPos: r.Uint("Exec_Master_Log_Pos"),
			RelayLogFile: r.String("Relay_Log_File"), Received: received,
			DoDB: r.String("Replicate_Do_DB"), IgnoreDB: r.String("Replicate_Ignore_DB"), WildDo: r.String("Replicate_Wild_Do_Table"),
			OtherFilters: r.String("Replicate_Do_Table")+r.String("Replicate_Ignore_Table")+r.String("Replicate_Wild_Ignore_Table")+
				r.String("Replicate_Ignore_Server_Ids")+r.String("Replicate_Do_Domain_Ids")+r.String("Replicate_Ignore_Domain_Ids") != "",
			Delay: time.Duration(r.Uint("SQL_Delay")) * time.Second,
			TLS:   r.String("Master_SSL_Allowed") == "Yes", VerifyServer: r.String("Master_SSL_Verify_Server_Cert") == "Yes",
		})
	}
	return out, nil
}

// numbered is "1236: text", "" if there is no error.
func numbered(r *Row, number, text string) string {
	if n := r.Uint(number); n != 0 {
		return strconv.FormatUint(n, 10) + ": " + r.String(text)
	}
	return ""
}

// factsMembership reads repld.cluster, if it is there.
func factsMembership(ctx context.Context, c *Conn, f *AdminFacts) error {
	rows, err := ReadCluster(ctx, c)
	if n := Errno(err); n == 1044 || n == 1142 {
		return nil // not allowed to: the rule about privileges says so
	}
	if err != nil || len(rows) == 0 {
		return err
	}
	f.Cluster = &rows[0]
	return nil
}

func parseUint(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
