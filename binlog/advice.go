package binlog

import "strings"

// Advice says what an error of a binary log dump means.
type Advice struct {
	// Is is one of this package's error values.
	Is error
	// Code is a stable snake_case word; Cause and Do are for a person.
	Code, Cause, Do string
}

func (a Advice) advice() advice { return advice{is: a.Is, code: a.Code, cause: a.Cause, do: a.Do} }

// reseed is what helps a slave whose position its source cannot serve.
const reseed = "copy the data anew: replctl init slave NAME --replace-data"

// fatalReading maps the texts of error 1236: the server has one number for all
// reasons not to send its log. The first that is contained counts.
var fatalReading = []struct {
	text string
	Advice
}{
	{"has connected to the master", Advice{ErrServerIDClash, "server_id_clash",
		"another slave, or another repld, connected with the same server_id",
		"give each server its own server_id; see SHOW SLAVE HOSTS on the master"}},
	{"diverged", Advice{ErrDiverged, "position_diverged",
		"the transaction asked for is not in the server's binary log, which went on to higher numbers without it: the asking side has transactions that this server never had",
		"compare the positions in replctl status -o wide before anything is given up"}},
	{"is not in the master's binlog", Advice{ErrNotInBinlog, "position_unknown",
		"the transaction asked for is not in the server's binary log: the asking side is ahead of it, or belongs to another master",
		"see which server has more with replctl status, before anything is given up"}},
	{"is missing the GTID", Advice{ErrNotInBinlog, "position_hole",
		"the transaction asked for is missing in the server's binary log between two that are there: it was written with the binary log off, or skipped", reseed}},
	{"Could not find GTID state requested by slave in any binlog", Advice{ErrPurged, "position_purged",
		"the binary logs that follow the position were purged on the server", reseed}},
	{"Could not find first log file name", Advice{ErrPurged, "position_purged",
		"the binary log file asked for was purged on the server", reseed}},
	{"could not find next log", Advice{ErrPurged, "position_purged",
		"the next binary log file was purged while it was being read", reseed}},
	{"Binary log is not open", Advice{ErrBinlogOff, "binlog_off",
		"log_bin is off on the server; it cannot be switched on without a restart",
		"set log_bin in the server's configuration and restart it: replctl init does both"}},
	{"impossible position", Advice{ErrNotInBinlog, "position_impossible",
		"the file position asked for is beyond the end of the file: the server lost the end of its binary log in a crash (sync_binlog), or the position is of another server", reseed}},
	{"bogus data", Advice{ErrCorrupt, "position_inside_event",
		"the file position asked for does not lie between two events, or the log is damaged there", reseed}},
	{"log event entry exceeded max_allowed_packet", Advice{ErrServer, "packet_too_large",
		"an event is larger than max_allowed_packet", "raise max_allowed_packet on the master and slave_max_allowed_packet on its slaves"}},
}

// AdviseDump maps an error that a server answers a dump with, or that a slave
// shows as Last_IO_Errno and Last_IO_Error, to what it means and what helps.
func AdviseDump(errno uint16, message string) Advice {
	switch errno {
	case erSlaveSameID:
		return fatalReading[0].Advice
	case erFatalReading:
		for _, row := range fatalReading {
			if strings.Contains(message, row.text) {
				return row.Advice
			}
		}
	case erAccessDenied, erSpecificAccess, erHostDenied:
		return Advice{ErrAccess, "access_denied", message,
			"check the account, its host part, its password, whether it requires TLS, and that it has REPLICATION SLAVE"}
	case erHostBlocked:
		return Advice{ErrServer, "host_blocked", message, "FLUSH HOSTS on the server, and raise max_connect_errors"}
	case erNetPacketLarge:
		return Advice{ErrServer, "packet_too_large", message,
			"raise max_allowed_packet on the master and slave_max_allowed_packet on its slaves"}
	case erConnectionKilled:
		return Advice{ErrBroken, "connection_killed", "somebody killed the connection on the server", ""}
	}
	return Advice{ErrServer, "server_error", message, ""}
}
