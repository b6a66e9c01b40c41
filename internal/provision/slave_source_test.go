package provision

import (
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/internal/mysql"
	"github.com/repld/repld/topology"
)

// relayOf is a slave in order that another one could replicate from.
func relayOf() *Upstream {
	return &Upstream{
		Server: topology.Server{Name: "db2", Address: "10.0.0.2:3306", Role: topology.RoleSlave, Source: "db1"},
		Facts: mysql.AdminFacts{
			Version: "10.11.6-MariaDB", Sources: []mysql.SourceStatus{{IO: "Yes", SQL: "Yes"}},
			Settings: map[string]mysql.Setting{"log_bin": {Value: "ON"}, "log_slave_updates": {Value: "ON"}, "read_only": {Value: "ON"}, "skip_networking": {Value: "OFF"}},
		},
	}
}

// A relay that would pass on less than it receives, or nothing, is refused.
func TestASourceIsJudged(t *testing.T) {
	set := func(name, value string) func(*Upstream) {
		return func(u *Upstream) { u.Facts.Settings[name] = mysql.Setting{Value: value} }
	}
	for name, c := range map[string]struct {
		change func(*Upstream)
		want   Result
		word   string
	}{
		"in order":             {func(*Upstream) {}, Warn, "no acker"},
		"no log_slave_updates": {set("log_slave_updates", "OFF"), Fail, "log_slave_updates OFF"},
		"no log_bin":           {set("log_bin", "OFF"), Fail, "log_bin is OFF"},
		"writable":             {set("read_only", "OFF"), Fail, "accepts writes"},
		"no network":           {set("skip_networking", "ON"), Fail, "skip_networking"},
		"a filtered log":       {func(u *Upstream) { u.Facts.BinlogDoDB = "app" }, Fail, "filtered"},
		"delayed":              {func(u *Upstream) { u.Server.Delay = time.Hour }, Fail, "delayed"},
		"filtered":             {func(u *Upstream) { u.Server.ReplicateDoDB = []string{"app"} }, Fail, "filtered"},
		"skips errors":         {func(u *Upstream) { u.Server.SkipErrors = "1062" }, Fail, "skips errors"},
		"joining":              {func(u *Upstream) { u.Server.Joining = true }, Fail, "being set up"},
		"diverged":             {func(u *Upstream) { u.Server.Diverged = []gtid.GTID{{Server: 2, Seq: 9}} }, Fail, "does not have"},
		"stopped":              {func(u *Upstream) { u.Facts.Sources[0].SQL = "No" }, Fail, "does not replicate"},
		"nobody's slave":       {func(u *Upstream) { u.Facts.Sources = nil }, Fail, "does not replicate"},
		"newer":                {func(u *Upstream) { u.Facts.Version = "11.4.2-MariaDB" }, Fail, "older than"},
	} {
		s := SlaveFacts{Name: "db3", Relay: relayOf()}
		c.change(s.Relay)
		got := s.judgeSource(Facts{AdminFacts: mysql.AdminFacts{Version: "10.11.6-MariaDB"}})
		if got.Result != c.want || !strings.Contains(got.Text, c.word) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := (&SlaveFacts{}).judgeSource(Facts{}); got.Result != OK {
		t.Errorf("the master: %+v", got)
	}
}

// A member that replicates from another server than it is wanted to is only
// re-pointed; one that is not known yet is set up below its relay, from a copy
// of the master.
func TestAPlanForAChain(t *testing.T) {
	c := Context{Cluster: topology.Cluster{Name: "main", Master: "db1", Servers: map[string]*topology.Server{
		"db1": {Name: "db1", Address: "10.0.0.1:3306", Role: topology.RoleMaster},
		"db2": {Name: "db2", Address: "10.0.0.2:3306", Role: topology.RoleSlave, Source: "db1"},
		"db3": {Name: "db3", Address: "10.0.0.3:3306", Role: topology.RoleSlave, Source: "db1"},
	}}}
	from := func(host string) Facts {
		return Facts{AdminFacts: mysql.AdminFacts{Sources: []mysql.SourceStatus{{Host: host, Port: 3306, User: mysql.UserReplication, UsingGTID: "Slave_Pos", TLS: true, VerifyServer: true}}}}
	}
	facts := func() SlaveFacts {
		return SlaveFacts{Name: "db3", Master: *c.Cluster.Servers["db1"], Relay: relayOf(), Others: []topology.Server{*c.Cluster.Servers["db1"], *c.Cluster.Servers["db2"]}}
	}
	s := facts()
	if to := s.moves(from("10.0.0.1"), c); to != "db2" {
		t.Errorf("to a relay: %q", to)
	}
	if kind, _ := decideCopy(SlaveRequest{}, from("10.0.0.1"), c, s); kind != copyNothing {
		t.Errorf("a member that is re-pointed is not copied: %s", kind)
	}
	c.Cluster.Servers["db3"].Source = "db2"
	for _, host := range []string{"10.0.0.2", "10.0.0.1"} { // also while its relay is out of order
		if to := s.moves(from(host), c); to != "" {
			t.Errorf("it is meant to replicate from there already: %q", to)
		}
	}
	s.Relay = nil
	if to := s.moves(from("10.0.0.2"), c); to != "db1" {
		t.Errorf("without --source it is the master's: %q", to)
	}
	s = facts()
	s.Others = nil
	delete(c.Cluster.Servers, "db3")
	if to := s.moves(from("10.0.0.2"), c); to != "" {
		t.Errorf("not a member: %q", to)
	}
	start := gtid.Position{}
	c.Cluster.Start = &start
	if kind, _ := decideCopy(SlaveRequest{Clone: CloneAuto}, Facts{}, c, s); kind != copyDump {
		t.Errorf("a relay's binary log may not reach back: %s", kind)
	}
	if s.attached(from("10.0.0.1")) {
		t.Error("what is no member yet is attached only if it reads from the wanted source")
	}
}
