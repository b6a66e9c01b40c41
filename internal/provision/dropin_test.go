package provision

import (
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/internal/mysql"
	"github.com/repld/repld/topology"
)

var update = flag.Bool("update", false, "write the golden files")

// bareFacts is a 10.11 with nothing configured, as it was measured.
func bareFacts() Facts {
	f := Facts{Host: "10.0.0.1", Port: 3306, AddressIPs: []string{"10.0.0.1"}, HostnameIPs: []string{"10.0.0.1"}}
	f.Flavor, f.Version, f.CurrentUser = topology.FlavorMariaDB, "10.11.19-MariaDB", "root@localhost"
	f.Grants = []string{"GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost` WITH GRANT OPTION"}
	f.Identity = topology.Identity{ServerID: 1, UID: "u1", Hostname: "db1", Port: 3306, DataDir: "/var/lib/mysql/"}
	f.Settings = map[string]mysql.Setting{}
	for name, value := range map[string]string{
		"server_id": "1", "log_bin": "OFF", "log_slave_updates": "OFF", "binlog_format": "MIXED", "gtid_strict_mode": "OFF", "gtid_domain_id": "0",
		"read_only": "OFF", "sync_binlog": "0", "innodb_flush_log_at_trx_commit": "1", "event_scheduler": "OFF", "slave_net_timeout": "60",
		"rpl_semi_sync_master_wait_point": "AFTER_COMMIT", "rpl_semi_sync_master_timeout": "10000", "rpl_semi_sync_slave_kill_conn_timeout": "5",
		"max_allowed_packet": "16777216", "slave_max_allowed_packet": "1073741824", "skip_networking": "OFF", "bind_address": "*", "port": "3306",
	} {
		f.Settings[name] = mysql.Setting{Value: value, Origin: "COMPILE-TIME"}
	}
	f.Places = Places{ConfigFile: defaultConfigFile, RestartCommand: []string{"systemctl", "restart", "mariadb"}}
	return f
}

func bareRequest() Request {
	return Request{Cluster: "main", Name: "db1", Address: "10.0.0.1:3306", Restart: RestartAsk}
}

func (f Facts) with(name, value string) Facts {
	old := f.Settings
	f.Settings = map[string]mysql.Setting{}
	for k, v := range old {
		f.Settings[k] = v
	}
	s := f.Settings[name]
	s.Value = value
	f.Settings[name] = s
	return f
}

func TestDropInOfABareServer(t *testing.T) {
	text := RenderDropIn("main", "db1", SettingsFor(topology.RoleMaster, bareRequest(), bareFacts(), Context{ServerTimeout: 30 * time.Second}))
	const golden = "testdata/99-repld.cnf"
	if *update {
		if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), text); diff != "" {
		t.Errorf("the drop-in (-want +got):\n%s", diff)
	}
	if strings.Contains(text, "_enabled =") || strings.Contains(text, "-enabled =") {
		t.Error("semi-sync must never be switched on in a file")
	}
}

func TestDropInKeepsWhatIsSound(t *testing.T) {
	f := bareFacts().with("log_bin", "ON").with("log_bin_basename", "/var/lib/mysql/own-bin").with("binlog_format", "ROW").
		with("gtid_domain_id", "7").with("relay_log", "own-relay").with("event_scheduler", "DISABLED")
	f.Identity.ServerID = 12
	text := RenderDropIn("main", "db1", SettingsFor(topology.RoleMaster, bareRequest(), f, Context{}))
	for _, line := range []string{"log-bin = own-bin\n", "binlog-format = row\n", "gtid-domain-id = 7\n", "relay-log = own-relay\n", "server-id = 12\n",
		"event-scheduler = DISABLED\n", "rpl-semi-sync-master-timeout = 18446744073709551615\n"} {
		if !strings.Contains(text, line) {
			t.Errorf("want %q in:\n%s", line, text)
		}
	}
	f = f.with("log_bin_basename", "/srv/my logs/bin")
	if text := RenderDropIn("main", "db1", SettingsFor(topology.RoleMaster, bareRequest(), f, Context{})); !strings.Contains(text, "log-bin = \"/srv/my logs/bin\"\n") {
		t.Errorf("a path with a space is not quoted:\n%s", text)
	}
}

