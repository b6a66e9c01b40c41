package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/repld/repld/internal/api"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func ptr[T any](v T) *T { return &v }

// member is a healthy slave of db1.
func member(name, address string, id uint32) api.ServerStatus {
	return api.ServerStatus{
		Name: name, Address: address, Role: "slave", Source: ptr("db1"), State: "streaming", Flavor: "mariadb", Version: "10.11.19",
		ServerID: id, ReadOnly: ptr(true), GTID: ptr("0-1-482133"), GTIDReceived: ptr("0-1-482133"), LagMS: ptr(int64(0)),
		LagTransactions: ptr(uint64(0)), LagBytes: ptr(uint64(0)), IOThread: ptr("yes"), SQLThread: ptr("yes"), TLS: ptr(true),
		Promotable: true, NotPromotableBecause: []api.Problem{}, ClockOffsetMS: ptr(int64(-3)), Problems: []api.Problem{}, ObservedMSAgo: ptr(int64(80)),
	}
}

func healthy() *api.Status {
	master := member("db1", "10.0.0.1:3306", 1)
	master.Role, master.Source, master.State, master.ReadOnly = "master", nil, "writable", ptr(false)
	master.GTIDReceived, master.IOThread, master.SQLThread, master.TLS = nil, nil, nil, nil
	master.LagMS, master.LagTransactions, master.LagBytes = nil, nil, nil
	return &api.Status{
		Cluster: "main", Health: "healthy", Epoch: 3, Master: ptr("db1"), Mode: "automatic",
		Durability: api.Durability{Configured: "semi-sync", State: "armed", Ackers: []string{"db2", "db3"}},
		Servers:    []api.ServerStatus{master, member("db2", "10.0.0.2:3306", 2), member("db3", "10.0.0.3:3306", 3)},
		Forecast:   api.Forecast{Candidate: ptr("db2"), TransactionsAtRisk: ptr(uint64(0)), BlockedBecause: []api.Problem{}},
		Problems:   []api.Problem{},
	}
}

// troubled has a slave that cannot be reached, one whose SQL thread broke, and
// names that are too long for a table.
func troubled() *api.Status {
	s := healthy()
	s.Health, s.Paused = "degraded", true
	s.Durability.State, s.Durability.Ackers = "degraded", []string{}
	gone := &s.Servers[1]
	gone.Name, gone.Address = "reporting-replica-frankfurt-2", "database-two.internal.example.com:3306"
	gone.State, gone.Promotable = "unreachable", false
	gone.ReadOnly, gone.GTID, gone.GTIDReceived, gone.LagMS, gone.LagTransactions, gone.LagBytes = nil, nil, nil, nil, nil, nil
	gone.IOThread, gone.SQLThread, gone.TLS, gone.ClockOffsetMS, gone.ObservedMSAgo = nil, nil, nil, nil, ptr(int64(192_000))
	gone.NotPromotableBecause = []api.Problem{{Code: "unreachable", Text: "no answer since 3m12s: dial tcp 10.0.0.2:3306: connect: no route to host"}}
	gone.Problems = []api.Problem{{Code: "unreachable", Text: "no answer since 3m12s: dial tcp 10.0.0.2:3306: connect: no route to host"}}
	broken := &s.Servers[2]
	broken.State, broken.SQLThread, broken.Promotable, broken.LagMS, broken.LagTransactions = "broken", ptr("no"), false, nil, ptr(uint64(7))
	broken.IOThread, broken.GTID = ptr("connecting"), ptr("4294967295-4294967295-18446744073709551615")
	broken.LastError = &api.LastError{Code: 1062, Message: "Duplicate entry '7' for key 'PRIMARY'"}
	broken.NotPromotableBecause = []api.Problem{{Code: "delayed", Text: "it stays 1h behind on purpose (--delay 1h)"}}
	s.Problems = []api.Problem{
		{Code: "slave_sql_error", Server: "db3", Text: "the SQL thread stopped with error 1062: Duplicate entry '7' for key 'PRIMARY' on query. Default database: 'app'", Do: "replctl history"},
		{Code: "no_acker", Text: "commits do not wait for any slave since 2026-11-30T23:01:46Z: what is written now can be lost with the master"},
	}
	s.Forecast = api.Forecast{BlockedBecause: []api.Problem{{Code: "no_candidate", Text: "no slave could be promoted"}}}
	return s
}

