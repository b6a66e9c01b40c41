package provision

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/repld/repld/internal/mysql"
	"github.com/repld/repld/topology"
)

// When says when a setting that differs can take effect.
type When string

// Live: SET GLOBAL. Restart: only a restart, and it is worth one. Later: with
// the next restart, whenever that is.
const (
	Live    When = "live"
	Restart When = "restart"
	Later   When = "later"
)

// Setting is one line of the drop-in and what the running server should have.
type Setting struct {
	// Option is the name in the file, Value what stands there.
	Option, Value string
	// Variable is the system variable, "" if there is none to look at; Want is
	// its value where that differs from the file's.
	Variable, Want string
	When           When
	// Why is the comment above the line.
	Why string
}

// want is the effective value that proves the setting.
func (s Setting) want() string {
	if s.Want != "" {
		return s.Want
	}
	return s.Value
}

// Holds tells whether the running server has the setting. A setting without a
// variable, or one that is only for the next start, cannot be wrong now.
func (s Setting) Holds(f Facts) bool {
	if s.Variable == "" || s.When == Later {
		return true
	}
	return sameValue(f.Value(s.Variable), s.want())
}

// sameValue compares as the server does: ON is 1, words have no case.
func sameValue(a, b string) bool {
	norm := func(s string) string {
		switch s = strings.ToUpper(strings.TrimSpace(s)); s {
		case "ON", "TRUE", "YES":
			return "1"
		case "OFF", "FALSE", "NO":
			return "0"
		}
		return s
	}
	return norm(a) == norm(b)
}

// TLSPaths are the certificate files in the server's own file system.
type TLSPaths struct {
	CA, Cert, Key string
	// Source is "repld" or "user", as in topology.Server.
	Source string
}

// The names of the files that repld delivers into a server's data directory,
// next to where MySQL keeps its own, for there the server may surely read them.
const (
	fileCA   = "repld-ca.pem"
	fileCert = "repld-cert.pem"
	fileKey  = "repld-key.pem"
)

// TLSOf decides where the server's certificate comes from.
func TLSOf(r Request, f Facts) TLSPaths {
	if r.SSLCA != "" {
		return TLSPaths{CA: r.SSLCA, Cert: r.SSLCert, Key: r.SSLKey, Source: "user"}
	}
	dir := f.Identity.DataDir
	return TLSPaths{CA: filepath.Join(dir, fileCA), Cert: filepath.Join(dir, fileCert), Key: filepath.Join(dir, fileKey), Source: "repld"}
}

// ServerIDOf is the server_id that the server should have: the one asked for,
// else its own if no other server has it, else the lowest that is free.
func ServerIDOf(r Request, f Facts, c Context) uint32 {
	if r.ServerID != 0 {
		return r.ServerID
	}
	taken := map[uint32]bool{}
	for _, k := range c.others(r.Cluster, r.Name) {
		taken[k.Identity.ServerID] = true
	}
	if own := f.Identity.ServerID; own != 0 && !taken[own] {
		return own
	}
	for _, s := range f.Slaves {
		taken[s.ServerID] = true
	}
	for id := uint32(1); ; id++ {
		if !taken[id] {
			return id
		}
	}
}

// slaveMaxPacket is the largest value there is, and the default: an event that
// the master could write must fit whatever its max_allowed_packet.
const slaveMaxPacket = "1073741824"

// forever is semi-sync's largest timeout in milliseconds.
const forever = "18446744073709551615"

// SettingsFor are all settings of a server that is to be, or to be able to be,
// the role: in the order of the drop-in. What the server has already and is
// sound is kept.
func SettingsFor(role topology.Role, r Request, f Facts, c Context) []Setting {
	list := identitySettings(role, r, f, c)
	list = append(list, logSettings(r, f)...)
	list = append(list, safetySettings(f)...)
	list = append(list, semiSyncSettings(c)...)
	list = append(list, r.also...)
	tls := TLSOf(r, f)
	return append(list,
		Setting{Option: "ssl-ca", Variable: "ssl_ca", Value: tls.CA, When: Restart, Why: "the authority by which slaves and repld verify this server"},
		Setting{Option: "ssl-cert", Variable: "ssl_cert", Value: tls.Cert, When: Restart, Why: "replication and repld's own connections are always encrypted"},
		Setting{Option: "ssl-key", Variable: "ssl_key", Value: tls.Key, When: Restart, Why: "the certificate's key"},
	)
}

