package provision

import (
	"fmt"
	"strings"

	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/topology"
)

// The rules of this file judge settings that repld will put right itself: they
// say what was measured and what becomes of it, and refuse only what it cannot
// or must not change.

func ruleServerID(r Request, f Facts, c Context) Check {
	own, want := f.Identity.ServerID, ServerIDOf(r, f, c)
	for _, k := range c.others(r.Cluster, r.Name) {
		if k.Identity.ServerID == want {
			return refuse("choose another --server-id", "server_id %d is %s's of cluster %s", want, k.Name, k.Cluster).as(fault.Usage)
		}
	}
	for _, s := range f.Slaves {
		if s.ServerID == want && s.ServerID != 0 {
			return refuse("choose another --server-id", "server_id %d is that of a slave of this server", want).as(fault.Usage)
		}
	}
	if own == want {
		return pass("server_id %d is unique", own)
	}
	return warn("", "server_id becomes %d instead of %d%s", want, own, takenBy(own, r, c))
}

func takenBy(id uint32, r Request, c Context) string {
	for _, k := range c.others(r.Cluster, r.Name) {
		if k.Identity.ServerID == id {
			return fmt.Sprintf(", which is %s's", k.Name)
		}
	}
	return ""
}

func ruleLogBin(_ Request, f Facts, _ Context) Check {
	if f.On("log_bin") {
		return pass("the binary log is on (%s)", f.Value("log_bin_basename"))
	}
	return warn("", "log_bin is OFF: it is switched on in the configuration, which needs a restart")
}

func ruleLogSlaveUpdates(_ Request, f Facts, _ Context) Check {
	if f.On("log_slave_updates") {
		return pass("log_slave_updates is ON")
	}
	return warn("", "log_slave_updates is OFF: it is switched on in the configuration, which needs a restart")
}

func ruleBinlogFormat(r Request, f Facts, _ Context) Check {
	own, want := strings.ToLower(f.Value("binlog_format")), binlogFormat(r, f)
	if own == want {
		return pass("binlog_format is %s", f.Value("binlog_format"))
	}
	return warn("let clients that are connected now connect again", "binlog_format becomes %s instead of %s; sessions that are open keep the old one until they end", want, own)
}

func ruleStrictMode(_ Request, f Facts, _ Context) Check {
	if f.On("gtid_strict_mode") {
		return pass("gtid_strict_mode is ON")
	}
	return warn("", "gtid_strict_mode is OFF: it is switched on")
}

// rulePackets: an event can be as large as the master's max_allowed_packet, and
// any server may be master one day.
func rulePackets(r Request, f Facts, c Context) Check {
	limit := num(f.Value("slave_max_allowed_packet"))
	largest, whose := num(f.Value("max_allowed_packet")), "its own"
	for _, k := range c.others(r.Cluster, r.Name) {
		if k.Cluster == r.Cluster && k.MaxAllowedPacket > largest {
			largest, whose = k.MaxAllowedPacket, k.Name+"'s"
		}
	}
	text := fmt.Sprintf("slave_max_allowed_packet is %d, max_allowed_packet %d (%s)", limit, largest, whose)
	if limit < largest {
		return warn("", "%s: events up to %d bytes would stop replication with error 1153; it is raised to %s%s", text, largest, slaveMaxPacket, from(f, "slave_max_allowed_packet"))
	}
	return pass("%s", text)
}

// ruleSemiSyncInFile: switched on in a file, semi-sync makes a restarted server
// an acker, or truncates a crashed master's binary log, behind repld's back.
func ruleSemiSyncInFile(_ Request, f Facts, _ Context) Check {
	for _, name := range []string{"rpl_semi_sync_master_enabled", "rpl_semi_sync_slave_enabled"} {
		if s := f.Settings[name]; f.On(name) && (s.Origin == "CONFIG" || s.Origin == "COMMAND-LINE") {
			return refuse("remove "+strings.ReplaceAll(name, "_", "-")+" from the server's configuration, and SET GLOBAL "+name+"=OFF",
				"%s is ON%s: repld switches it by role", name, from(f, name))
		}
	}
	return pass("semi-sync is not switched on in a file")
}

// ruleCommandLine: what stands on the server's command line wins over every
// file, so that a restart would bring it back.
func ruleCommandLine(r Request, f Facts, c Context) Check {
	var list []string
	for _, s := range SettingsFor(topology.RoleSlave, r, f, c) {
		if own := f.Settings[s.Variable]; own.Origin == "COMMAND-LINE" && !sameValue(own.Value, s.want()) && s.Variable != "read_only" {
			list = append(list, fmt.Sprintf("--%s (%s is %s, wanted %s)", s.Option, s.Variable, own.Value, s.want()))
		}
	}
	if len(list) > 0 {
		return refuse("remove it from the server's command line and restart the server", "the command line, which wins over any file, has %s", strings.Join(list, ", "))
	}
	return pass("the server's command line stands in the way of nothing")
}

// ruleAnonymous: for a client on the same host, ”@'localhost' is matched before
// 'repld'@'%', and the login fails with 1045 as if the password were wrong.
func ruleAnonymous(_ Request, f Facts, _ Context) Check {
	var list, drops []string
	for _, host := range shadowHosts(f) {
		list = append(list, "''@'"+host+"'")
		drops = append(drops, "DROP USER ''@'"+host+"'")
	}
	if len(list) == 0 {
		return pass("no anonymous account")
	}
	return warn(strings.Join(drops, "; "), "anonymous accounts %s are matched before 'repld'@'%%': repld makes its accounts for those hosts too", strings.Join(list, ", "))
}

// shadowHosts are the hosts of anonymous accounts.
func shadowHosts(f Facts) []string {
	var out []string
	for _, l := range f.Logins {
		if l.User == "" && l.Host != "%" && l.Host != "" {
			out = append(out, l.Host)
		}
	}
	return out
}