// Each rule, from the facts that break it to the result.
func TestRules(t *testing.T) {
	other := Known{Cluster: "main", Name: "db2", Address: "10.0.0.2:3306", Identity: topology.Identity{ServerID: 1, UID: "u2"}, MaxAllowedPacket: 1 << 26}
	for _, c := range []struct {
		name, code string
		facts      func(Facts) Facts
		request    func(*Request)
		context    Context
		want       Result
		kind       fault.Kind
		text       string
	}{
		{name: "older server", code: "version", facts: func(f Facts) Facts { f.Version = "10.5.29-MariaDB"; return f }, want: Fail, kind: fault.Refused, text: "10.5.29"},
		{name: "MySQL", code: "version", facts: func(f Facts) Facts { f.Version = "9.7.4"; return f }, want: Fail, kind: fault.Refused, text: "9.7.4"},
		{name: "weak admin", code: "privileges", facts: func(f Facts) Facts { f.Grants = []string{"GRANT SELECT ON *.* TO x"}; return f }, want: Fail, kind: fault.Failed, text: "SUPER"},
		{name: "no grant option", code: "privileges", facts: func(f Facts) Facts { f.Grants = []string{"GRANT ALL PRIVILEGES ON *.* TO x"}; return f }, want: Fail, kind: fault.Failed, text: "GRANT OPTION"},
		{name: "virtual address", code: "identity_address", facts: func(f Facts) Facts { f.HostnameIPs = []string{"10.0.0.9"}; return f }, want: Warn, text: "virtual address"},
		{name: "forwarded port", code: "identity_address", facts: func(f Facts) Facts { f.Identity.Port = 3307; return f }, want: Warn, text: "3307"},
		{name: "skip-networking", code: "skip_networking", facts: func(f Facts) Facts { return f.with("skip_networking", "ON") }, want: Fail, kind: fault.Refused, text: "skip_networking is ON"},
		{name: "loopback bind", code: "bind_address", facts: func(f Facts) Facts { return f.with("bind_address", "127.0.0.1") }, want: Fail, kind: fault.Refused, text: "bind_address is 127.0.0.1"},
		{name: "loopback address among others", code: "identity_address", facts: func(f Facts) Facts { f.Host, f.Loopback = "127.0.0.1", true; return f }, context: Context{Known: []Known{other}}, want: Fail, kind: fault.Refused, text: "10.0.0.2:3306"},
		{name: "clock", code: "clock", facts: func(f Facts) Facts { f.ClockOffset = -3 * time.Second; return f }, want: Warn, text: "-3s"},
		{name: "server_id is another's", code: "server_id", context: Context{Known: []Known{other}}, want: Warn, text: "becomes 2 instead of 1, which is db2's"},
		{name: "wanted server_id is taken", code: "server_id", request: func(r *Request) { r.ServerID = 1 }, context: Context{Known: []Known{other}}, want: Fail, kind: fault.Usage, text: "db2's"},
		{name: "statement", code: "binlog_format", facts: func(f Facts) Facts { return f.with("binlog_format", "STATEMENT") }, want: Warn, text: "becomes mixed instead of statement"},
		{name: "binlog filter", code: "binlog_filter", facts: func(f Facts) Facts { f.BinlogDoDB = "app"; return f }, want: Fail, kind: fault.Refused, text: "binlog_do_db \"app\""},
		{name: "own packets", code: "max_allowed_packet", facts: func(f Facts) Facts { return f.with("slave_max_allowed_packet", "1048576") }, want: Warn, text: "1048576"},
		{name: "another's packets", code: "max_allowed_packet", facts: func(f Facts) Facts { return f.with("slave_max_allowed_packet", "33554432") }, context: Context{Known: []Known{other}}, want: Warn, text: "db2's"},
		{name: "foreign domain", code: "gtid_domain_id", facts: func(f Facts) Facts {
			f.BinlogState = gtid.StateOf(gtid.GTID{Domain: 7, Server: 9, Seq: 33})
			return f
		}, want: Fail, kind: fault.Refused, text: "7-9-33"},
		{name: "MyISAM", code: "tables", facts: func(f Facts) Facts {
			f.NonTransactional = []mysql.Table{{Schema: "app", Name: "old", Engine: "MyISAM"}}
			return f
		}, want: Warn, text: "app.old"},
		{name: "slave", code: "is_slave", facts: func(f Facts) Facts { f.Sources = []mysql.SourceStatus{{Host: "m", Port: 3306}}; return f }, want: Fail, kind: fault.Refused, text: "m:3306"},
		{name: "own certificate", code: "tls", facts: func(f Facts) Facts { return f.with("ssl_cert", "/etc/ssl/own.pem") }, want: Fail, kind: fault.Refused, text: "/etc/ssl/own.pem"},
		{name: "foreign account", code: "account_taken", facts: func(f Facts) Facts { f.Logins = []mysql.Login{{User: "repld", Host: "%"}}; return f }, want: Fail, kind: fault.Refused, text: "'repld'@'%'"},
		{name: "bare", code: "log_bin", want: Warn, text: "log_bin is OFF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, r := bareFacts(), bareRequest()
			if c.facts != nil {
				f = c.facts(f)
			}
			if c.request != nil {
				c.request(&r)
			}
			code := strings.Replace(c.code, "identity_address", "address", 1)
			for _, row := range Judge(MasterRules(), r, f, c.context) {
				if row.Code != code {
					continue
				}
				if row.Result != c.want || !strings.Contains(row.Text, c.text) || row.Kind != c.kind {
					t.Errorf("got %s (kind %d): %s", row.Result, row.Kind, row.Text)
				}
				if row.Result == Fail && row.Fix == "" {
					t.Error("a refusal without a fix")
				}
				return
			}
			t.Fatalf("no rule %s", code)
		})
	}
}