func identitySettings(role topology.Role, r Request, f Facts, c Context) []Setting {
	// Sessions that are open keep the server_id they began with: on a running
	// master only a restart makes sure that all transactions carry the new one.
	when := Live
	if role == topology.RoleMaster {
		when = Restart
	}
	domain := f.Value("gtid_domain_id")
	if len(c.Cluster.Lineage) > 0 {
		domain = strconv.FormatUint(uint64(c.Cluster.Lineage.Domain()), 10)
	}
	host, port, _, err := ParseAddress(r.Address)
	if err != nil {
		host, port = f.Host, f.Port
	}
	return []Setting{
		{Option: "server-id", Variable: "server_id", Value: strconv.FormatUint(uint64(ServerIDOf(r, f, c)), 10), When: when, Why: "unique among all servers that repld manages"},
		{Option: "gtid-domain-id", Variable: "gtid_domain_id", Value: domain, When: Live, Why: "one domain per cluster: positions in several domains cannot be compared"},
		{Option: "gtid-strict-mode", Variable: "gtid_strict_mode", Value: "1", When: Live, Why: "refuse transactions out of order instead of diverging in silence"},
		{Option: "report-host", Variable: "report_host", Value: host, When: Later, Why: "the master's list of slaves then names this server"},
		{Option: "report-port", Variable: "report_port", Value: strconv.Itoa(int(port)), When: Later, Why: "see report-host"},
	}
}

func logSettings(r Request, f Facts) []Setting {
	bin := Setting{Option: "log-bin", Variable: "log_bin", Value: "mariadb-bin", Want: "ON", When: Restart, Why: "the binary log is what slaves replicate"}
	if f.On("log_bin") {
		bin.Value = inDataDir(f, f.Value("log_bin_basename"))
	}
	relay := Setting{Option: "relay-log", Variable: "relay_log", Value: "mariadb-relay-bin", When: Restart,
		Why: "a fixed name: by default it follows the pid file's, and a relay log whose name changed is lost"}
	if own := f.Value("relay_log"); own != "" {
		relay.Value = own
	} else if len(f.Sources) > 0 && f.Sources[0].RelayLogFile != "" {
		// A slave's relay logs keep the names they have: the same name is made
		// explicit, which needs no restart.
		relay.Value = strings.TrimSuffix(f.Sources[0].RelayLogFile, filepath.Ext(f.Sources[0].RelayLogFile))
		relay.When = Later
	}
	return []Setting{
		bin,
		relay,
		{Option: "log-slave-updates", Variable: "log_slave_updates", Value: "1", When: Restart, Why: "a slave that is promoted must have the history in its own binary log"},
		{Option: "binlog-format", Variable: "binlog_format", Value: binlogFormat(r, f), When: Live, Why: "STATEMENT gives other rows on a slave for UUID(), LIMIT and the like, without an error"},
		{Option: "sync-binlog", Variable: "sync_binlog", Value: "1", When: Live, Why: "a transaction that was acknowledged survives a crash of the host"},
		{Option: "innodb-flush-log-at-trx-commit", Variable: "innodb_flush_log_at_trx_commit", Value: "1", When: Live, Why: "see sync-binlog"},
		{Option: "slave-max-allowed-packet", Variable: "slave_max_allowed_packet", Value: slaveMaxPacket, When: Live, Why: "any event that a master can write must fit"},
		parallelSetting(f),
	}
}

// parallelThreads lets a slave keep up with a master whose clients commit in
// groups: with one thread and sync_binlog=1 it pays for each commit by itself,
// and what it has not applied must be waited for at a failover.
const parallelThreads = "4"

