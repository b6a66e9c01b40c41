package provision

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/internal/mysql"
)

// CommonRules hold for every server of a cluster.
func CommonRules() []Rule {
	return []Rule{
		{"version", ruleVersion},
		{"privileges", rulePrivileges},
		{"managed_by", ruleManagedBy},
		{"identity", ruleIdentity},
		{"address", ruleAddress},
		{"skip_networking", ruleSkipNetworking},
		{"bind_address", ruleBindAddress},
		{"clock", ruleClock},
		{"server_id", ruleServerID},
		{"log_bin", ruleLogBin},
		{"log_slave_updates", ruleLogSlaveUpdates},
		{"binlog_format", ruleBinlogFormat},
		{"binlog_filter", ruleBinlogFilter},
		{"gtid_strict_mode", ruleStrictMode},
		{"max_allowed_packet", rulePackets},
		{"command_line", ruleCommandLine},
		{"semi_sync_in_file", ruleSemiSyncInFile},
		{"anonymous_accounts", ruleAnonymous},
		{"account_taken", ruleAccountTaken},
		{"tls", ruleTLS},
		{"config_file", ruleConfigFile},
	}
}

// MasterRules are what init master judges besides.
func MasterRules() []Rule {
	return append(CommonRules(),
		Rule{"gtid_domain_id", ruleDomain},
		Rule{"tables", ruleTables},
		Rule{"is_slave", ruleIsSlave},
		Rule{"has_slaves", ruleHasSlaves},
	)
}

func ruleVersion(_ Request, f Facts, _ Context) Check {
	if _, err := mysql.DialectFor(f.Version); err != nil {
		return refuse("use MariaDB 10.11 or newer", "%s", err)
	}
	return pass("%s", f.Version)
}

// rulePrivileges wants an administrator who may create an account with all that
// repld's own needs, and change settings. ALL PRIVILEGES with GRANT OPTION is
// what an administrator normally has; anything less is checked word by word.
func rulePrivileges(_ Request, f Facts, _ Context) Check {
	missing := mysql.MissingForAdmin(f.Grants)
	if len(missing) == 0 {
		return pass("%s may create accounts and change settings", f.CurrentUser)
	}
	return refuse("log in as an administrator with ALL PRIVILEGES ON *.* WITH GRANT OPTION",
		"%s lacks %s", f.CurrentUser, strings.Join(missing, ", ")).as(fault.Failed)
}

func ruleManagedBy(r Request, f Facts, c Context) Check {
	if f.Cluster == nil {
		return pass("no repld manages it")
	}
	if c.Cluster.ID != "" && f.Cluster.ClusterID == c.Cluster.ID && f.Cluster.Instance == c.Instance {
		return pass("this repld manages it, as part of cluster %s", f.Cluster.Cluster)
	}
	if f.Cluster.ClusterID != "" && f.Cluster.ClusterID == c.Pending.ClusterID && f.Cluster.Instance == c.Instance {
		return pass("this repld began to set it up")
	}
	return refuse("remove it there first (replctl remove "+r.Name+" --purge-config), or if that repld is gone: DROP DATABASE repld",
		"managed by repld instance %s as cluster %s (id %s, epoch %d)", f.Cluster.Instance, f.Cluster.Cluster, f.Cluster.ClusterID, f.Cluster.Epoch)
}

func ruleIdentity(r Request, f Facts, c Context) Check {
	for _, k := range c.others(r.Cluster, r.Name) {
		if k.Identity.UID != "" && k.Identity.UID == f.Identity.UID && k.Identity.DataDir == f.Identity.DataDir && k.Identity.Hostname == f.Identity.Hostname {
			return refuse("give the address of another server", "the address leads to server %s of cluster %s (%s)", k.Name, k.Cluster, k.Address).as(fault.Usage)
		}
	}
	if s := c.Cluster.Servers[r.Name]; s != nil {
		if diff := s.Identity.Differs(f.Identity); len(diff) > 0 && s.Identity.UID != f.Identity.UID {
			return refuse("replctl remove "+r.Name+" first, if the server was replaced", "the address leads to another server than the recorded one: %s", strings.Join(diff, ", "))
		}
	}
	return pass("%s, port %d, %s", f.Identity.Hostname, f.Identity.Port, f.Identity.DataDir)
}

// ruleAddress warns of an address that may move: a virtual one or an alias that
// follows the master would make repld talk to another server later. repld
// notices that by the identity; still its slaves would be lost.
func ruleAddress(_ Request, f Facts, c Context) Check {
	switch {
	case f.Identity.Port != f.Port:
		return warn("give the server's own address", "the address has port %d, the server's own is %d: something forwards it", f.Port, f.Identity.Port)
	case f.Loopback:
		for _, k := range c.Known {
			if host, _, _, err := ParseAddress(k.Address); err == nil && !isLoopback(host) {
				return refuse("give an address that the other servers can reach", "%s is a loopback address, but %s of cluster %s is at %s", f.Host, k.Name, k.Cluster, k.Address)
			}
		}
		return pass("%s is a loopback address: all servers of the cluster must be on this host", f.Host)
	case strings.EqualFold(f.Host, f.Identity.Hostname):
		return pass("%s is the server's own name", f.Host)
	case len(f.AddressIPs) > 1:
		return warn("give the address of one interface", "%s resolves to %s", f.Host, strings.Join(f.AddressIPs, ", "))
	case len(f.HostnameIPs) == 0:
		return warn("make sure that the address is the server's own, not a virtual one", "the server calls itself %s, which does not resolve here, so it is not known whether %s is its own address", f.Identity.Hostname, f.Host)
	case !slices.ContainsFunc(f.AddressIPs, func(ip string) bool { return slices.Contains(f.HostnameIPs, ip) }):
		return warn("give the server's own address", "%s resolves to %s, but the server calls itself %s, which is %s: a virtual address or a name that moves would lead elsewhere later",
			f.Host, strings.Join(f.AddressIPs, ", "), f.Identity.Hostname, strings.Join(f.HostnameIPs, ", "))
	}
	return pass("%s is %s's address", f.Host, f.Identity.Hostname)
}

