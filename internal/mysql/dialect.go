package mysql

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/repld/repld/topology"
)

// Version is a server's version.
type Version struct {
	Flavor              topology.Flavor
	Major, Minor, Patch int
	// Text is the server's own word, for example "10.11.19-MariaDB-log".
	Text string
}

// ParseVersion reads @@version. A server that does not call itself MariaDB is
// taken for MySQL.
func ParseVersion(text string) (Version, error) {
	v := Version{Flavor: flavorMySQL, Text: text}
	if strings.Contains(text, "MariaDB") {
		v.Flavor = topology.FlavorMariaDB
	}
	// MariaDB greets as 5.5.5-10.11.…, for clients that think 10 is less than 5.
	number, _, _ := strings.Cut(strings.TrimPrefix(text, "5.5.5-"), "-")
	parts := strings.Split(number, ".")
	if len(parts) < 2 {
		return v, fmt.Errorf("version %q: want major.minor.patch", text)
	}
	for i, part := range []*int{&v.Major, &v.Minor, &v.Patch} {
		if i >= len(parts) {
			break
		}
		n, err := strconv.Atoi(parts[i])
		if err != nil {
			return v, fmt.Errorf("version %q: %q is no number", text, parts[i])
		}
		*part = n
	}
	return v, nil
}

// String is major.minor.patch.
func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// Compare orders versions of one flavour: -1 if v is older than o.
func (v Version) Compare(o Version) int {
	for _, d := range []int{v.Major - o.Major, v.Minor - o.Minor, v.Patch - o.Patch} {
		if d != 0 {
			return max(-1, min(1, d))
		}
	}
	return 0
}

// flavorMySQL names what is recognised and not yet managed.
const flavorMySQL topology.Flavor = "mysql"

// Dialect is how a flavour, from a version on, says what repld needs to say.
// No other place knows of versions.
type Dialect struct {
	Flavor topology.Flavor
	// Since is the first version that the row is for.
	Since Version
	// facts are the variables that identify a server and rarely change.
	facts []string
	// variables, semiSync and slaves are what an observation asks, in one round
	// trip and in this order: the variables, which answer even on a full disk,
	// the status of semi-sync, and the slave status, which may hang.
	variables, semiSync, slaves string
	// stopIO and the others are the plain statements of the verbs.
	stopIO, startIO, startSQL, stopSQL, startSlave, stopSlave, resetSlave string
}

var mariaDB1011 = Dialect{
	Flavor: topology.FlavorMariaDB,
	Since:  Version{Flavor: topology.FlavorMariaDB, Major: 10, Minor: 11},
	facts: []string{"server_id", "server_uid", "hostname", "port", "datadir", "version", "log_bin",
		"log_slave_updates", "event_scheduler", "slave_skip_errors"},
	// Never SHOW MASTER STATUS: it hangs on a full disk.
	variables: "SELECT UNIX_TIMESTAMP(SYSDATE(6)), @@GLOBAL.read_only, @@GLOBAL.gtid_slave_pos, @@GLOBAL.gtid_binlog_pos," +
		" @@GLOBAL.gtid_binlog_state, @@GLOBAL.rpl_semi_sync_master_enabled, @@GLOBAL.rpl_semi_sync_master_wait_point," +
		" @@GLOBAL.rpl_semi_sync_slave_enabled, @@GLOBAL.rpl_semi_sync_master_timeout",
	semiSync:   "SHOW GLOBAL STATUS LIKE 'Rpl\\_semi\\_sync\\_%'",
	slaves:     "SHOW ALL SLAVES STATUS",
	stopIO:     "STOP SLAVE IO_THREAD",
	startIO:    "START SLAVE IO_THREAD",
	startSQL:   "START SLAVE SQL_THREAD",
	stopSQL:    "STOP SLAVE SQL_THREAD",
	startSlave: "START SLAVE",
	stopSlave:  "STOP SLAVE",
	resetSlave: "RESET SLAVE ALL",
}

// dialects lists the rows, newest first.
func dialects() []*Dialect { return []*Dialect{&mariaDB1011} }

// UnsupportedError refuses a server of a version or flavour that is not managed.
type UnsupportedError struct {
	Version Version
	Reason  string
}

// Error says which version was found and what is needed.
func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("version %s is not supported: %s", e.Version.Text, e.Reason)
}

// DialectFor finds the dialect of a server by its @@version. The error is an
// [*UnsupportedError] for versions older than MariaDB 10.11 and for other
// flavours.
func DialectFor(version string) (*Dialect, error) {
	v, err := ParseVersion(version)
	if err != nil {
		return nil, err
	}
	if v.Flavor != topology.FlavorMariaDB {
		return nil, &UnsupportedError{Version: v, Reason: "this release manages MariaDB 10.11 and newer"}
	}
	for _, d := range dialects() {
		if d.Flavor == v.Flavor && v.Compare(d.Since) >= 0 {
			return d, nil
		}
	}
	return nil, &UnsupportedError{Version: v,
		Reason: "MariaDB 10.11 is the oldest release whose privileges, read_only and semi-sync behave as repld relies on"}
}