// parallelSetting keeps a number that somebody has chosen. The variable cannot
// be set while the SQL thread runs.
func parallelSetting(f Facts) Setting {
	s := Setting{Option: "slave-parallel-threads", Variable: "slave_parallel_threads", Value: parallelThreads, When: Live,
		Why: "a slave applies as its master commits, in parallel and in order, so that a failover need not wait for it"}
	if own := f.Value("slave_parallel_threads"); own != "" && own != "0" {
		s.Value = own
	}
	if len(f.Sources) > 0 {
		s.When = Later
	}
	return s
}

// binlogFormat is the one asked for, else the server's own unless that is
// statement.
func binlogFormat(r Request, f Facts) string {
	switch own := strings.ToLower(f.Value("binlog_format")); {
	case r.BinlogFormat != "":
		return r.BinlogFormat
	case own == "row" || own == "mixed":
		return own
	}
	return "mixed"
}

func safetySettings(f Facts) []Setting {
	scheduler := "OFF"
	if f.Value("event_scheduler") == "DISABLED" {
		scheduler = "DISABLED"
	}
	return []Setting{
		{Option: "read-only", Variable: "read_only", Value: "1", When: Later, Why: "a restarted server must never be a second master: only repld opens one"},
		{Option: "skip-slave-start", Value: "1", When: Later, Why: "a restarted slave waits for repld: starting by itself it could drop its relay log, or acknowledge behind repld's back"},
		{Option: "event-scheduler", Variable: "event_scheduler", Value: scheduler, When: Later, Why: "events write through read-only: repld switches them on where they belong"},
		{Option: "slave-net-timeout", Variable: "slave_net_timeout", Value: "5", When: Live, Why: "seconds after which a slave notices that its silent master is gone; idle masters send heartbeats twice a second"},
	}
}

func semiSyncSettings(c Context) []Setting {
	timeout := forever
	if c.ServerTimeout > 0 {
		timeout = strconv.FormatInt(c.ServerTimeout.Milliseconds(), 10)
	}
	return []Setting{
		{Option: "rpl-semi-sync-master-wait-point", Variable: "rpl_semi_sync_master_wait_point", Value: "AFTER_SYNC", When: Live, Why: "nobody sees a transaction before a slave has it"},
		{Option: "rpl-semi-sync-master-timeout", Variable: "rpl_semi_sync_master_timeout", Value: timeout, When: Live, Why: "milliseconds until the server goes on without a slave although repld is gone too (semi_sync.server_timeout)"},
		{Option: "rpl-semi-sync-slave-kill-conn-timeout", Variable: "rpl_semi_sync_slave_kill_conn_timeout", Value: "1", When: Live, Why: "stopping a slave of a frozen master then takes 1 s instead of 5"},
	}
}

// inDataDir shortens a path inside the data directory, as the server reads a
// relative one from there.
func inDataDir(f Facts, path string) string {
	if rel, err := filepath.Rel(f.Identity.DataDir, path); err == nil && !strings.HasPrefix(rel, "..") {
		return rel
	}
	return path
}

// Differing are the settings that the running server does not have, of one kind.
func Differing(list []Setting, f Facts, when When) []Setting {
	var out []Setting
	for _, s := range list {
		if s.When == when && !s.Holds(f) {
			out = append(out, s)
		}
	}
	return out
}

// describeSettings lists settings as "log_bin (OFF, wanted ON)".
func describeSettings(list []Setting, f Facts) string {
	words := make([]string, len(list))
	for i, s := range list {
		words[i] = fmt.Sprintf("%s (is %s, wanted %s)", s.Variable, orWord(f.Value(s.Variable), "not set"), s.want())
	}
	return strings.Join(words, ", ")
}

func orWord(s, word string) string {
	if s == "" {
		return word
	}
	return s
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback() || strings.EqualFold(host, "localhost")
}

// renewBefore is how long before its end a certificate of repld's is replaced.
const renewBefore = 90 * 24 * time.Hour

// AccountNames are repld's accounts on the servers.
const (
	UserRepld       = mysql.UserRepld
	UserReplication = mysql.UserReplication
)