func empty() *api.Status {
	return &api.Status{Cluster: "main", Health: "no_master", Mode: "automatic", Durability: api.Durability{Configured: "semi-sync", State: "off", Ackers: []string{}},
		Servers: []api.ServerStatus{}, Problems: []api.Problem{}, Forecast: api.Forecast{BlockedBecause: []api.Problem{}}}
}

func TestStatusRenderings(t *testing.T) {
	narrow := look{width: maxWidth}
	for name, s := range map[string]*api.Status{"healthy": healthy(), "troubled": troubled(), "empty": empty()} {
		got := renderStatus(s, narrow, false)
		golden(t, "status_"+name+".txt", got)
		for line := range strings.Lines(got) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > maxWidth {
				t.Errorf("%s: a line has %d columns: %s", name, n, line)
			}
		}
		if strings.Contains(got, "\x1b") {
			t.Errorf("%s: colours without a terminal: %q", name, got)
		}
		ascii := renderStatus(s, look{width: maxWidth, ascii: true}, false)
		for _, r := range ascii {
			if r > 127 {
				t.Errorf("%s in ASCII has %q", name, r)
			}
		}
		golden(t, "status_"+name+"_wide.txt", renderStatus(s, look{}, true))
	}
	golden(t, "status_healthy_ascii.txt", renderStatus(healthy(), look{width: maxWidth, ascii: true}, false))
	var out bytes.Buffer
	c := &cli{stdout: &out, format: formatJSON}
	for _, format := range []string{formatJSON, formatYAML} {
		out.Reset()
		c.format = format
		if err := c.output(troubled(), nil); err != nil {
			t.Fatal(err)
		}
		golden(t, "status_troubled."+format, out.String())
	}
}

// An operation that cannot rescue anything does not say that it rescued nothing.
func TestOnlyAChangeOfMasterTellsWhatWasRescued(t *testing.T) {
	for kind, want := range map[string]bool{"init": false, "restart": false, "failover": true} {
		if got := strings.Contains(renderOperation(&api.Operation{ID: "1", Kind: kind}, look{}), "rescued"); got != want {
			t.Errorf("%s: told %v", kind, got)
		}
	}
}

// The forecast does not speak of the death of a master that is dead.
func TestTheForecastOfALostMaster(t *testing.T) {
	s := healthy()
	for i := range s.Servers {
		if s.Servers[i].Name == *s.Master {
			s.Servers[i].State = "unreachable"
		}
	}
	if got := renderForecast(s, look{}); !strings.HasPrefix(got, "A failover of "+*s.Master+" now: ") {
		t.Error(got)
	}
}

