package provision

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/internal/mysql"
	kit "github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/topology"
)

// restore loads a dump of the master on a server by hand, as a person would.
func restore(t *testing.T, m, s *kit.Server) {
	t.Helper()
	dump := exec.CommandContext(t.Context(), "mariadb-dump", "--no-defaults", "--socket="+m.Socket, "--user="+m.AdminUser, "--password="+m.AdminPassword,
		"--single-transaction", "--master-data=1", "--gtid", "--databases", "app", "repld")
	text, err := dump.Output()
	if err != nil {
		t.Fatal(err)
	}
	load := exec.CommandContext(t.Context(), "mariadb", "--no-defaults", "--socket="+s.Socket, "--user="+s.AdminUser, "--password="+s.AdminPassword)
	load.Stdin = strings.NewReader("SET sql_log_bin=0;\n" + string(text))
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.MustExec(t, "STOP SLAVE", "RESET SLAVE ALL")
}

func TestInitSlaveTakesARestoredBackup(t *testing.T) {
	rig := newSlaveRig(t, func(m *kit.Server) {
		m.MustExec(t, "CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY)", "INSERT INTO app.t VALUES (1)")
	})
	s := rig.slaves[0]
	restore(t, rig.m, s)
	rig.m.MustExec(t, "INSERT INTO app.t VALUES (2)")
	r := rig.request(s)
	_, err := rig.init(t, r)
	wantFault(t, err, fault.Refused, "existing_data", "--clone none")
	r.Clone = CloneNone
	res := rig.mustInit(t, r)
	if res.Copied != nil || res.StartAt.IsEmpty() {
		t.Errorf("%+v", res)
	}
	caughtUp(t, rig.m, s)
	if n := s.MustValue(t, "SELECT COUNT(*) FROM app.t"); n != "2" {
		t.Errorf("%s rows of 2: what followed the backup was skipped", n)
	}
}

func TestCaseA6AWrongPositionOfARestoredBackupIsRefused(t *testing.T) {
	rig := newSlaveRig(t, func(m *kit.Server) {
		m.MustExec(t, "CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY)")
	})
	s := rig.slaves[0]
	restore(t, rig.m, s)
	r := rig.request(s)
	r.Clone = CloneNone
	good := s.MustValue(t, "SELECT @@gtid_slave_pos")
	for pos, word := range map[string]string{
		"":               "which transaction",
		"0-1-500":        "newer than the master",
		"0-77-3":         "not",
		good + ",7-9-33": "domain 7",
	} {
		s.MustExec(t, "SET GLOBAL gtid_slave_pos='"+pos+"'")
		_, err := rig.init(t, r)
		wantFault(t, err, fault.Refused, "restored_position", word, "nothing was changed")
	}
	// What restoring wrote into its own binary log would look like extra
	// transactions; a plain server has none.
	s.MustExec(t, "SET GLOBAL gtid_slave_pos='"+good+"'")
	rig.mustInit(t, r)
}

func TestCaseA7APositionThatTheMasterHasPurgedIsRefused(t *testing.T) {
	rig := newSlaveRig(t, func(m *kit.Server) {
		m.MustExec(t, "CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY)")
	})
	s := rig.slaves[0]
	restore(t, rig.m, s)
	rig.m.MustExec(t, "INSERT INTO app.t VALUES (1)", "FLUSH BINARY LOGS", "INSERT INTO app.t VALUES (2)")
	file, err := rig.m.Row(t.Context(), "SHOW MASTER STATUS")
	if err != nil {
		t.Fatal(err)
	}
	rig.m.MustExec(t, "PURGE BINARY LOGS TO '"+file["File"]+"'")
	r := rig.request(s)
	r.Clone = CloneNone
	_, err = rig.init(t, r)
	wantFault(t, err, fault.Refused, "restored_position", "purged", "--clone dump")
	r.Clone, r.ReplaceData = CloneDump, true
	rig.mustInit(t, r)
	caughtUp(t, rig.m, s)
}