func TestPlanOfInitMaster(t *testing.T) {
	codes := func(p Plan) string {
		var out []string
		for _, s := range p.Steps {
			out = append(out, s.Code)
		}
		return strings.Join(out, " ")
	}
	bare := PlanMaster(bareRequest(), bareFacts(), Context{})
	if got := codes(bare); got != "certificate write_config restart create_accounts announce open prove" {
		t.Errorf("a bare server: %s", got)
	}
	if bare.Question == "" || !strings.Contains(bare.Outage, "refuses writes") || !strings.Contains(bare.Text(), "systemctl restart mariadb") {
		t.Errorf("the outage is not named:\n%s", bare.Text())
	}

	f := bareFacts()
	settings := SettingsFor(topology.RoleMaster, bareRequest(), f, Context{})
	for _, s := range settings {
		if s.Variable != "" && s.Variable != "read_only" && s.Option != "log-bin" {
			f = f.with(s.Variable, s.want())
		}
	}
	f = f.with("log_bin", "ON").with("log_bin_basename", "/var/lib/mysql/mariadb-bin").with("sync_binlog", "0")
	f.TLS = TLSFacts{Offered: true, Verified: true, NotAfter: time.Unix(1e10, 0), Now: time.Unix(1e9, 0)}
	if got := codes(PlanMaster(bareRequest(), f, Context{})); got != "write_config set_live create_accounts announce prove" {
		t.Errorf("a server that needs no restart: %s", got)
	}
	f = f.with("sync_binlog", "1")
	f.Places.Current = RenderDropIn("main", "db1", SettingsFor(topology.RoleMaster, bareRequest(), f, Context{}))
	recorded := Context{Cluster: topology.Cluster{ID: "c", Master: "db1"}}
	if got := codes(PlanMaster(bareRequest(), f, recorded)); got != "" {
		t.Errorf("the desired state: %s", got)
	}
	f.TLS.NotAfter = f.TLS.Now.Add(24 * time.Hour)
	if got := codes(PlanMaster(bareRequest(), f, recorded)); got != "certificate set_live" {
		t.Errorf("a certificate that ends tomorrow: %s", got)
	}
}

func TestParseAddress(t *testing.T) {
	for in, want := range map[string]string{
		"db1": "db1:3306", "db1:3307": "db1:3307", "[::1]:3307": "[::1]:3307", "[::1]": "[::1]:3306", "::1": "[::1]:3306",
		"10.0.0.1": "10.0.0.1:3306", "localhost:3307": "127.0.0.1:3307",
		"": "", "db1:": "", "db1:0": "", "db1:70000": "", ":3306": "", "a b:1": "", "[::1": "",
	} {
		_, _, got, err := ParseAddress(in)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
}
