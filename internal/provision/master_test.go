package provision

import (
	"os"
	"strings"
	"testing"

	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/mysql"
	"github.com/repld/repld/test/mariadb"
)

// A server with a plain configuration and no binary log becomes a master whose
// configuration survives a restart, and a second run changes nothing.
func TestCaseA2_MasterWithoutBinaryLog(t *testing.T) {
	s := mariadb.Start(t, mariadb.Options{})
	s.MustExec(t, "CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY)", "INSERT INTO app.t VALUES (1),(2)")
	p, m := newProvisioner(t)

	never := requestFor(s)
	never.Restart = RestartNever
	_, err := p.InitMaster(t.Context(), MasterRequest{never})
	f := wantFault(t, err, fault.Partly, "restart_needed", "log_bin", "TLS")
	if !strings.Contains(f.Document, "log-bin = mariadb-bin") {
		t.Errorf("the drop-in is not printed: %q", f.Document)
	}
	if v := s.MustValue(t, "SELECT @@log_bin"); v != "0" {
		t.Fatalf("log_bin is %s without a restart", v)
	}
	ask := requestFor(s)
	ask.Restart = RestartAsk
	_, err = p.InitMaster(t.Context(), MasterRequest{ask})
	wantFault(t, err, fault.Unconfirmed, "not_confirmed", "restarted")

	res := mustInit(t, p, m, s)
	for query, want := range map[string]string{
		"SELECT @@log_bin": "1", "SELECT @@read_only": "0", "SELECT @@log_slave_updates": "1", "SELECT @@sync_binlog": "1",
		"SELECT @@gtid_strict_mode": "1", "SELECT @@server_id": "1", "SELECT @@event_scheduler": "OFF", "SELECT COUNT(*) FROM app.t": "2",
		"SELECT @@relay_log": "mariadb-relay-bin", "SELECT @@rpl_semi_sync_master_wait_point": "AFTER_SYNC",
		"SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA='repld'": "1",
		"SELECT CONCAT(name,epoch,master) FROM repld.cluster":                       "main1" + s.Name,
		"SELECT GROUP_CONCAT(ssl_type) FROM mysql.user WHERE User LIKE 'repld%'":    "ANY,ANY,ANY",
	} {
		if v := s.MustValue(t, query); v != want {
			t.Errorf("%s is %s, want %s", query, v, want)
		}
	}
	if !res.GTIDBefore.IsEmpty() || res.Era.First != 1 || res.Era.Server != 1 {
		t.Errorf("the era begins at %+v after %q", res.Era, res.GTIDBefore)
	}
	if pos := s.MustValue(t, "SELECT @@gtid_binlog_pos"); pos == "" {
		t.Error("the accounts are not in the binary log")
	}

	before := s.MustValue(t, "SELECT @@gtid_binlog_pos")
	again, err := p.InitMaster(t.Context(), MasterRequest{requestFor(s)})
	if err != nil || again.Changed || len(again.Plan.Steps) != 0 {
		t.Fatalf("the second run: %v, %+v", err, again.Plan.Steps)
	}
	if pos := s.MustValue(t, "SELECT @@gtid_binlog_pos"); pos != before {
		t.Errorf("the second run wrote: %s to %s", before, pos)
	}

	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v := s.MustValue(t, "SELECT @@read_only"); v != "1" {
		t.Error("a restarted master is writable before repld opens it")
	}
}