// The certificate must be for the very address; the slave itself finds out, and
// the error says more than the slave's own "2026".
func TestCaseA12ACertificateForAnotherAddressIsFoundByTheSlaveItself(t *testing.T) {
	rig := newSlaveRig(t, nil)
	s := rig.slaves[0]
	ca, err := OpenAuthority(rig.p.DataDir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	m, err := ca.Issue("main", "wrong", []string{"other.example"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	dir := rig.m.DataDir
	good := map[string][]byte{}
	for name, text := range map[string][]byte{fileCert: m.Cert, fileKey: m.Key} {
		if good[name], err = os.ReadFile(dir + "/" + name); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir+"/"+name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rig.m.MustExec(t, "FLUSH SSL")
	_, err = rig.init(t, rig.request(s))
	if f := fault.As(err); f == nil || !strings.Contains(f.Error(), "other.example") {
		t.Errorf("the names in the certificate are missing: %v", err)
	}
	for name, text := range good {
		if err := os.WriteFile(dir+"/"+name, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rig.m.MustExec(t, "FLUSH SSL")
	rig.mustInit(t, rig.request(s))
}

// Pure rules, each with the values of its case.
func TestSlaveRulesSayWhatSeparatesASlaveFromItsMaster(t *testing.T) {
	master := topology.Server{Name: "db1", Address: "127.0.0.1:3306"}
	facts := func(settings map[string]string) mysql.AdminFacts {
		f := mysql.AdminFacts{Version: "11.4.3-MariaDB", Settings: map[string]mysql.Setting{}}
		for k, v := range settings {
			f.Settings[k] = mysql.Setting{Value: v}
		}
		return f
	}
	far := Facts{Host: "10.0.0.7", AdminFacts: mysql.AdminFacts{Version: "10.11.19-MariaDB"}}
	for name, c := range map[string]struct {
		got  Check
		want Result
		word string
	}{
		"A4 loopback address": {(&SlaveFacts{Master: master}).judgeMasterAddress(far), Fail, "loopback"},
		"A4 bind":             {(&SlaveFacts{Master: topology.Server{Name: "db1", Address: "10.0.0.1:3306"}, MasterFacts: facts(map[string]string{"bind_address": "127.0.0.1"})}).judgeMasterAddress(far), Fail, "bind_address is 127.0.0.1"},
		"A4 skip-networking":  {(&SlaveFacts{Master: master, MasterFacts: facts(map[string]string{"skip_networking": "ON"})}).judgeMasterAddress(far), Fail, "skip_networking"},
		"version":             {(&SlaveFacts{MasterFacts: facts(nil)}).judgeVersion(far), Fail, "older than the master's"},
		"A10 packets":         {(&SlaveFacts{MasterTraits: mysql.Traits{MaxAllowedPacket: 16 << 20}, Traits: mysql.Traits{SlaveMaxAllowedPacket: 1 << 20}}).judgePackets(), Warn, "1153"},
		"X8 collations":       {(&SlaveFacts{UnknownCollations: []string{"utf8mb4_uca1400_ai_ci"}}).judgeCollations(), Fail, "uca1400"},
		"X9 time zone":        {(&SlaveFacts{MasterTraits: mysql.Traits{TimeZone: "SYSTEM", SystemTimeZone: "UTC", BinlogFormat: "MIXED"}, Traits: mysql.Traits{SystemTimeZone: "JST", UTCOffset: 32400}}).judgeTimeZone(), Fail, "JST"},
		"X9 with ROW":         {(&SlaveFacts{MasterTraits: mysql.Traits{TimeZone: "SYSTEM", BinlogFormat: "ROW"}, Traits: mysql.Traits{UTCOffset: 32400}}).judgeTimeZone(), Warn, "ROW"},
		"lower case":          {(&SlaveFacts{MasterTraits: mysql.Traits{LowerCase: "0"}, Traits: mysql.Traits{LowerCase: "1"}}).judgeLowerCase(), Fail, "lower_case_table_names"},
		"A8 foreign filter":   {(&SlaveFacts{Traits: mysql.Traits{Filters: []string{"replicate_do_db=app"}}}).judgeFilters(SlaveRequest{}), Warn, "--replicate-do-db"},
		"A8 master's filter":  {(&SlaveFacts{Master: master, MasterFacts: mysql.AdminFacts{BinlogDoDB: "app"}}).judgeMasterFilter(), Fail, "binlog_do_db"},
		"disk":                {(&SlaveFacts{FreeKnown: true, Free: 1 << 20, MasterHolding: mysql.Holdings{Schemas: []mysql.SchemaInfo{{Name: "app", Objects: 1, Bytes: 1 << 30}}}}).judgeSpace(copyDump), Fail, "1.1 GiB"},
		"own slaves":          {(&SlaveFacts{Master: master}).judgeSlaves(Facts{AdminFacts: mysql.AdminFacts{DumpThreads: []string{"10.0.0.9:1234"}}}), Fail, "10.0.0.9"},
		"other master":        {(&SlaveFacts{Master: master}).judgeSources(Facts{AdminFacts: mysql.AdminFacts{Sources: []mysql.SourceStatus{{Host: "10.9.9.9", Port: 3306}}}}), Fail, "10.9.9.9"},
	} {
		if c.got.Result != c.want || !strings.Contains(c.got.Text+c.got.Fix, c.word) {
			t.Errorf("%s: %+v", name, c.got)
		}
	}
}

// The empty start is only for a master without data whose beginning is known
// and still there.
func TestDecideCopyJudgesByWhatTheMasterHolds(t *testing.T) {
	start := gtid.At(gtid.GTID{Server: 1, Seq: 4})
	known := Context{Cluster: topology.Cluster{Start: &start}}
	data := mysql.Holdings{Schemas: []mysql.SchemaInfo{{Name: "app"}}}
	own := mysql.Holdings{Schemas: []mysql.SchemaInfo{{Name: "repld", Objects: 1}, {Name: "test"}}, Accounts: []mysql.AccountName{{User: "repld", Host: "%"}}}
	auto := SlaveRequest{Clone: CloneAuto}
	for name, c := range map[string]struct {
		r    SlaveRequest
		c    Context
		s    SlaveFacts
		want copyKind
	}{
		"nothing":           {auto, known, SlaveFacts{MasterHolding: own}, copyEmpty},
		"an empty schema":   {auto, known, SlaveFacts{MasterHolding: data}, copyDump},
		"an account":        {auto, known, SlaveFacts{MasterHolding: mysql.Holdings{Accounts: []mysql.AccountName{{User: "app", Host: "%"}}}}, copyDump},
		"purged":            {auto, known, SlaveFacts{MasterHolding: own, OldestBefore: gtid.StateOf(gtid.GTID{Server: 1, Seq: 5})}, copyDump},
		"purged up to it":   {auto, known, SlaveFacts{MasterHolding: own, OldestBefore: gtid.StateOf(gtid.GTID{Server: 1, Seq: 4})}, copyEmpty},
		"unknown beginning": {auto, Context{}, SlaveFacts{MasterHolding: own}, copyDump},
		"half a copy":       {auto, known, SlaveFacts{MasterHolding: own, Unfinished: &mysql.CopyState{}}, copyDump},
		"own data replaced": {auto, known, SlaveFacts{MasterHolding: own, Holding: data}, copyDump},
		"a filter":          {SlaveRequest{Clone: CloneAuto, ReplicateDoDB: []string{"app"}}, known, SlaveFacts{MasterHolding: own}, copyDump},
		"asked for":         {SlaveRequest{Clone: CloneDump}, known, SlaveFacts{MasterHolding: own}, copyDump},
		"restored":          {SlaveRequest{Clone: CloneNone}, known, SlaveFacts{MasterHolding: data}, copyKeep},
	} {
		if got, why := decideCopy(c.r, Facts{}, c.c, c.s); got != c.want || why == "" {
			t.Errorf("%s: %s (%s), want %s", name, got, why, c.want)
		}
	}
}