func TestStatusShowsEveryServerOnceWhateverTheSources(t *testing.T) {
	s := healthy()
	s.Servers[1].Source, s.Servers[2].Source = ptr("db3"), ptr("db2") // a ring
	s.Servers = append(s.Servers, member("db4", "h:4", 4), member("db5", "h:5", 5))
	s.Servers[3].Source, s.Servers[4].Source = ptr("nobody"), ptr("db1")
	var names []string
	for _, n := range tree(s.Servers, look{ascii: true}) {
		names = append(names, n.prefix+n.server.Name)
	}
	want := []string{"db1", "`-db5", "db4", "db2", "`-db3"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStatusExitCodes(t *testing.T) {
	failingOver, readOnly := healthy(), healthy()
	failingOver.Health = "failing_over" // the new master is open, the others are being re-pointed
	readOnly.Health, readOnly.Servers[0].State = "failing_over", "unreachable"
	blocked := troubled()
	blocked.Health, blocked.Servers[0].State = "blocked", "unreachable"
	for name, c := range map[string]struct {
		s    *api.Status
		want int
	}{
		"healthy": {healthy(), 0}, "degraded": {troubled(), 3}, "before init": {empty(), 4},
		"failing over, closed": {readOnly, 4}, "failing over, open": {failingOver, 3}, "blocked": {blocked, 4},
	} {
		if got := statusExit(c.s); got != c.want {
			t.Errorf("%s: exit %d, want %d", name, got, c.want)
		}
	}
}

func operations() []api.Operation {
	return []api.Operation{
		{ID: "4", Kind: "failover", Result: "done", OldMaster: ptr("db1"), NewMaster: ptr("db2"), Epoch: ptr(uint64(4)), StartedAt: "2026-11-30T23:01:46.123Z",
			DetectedMS: ptr(31.4), OpenedMS: ptr(58.2), TotalMS: ptr(1204.6), WriteOutageMS: ptr(71.0), LostTransactions: ptr(uint64(0)), RescuedTransactions: 12,
			Steps: []api.Step{{Name: "stop_io", Server: ptr("db2"), MS: 1.62, Result: "done"}, {Name: "drain", Server: ptr("db2"), MS: 12.4, Result: "done"},
				{Name: "announce", MS: 3, Result: "done"}},
			Evidence: []string{"the binlog stream of db1 broke at 23:01:46.123", "3 new connections to db1 were refused within 20ms: dial tcp 10.0.0.1:3306: connect: connection refused"}},
		{ID: "3", Kind: "failover", Result: "blocked", OldMaster: ptr("db1"), StartedAt: "2026-11-30T22:00:00.000Z", Steps: []api.Step{}, Evidence: []string{},
			Detail: "no slave could be promoted"},
		{ID: "1", Kind: "init", Result: "done", Server: ptr("db1"), StartedAt: "2026-11-30T21:00:00.000Z", TotalMS: ptr(2500.0), LostTransactions: ptr(uint64(0)), Steps: []api.Step{}, Evidence: []string{}},
	}
}

func TestHistoryRenderings(t *testing.T) {
	l := look{width: maxWidth}
	golden(t, "history.txt", renderHistory(operations(), l))
	golden(t, "history_none.txt", renderHistory(nil, l))
	for i, name := range []string{"failover", "blocked"} {
		op := operations()[i]
		golden(t, "history_"+name+".txt", renderOperation(&op, l))
	}
	for line := range strings.Lines(renderHistory(operations(), l)) {
		if utf8.RuneCountInString(line) > maxWidth+1 {
			t.Errorf("too wide: %s", line)
		}
	}
}

func TestPlanAndProgressRenderings(t *testing.T) {
	p := &api.Plan{
		Steps: []api.PlanStep{{Server: "db1", Text: "write /etc/mysql/mariadb.conf.d/99-repld.cnf"},
			{Server: "db1", Text: "restart", Outage: "all connections to db1 end; it is back within seconds"}},
		Question: "Restart db1?", Warnings: []string{"app.log has no primary key"}, Document: "[mariadb]\nserver_id=1\n",
	}
	golden(t, "plan.txt", renderPlan(p, false)+"--\n"+renderPlan(p, true)+"--\n"+renderPlan(&api.Plan{}, true))
	var b strings.Builder
	for _, e := range []api.Event{{Step: "dump", Server: "db2", Status: "progress", Text: "40 of 161 MiB, about 12s left"}, {Step: "dump", Server: "db2", Status: "done"}, {Step: "proof", Status: "failed", Text: "x"}} {
		b.WriteString(renderEvent(e))
	}
	b.WriteString("--\n" + renderResult(&api.Result{Changed: true, Text: "db2 is a slave of db1\n", Warnings: []string{"w"}}) + "--\n" + renderResult(&api.Result{}))
	golden(t, "progress.txt", b.String())
}

func TestWordsAreSplitAsAShellWould(t *testing.T) {
	for in, want := range map[string][]string{
		"":                           nil,
		"  ssh db2\trepl-config ":    {"ssh", "db2", "repl-config"},
		`a 'b c' "d \"e\" $f" g\ h`:  {"a", "b c", `d "e" $f`, "g h"},
		`'' "" x''y`:                 {"", "", "xy"},
		`"a\nb" 'a\nb'`:              {`a\nb`, `a\nb`},
		"systemctl restart; rm $(x)": {"systemctl", "restart;", "rm", "$(x)"},
	} {
		got, err := splitWords(in)
		if err != nil || !cmp.Equal(want, got) {
			t.Errorf("splitWords(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"'", `"a`, `a\`, `"a\`} {
		if got, err := splitWords(in); err == nil {
			t.Errorf("splitWords(%q) = %q, want an error", in, got)
		}
	}
}