// ruleAccountTaken: an account of repld's name that this repld did not make is
// somebody's.
func ruleAccountTaken(_ Request, f Facts, c Context) Check {
	if f.Cluster != nil || len(c.Accounts) > 0 {
		return pass("repld's accounts are its own")
	}
	for _, l := range f.Logins {
		if l.User == UserRepld || l.User == UserReplication {
			return refuse("if nobody uses it: DROP USER '"+l.User+"'@'"+l.Host+"'", "an account '%s'@'%s' exists that this repld did not make", l.User, l.Host)
		}
	}
	return pass("the names of repld's accounts are free")
}

func ruleTLS(r Request, f Facts, c Context) Check {
	tls := TLSOf(r, f)
	if own := f.Value("ssl_cert"); r.SSLCA == "" && own != "" && own != tls.Cert {
		return refuse("to keep it give --ssl-ca, --ssl-cert and --ssl-key with the same files; to let repld make certificates remove ssl-cert and ssl-key from the server's configuration",
			"the server has a certificate of its own (ssl_cert is %s%s), by which its clients may verify it", own, from(f, "ssl_cert"))
	}
	for _, s := range c.Cluster.Servers {
		if s.Name != r.Name && s.TLS != "" && s.TLS != tls.Source {
			return refuse("use the same kind for all servers of the cluster", "server %s has certificates from %s, this one would have them from %s", s.Name, s.TLS, tls.Source).as(fault.Usage)
		}
	}
	inUse := f.TLS.Offered && sameValue(f.Value("ssl_cert"), tls.Cert) && sameValue(f.Value("ssl_ca"), tls.CA)
	switch {
	case f.TLS.FilesProblem != "":
		return refuse("give a certificate for "+f.Host+" and the authority that signed it", "%s", f.TLS.FilesProblem).as(fault.Failed)
	case inUse && f.TLS.Missing != "" && tls.Source == "repld":
		return warn("", "%s is gone, and the server would not start again without it: it is written anew", f.TLS.Missing)
	case inUse && f.TLS.Verified && f.TLS.NotAfter.Sub(f.TLS.Now) > renewBefore:
		return pass("TLS is on and %s is verified, until %s", f.Host, f.TLS.NotAfter.Format("2006-01-02"))
	case inUse && f.TLS.Verified:
		return warn("", "the certificate ends on %s", f.TLS.NotAfter.Format("2006-01-02"))
	case inUse && tls.Source == "user":
		return refuse("give the authority that signed the server's certificate, and a certificate for "+f.Host, "the server's certificate is not accepted under %s: %s", tls.CA, f.TLS.Problem).as(fault.Failed)
	case tls.Source == "user":
		return warn("", "TLS is switched on with your certificate %s, which needs a restart", tls.Cert)
	}
	return warn("", "TLS is switched on with a certificate made by repld's own authority%s", problemOf(f))
}

func problemOf(f Facts) string {
	if f.TLS.Offered && f.TLS.Problem != "" {
		return " (the present one: " + f.TLS.Problem + ")"
	}
	return ""
}

// ruleConfigFile refuses to overwrite what repld did not write.
func ruleConfigFile(_ Request, f Facts, _ Context) Check {
	p := f.Places
	switch {
	case p.Foreign:
		return refuse("choose another --config-file", "%s exists and was not written by repld", p.ConfigFile)
	case p.ConfigProblem != "":
		return warn("", "repld cannot write the drop-in: %s", p.ConfigProblem)
	}
	return pass("the drop-in is %s", p.ConfigFile)
}

// Needs says what of the configuration is still to be done.
type Needs struct {
	Settings []Setting
	Live     []Setting
	Restart  []Setting
	// WriteFile is true if the drop-in's text is not what it should be, or cannot
	// be seen and something in effect differs.
	WriteFile bool
	// Certificate is true if one has to be made and delivered; Reload if the
	// server can take it without a restart.
	Certificate, Reload bool
	DropIn              string
}

// NeedsOf compares the server with what its role wants. It is pure.
func NeedsOf(role topology.Role, r Request, f Facts, c Context) Needs {
	n := Needs{Settings: SettingsFor(role, r, f, c)}
	n.Live, n.Restart = Differing(n.Settings, f, Live), Differing(n.Settings, f, Restart)
	n.DropIn = RenderDropIn(r.Cluster, r.Name, n.Settings)
	n.WriteFile = !dropInPlaced(f, n)
	tls := TLSOf(r, f)
	inUse := f.TLS.Offered && sameValue(f.Value("ssl_cert"), tls.Cert)
	fresh := f.TLS.Verified && f.TLS.NotAfter.Sub(f.TLS.Now) > renewBefore
	n.Certificate = tls.Source == "repld" && !(inUse && fresh && f.TLS.Missing == "")
	n.Reload = n.Certificate && inUse
	return n
}

// dropInPlaced tells whether the drop-in is where it belongs. Where its text
// cannot be read, the checksum of the last writing tells; and where a person has
// placed it, the server itself does: report_host can only come from a file.
func dropInPlaced(f Facts, n Needs) bool {
	switch {
	case f.Places.Current != "":
		return f.Places.Current == n.DropIn
	case f.Sum != "" && f.Sum == sumOf(n.DropIn):
		return true
	case f.Places.ConfigProblem == "" && len(f.Places.ConfigCommand) == 0:
		return false // it can be written, and is not there
	case len(n.Live)+len(n.Restart) > 0:
		return false
	}
	for _, s := range n.Settings {
		if s.Option == "report-host" {
			return sameValue(f.Value(s.Variable), s.Value)
		}
	}
	return false
}