// The configuration cannot be written: nothing changes, the drop-in is printed,
// and once a person has placed it, the run goes on.
func TestConfigFileNotWritable(t *testing.T) {
	s := mariadb.Start(t, mariadb.Options{})
	p, m := newProvisioner(t)
	r := requestFor(s)
	r.ConfigFile = "/proc/repld/99-repld.cnf" // nobody may make files there
	_, err := p.InitMaster(t.Context(), MasterRequest{r})
	f := wantFault(t, err, fault.Partly, "config_not_writable", "/proc/repld", "run the command again", "repld-key.pem")
	if _, err := os.Stat(s.DataDir + "/repld-key.pem"); err == nil {
		t.Error("a certificate was delivered although the drop-in could not be")
	}

	if err := os.WriteFile(s.DropInPath(), []byte(f.Document), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"ca", "cert", "key"} {
		text, err := os.ReadFile(p.DataDir + "/ca/servers/main/" + s.Name + "/" + file + ".pem")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(s.DataDir+"/repld-"+file+".pem", text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	res, err := p.InitMaster(t.Context(), MasterRequest{r})
	if err != nil {
		t.Fatalf("after the drop-in was placed: %v", err)
	}
	m.recordMaster("main", res)
	if v := s.MustValue(t, "SELECT @@read_only"); v != "0" {
		t.Error("it was not opened")
	}
}

func TestConfigCommandGetsTheDropInOnStdin(t *testing.T) {
	s := mariadb.Start(t, mariadb.Options{})
	p, m := newProvisioner(t)
	r := requestFor(s)
	r.ConfigFile, r.ConfigCommand = "", []string{"cp", "/dev/stdin", s.DropInPath()}
	res, err := p.InitMaster(t.Context(), MasterRequest{r})
	if err != nil {
		t.Fatal(err)
	}
	m.recordMaster("main", res)
	again, err := p.InitMaster(t.Context(), MasterRequest{r})
	if err != nil || again.Changed {
		t.Errorf("the second run: %v, %+v", err, again.Plan.Steps)
	}

	other := mariadb.Start(t, mariadb.Options{Name: "other"})
	q, _ := newProvisioner(t)
	r = requestFor(other)
	r.ConfigFile, r.ConfigCommand = "", []string{"sh", "-c", "echo no room >&2; exit 3"}
	_, err = q.InitMaster(t.Context(), MasterRequest{r})
	wantFault(t, err, fault.Partly, "config_not_writable", "no room", "exit status 3")
}

func TestRestartCommandFailsOrNeverComesBack(t *testing.T) {
	s := mariadb.Start(t, mariadb.Options{})
	p, _ := newProvisioner(t)
	p.Timeouts.Restart, p.Timeouts.Back = 2*1e9, 3*1e9
	r := requestFor(s)

	r.RestartCommand = []string{"sh", "-c", "echo unit not found >&2; exit 5"}
	_, err := p.InitMaster(t.Context(), MasterRequest{r})
	wantFault(t, err, fault.Failed, "restart_failed", "unit not found", "exit status 5", "runs as before")

	r.RestartCommand = []string{"true"}
	_, err = p.InitMaster(t.Context(), MasterRequest{r})
	wantFault(t, err, fault.Failed, "restart_not_back", "still runs as before")

	r.RestartCommand = []string{"sleep", "60"}
	_, err = p.InitMaster(t.Context(), MasterRequest{r})
	wantFault(t, err, fault.Failed, "restart_failed", "did not end within 2s")

	r.RestartCommand = []string{"/no/such/command"}
	_, err = p.InitMaster(t.Context(), MasterRequest{r})
	wantFault(t, err, fault.Failed, "restart_failed", "no such file")

	if v := s.MustValue(t, "SELECT @@read_only"); v != "0" {
		t.Error("the server was closed although it was never restarted")
	}
	pid, err := os.ReadFile(s.PidFile)
	if err != nil {
		t.Fatal(err)
	}
	r.RestartCommand = []string{"kill", strings.TrimSpace(string(pid))}
	_, err = p.InitMaster(t.Context(), MasterRequest{r})
	wantFault(t, err, fault.Failed, "restart_not_back", "does not answer", "remove the drop-in")
}

func TestBadInputOfInitMaster(t *testing.T) {
	s := mariadb.Start(t, mariadb.Options{})
	p, _ := newProvisioner(t)
	try := func(change func(*Request)) error {
		r := requestFor(s)
		change(&r)
		_, err := p.InitMaster(t.Context(), MasterRequest{r})
		return err
	}
	wantFault(t, try(func(r *Request) { r.Admin.Password = "wrong" }), fault.Failed, "access_denied", "1045")
	wantFault(t, try(func(r *Request) { r.Address = "127.0.0.1:1" }), fault.Failed, "unreachable", "nobody listens")
	wantFault(t, try(func(r *Request) { r.BinlogFormat = "STATEMENT" }), fault.Usage, "statement_format", "UUID()")
	wantFault(t, try(func(r *Request) { r.SSLCA = "/ca.pem" }), fault.Usage, "bad_ssl_files")
	wantFault(t, try(func(r *Request) { r.Name = "a/b" }), fault.Usage, "bad_name")
	wantFault(t, try(func(r *Request) { r.Promotion = "perhaps" }), fault.Usage, "bad_promotion")
	if v := s.MustValue(t, "SELECT COUNT(*) FROM mysql.user WHERE User LIKE 'repld%'"); v != "0" {
		t.Error("something was changed")
	}
	if _, err := os.Stat(s.DropInPath()); err == nil {
		t.Error("the drop-in was written")
	}
}

func TestForeignDropInIsNeverOverwritten(t *testing.T) {
	s := mariadb.Start(t, mariadb.Options{})
	p, _ := newProvisioner(t)
	if err := os.WriteFile(s.DropInPath(), []byte("[mariadbd]\nmax_connections=77\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := p.InitMaster(t.Context(), MasterRequest{requestFor(s)})
	wantFault(t, err, fault.Refused, "config_file", "not written by repld")
}

// A later file of the user's overrides the drop-in: the error names it.
func TestOverridingFileIsNamed(t *testing.T) {
	s := mariadb.Start(t, mariadb.Options{})
	later := s.ConfigDir + "/zz-user.cnf"
	if err := os.WriteFile(later, []byte("[mariadbd]\nlog_slave_updates=0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p, _ := newProvisioner(t)
	_, err := p.InitMaster(t.Context(), MasterRequest{requestFor(s)})
	wantFault(t, err, fault.Failed, "setting_overridden", "log_slave_updates", later+" wins", "writable as before")
	if v := s.MustValue(t, "SELECT @@read_only"); v != "0" {
		t.Error("a failed init left the server closed")
	}
}

// A3: the four causes that look alike are told apart, and anonymous accounts do
// not keep repld out.
func TestCaseA3_LoginRefused(t *testing.T) {
	s := mariadb.Start(t, mariadb.Options{Anonymous: true})
	p, m := newProvisioner(t)
	res := mustInit(t, p, m, s)
	found := false
	for _, c := range res.Plan.Checks {
		if c.Code == "anonymous_accounts" && c.Result == Warn && strings.Contains(c.Fix, "DROP USER ''@'localhost'") {
			found = true
		}
	}
	if !found {
		t.Errorf("the anonymous accounts are not named: %+v", res.Plan.Checks)
	}

	s.MustExec(t,
		"CREATE USER r1@'%' IDENTIFIED BY 'x'", "GRANT REPLICATION SLAVE ON *.* TO r1@'%'",
		"CREATE USER r2@'10.0.0.%' IDENTIFIED BY 'x'", "CREATE USER r3@'localhost' IDENTIFIED BY 'x' REQUIRE SSL",
		"CREATE USER r4@'localhost' IDENTIFIED BY 'x'")
	conn, err := mysql.Dial(t.Context(), mysql.Target{Address: s.Addr(), User: s.AdminUser, Password: s.AdminPassword})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	f, err := mysql.GatherAdminFacts(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	slave := []string{"GRANT REPLICATION SLAVE ON *.* TO x"}
	for _, c := range []struct {
		user, want string
		grants     []string
		encrypted  bool
	}{
		{"r1", "anonymous account ''@'localhost'", slave, true},
		{"r2", "no account 'r2' may come from localhost (it may come from '10.0.0.%')", slave, true},
		{"r3", "requires TLS", slave, false},
		{"r4", "lacks REPLICATION SLAVE", []string{"GRANT USAGE ON *.* TO r4"}, true},
		{UserReplication, "", slave, true},
	} {
		got := mysql.LoginProblem(f.Logins, c.grants, c.user, "localhost", c.encrypted, true)
		if !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", c.user, got, c.want)
		}
		if c.user == "r1" || c.user == "r2" {
			if _, err := mysql.Dial(t.Context(), mysql.Target{Address: s.Addr(), User: c.user, Password: "x"}); mysql.Errno(err) != 1045 {
				t.Errorf("%s: the server itself says %v, want 1045", c.user, err)
			}
		}
	}
}