func ruleSkipNetworking(_ Request, f Facts, _ Context) Check {
	if f.On("skip_networking") {
		return refuse("remove skip-networking from the server's configuration and restart it", "skip_networking is ON: no other server can connect to it%s", from(f, "skip_networking"))
	}
	return pass("it listens on the network")
}

func ruleBindAddress(_ Request, f Facts, _ Context) Check {
	bind := f.Value("bind_address")
	if bind != "" && isLoopback(bind) && !f.Loopback {
		return refuse("set bind-address to "+f.Host+" or * and restart the server", "bind_address is %s%s: other hosts cannot connect to %s", bind, from(f, "bind_address"), f.Host)
	}
	if bind == "" {
		bind = "*"
	}
	return pass("bind_address is %s", bind)
}

// from says which file or command line a setting comes from.
func from(f Facts, name string) string {
	s := f.Settings[name]
	switch {
	case s.Path != "":
		return " (from " + s.Path + ")"
	case s.Origin == "COMMAND-LINE":
		return " (from the server's command line)"
	}
	return ""
}

func ruleClock(_ Request, f Facts, _ Context) Check {
	if f.ClockOffset.Abs() > time.Second {
		return warn("synchronise the clocks", "its clock is %s off repld's", f.ClockOffset)
	}
	return pass("its clock is %d ms off repld's", f.ClockOffset.Milliseconds())
}

func ruleBinlogFilter(_ Request, f Facts, _ Context) Check {
	if f.BinlogDoDB != "" || f.BinlogIgnoreDB != "" {
		return refuse("remove binlog-do-db and binlog-ignore-db from the server's configuration and restart it",
			"the binary log is filtered (binlog_do_db %q, binlog_ignore_db %q): slaves would lack data, and repld's own accounts", f.BinlogDoDB, f.BinlogIgnoreDB)
	}
	return pass("the binary log is not filtered")
}

// ruleDomain wants one domain: positions in several are incomparable.
func ruleDomain(_ Request, f Facts, _ Context) Check {
	own := uint32(num(f.Value("gtid_domain_id")))
	foreign := map[uint32]bool{}
	for _, g := range f.BinlogState.List() {
		if g.Domain != own {
			foreign[g.Domain] = true
		}
	}
	for _, d := range f.SlavePos.Domains() {
		if d != own {
			foreign[d] = true
		}
	}
	if len(foreign) > 0 {
		return refuse("remove the other domains from its history: RESET MASTER and SET GLOBAL gtid_slave_pos='' on a server without slaves, or FLUSH BINARY LOGS DELETE_DOMAIN_ID=(…)",
			"gtid_domain_id is %d, but its history holds transactions of other domains (%s)", own, gtidState(f.BinlogState))
	}
	return pass("gtid_domain_id is %d", own)
}

func gtidState(s gtid.State) string {
	if s.IsEmpty() {
		return "empty"
	}
	return s.String()
}

func ruleTables(_ Request, f Facts, _ Context) Check {
	var texts []string
	if n := len(f.NonTransactional); n > 0 {
		texts = append(texts, fmt.Sprintf("%d not transactional (a crash leaves master and slaves different): %s", n, some(f.NonTransactional)))
	}
	if n := len(f.NoPrimaryKey); n > 0 {
		texts = append(texts, fmt.Sprintf("%d without a primary key (a slave reads the whole table for each changed row): %s", n, some(f.NoPrimaryKey)))
	}
	if len(texts) > 0 {
		return warn("ALTER TABLE … ENGINE=InnoDB; ALTER TABLE … ADD PRIMARY KEY", "tables: %s", strings.Join(texts, "; "))
	}
	return pass("all tables are transactional and have a primary key")
}

func ruleIsSlave(_ Request, f Facts, _ Context) Check {
	for _, s := range f.Sources {
		if s.Host != "" {
			return refuse("init its master instead, or end its replication: STOP ALL SLAVES; RESET SLAVE ALL",
				"it is itself a slave of %s:%d (connection %q)", s.Host, s.Port, s.Connection)
		}
	}
	return pass("it is nobody's slave")
}

func ruleHasSlaves(r Request, f Facts, c Context) Check {
	if c.Cluster.ID != "" && c.Cluster.Master == r.Name {
		return pass("its slaves are managed")
	}
	if n := max(len(f.Slaves), len(f.DumpThreads)); n > 0 {
		return refuse("replctl adopt "+r.Name+" --address "+r.Address, "it has %d slaves already (server_id %s; connected from %s)", n, slaveIDs(f.Slaves), strings.Join(f.DumpThreads, ", "))
	}
	return pass("it has no slaves yet")
}

func slaveIDs(list []mysql.SlaveHost) string {
	var words []string
	for _, s := range list {
		words = append(words, strconv.FormatUint(uint64(s.ServerID), 10))
	}
	return strings.Join(words, ", ")
}

func num(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
