package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/internal/fault"
)

func explained() *api.Explanation {
	return &api.Explanation{
		Cluster: "main", Server: ptr("db3"), Promotable: false,
		Rules: []api.Rule{
			{Code: "no_binlog", Holds: true, Measured: "log_bin is true", Needs: "log_bin is on", Text: "log_bin is on"},
			{Code: "diverged", Measured: "it has 0-1-105", Needs: "it has no transactions of its own", Text: "it has transactions that the cluster does not have"},
		},
		LastDeclined: &api.Declined{Master: "db1", Verdict: "dead", At: "2026-01-02T03:04:05.678Z", LastedMS: ptr(1234.5),
			Evidence: []string{"dials are refused"}, Rules: []string{"manual_mode: failover.mode is manual"}},
		Extra: []string{"0-1-105"}, SavedUnder: "errant/main/db3",
	}
}

// The table tells which rules hold and which do not, what was measured, what
// only this server has and where it was saved, and the last declined failover.
func TestExplainPrintsEveryRuleWithWhatWasMeasured(t *testing.T) {
	w := &worker{why: explained()}
	w.serve(t)
	code, stdout, stderr := replctl(t, "explain", "db3")
	if code != 0 || stderr != "" {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	if diff := cmp.Diff([]string{"db3"}, w.about); diff != "" {
		t.Errorf("asked about (-want +got):\n%s", diff)
	}
	golden(t, "explain_server.txt", stdout)
}

// Without a name the cluster's rules come first, then each server's; a trouble
// that goes on has no end, and without one that is said.
func TestExplainOfTheClusterListsTheServers(t *testing.T) {
	server := explained()
	server.Cluster, server.LastDeclined, server.Extra = "", nil, nil
	why := &api.Explanation{Cluster: "main", Promotable: true, Servers: []api.Explanation{*server},
		Rules: []api.Rule{{Code: "master_lost", Measured: "alive", Needs: "the master is dead or hung", Text: "not so: the master is dead or hung"}}}
	w := &worker{why: why}
	w.serve(t)
	_, stdout, _ := replctl(t, "explain")
	wants(t, "stdout", stdout, "no failover was declined yet")
	if len(w.about) != 1 || w.about[0] != "" {
		t.Errorf("asked about %q", w.about)
	}
	why.LastDeclined = explained().LastDeclined
	why.LastDeclined.LastedMS = nil
	_, stdout, _ = replctl(t, "explain")
	golden(t, "explain_cluster.txt", stdout)
}

// JSON and YAML hold the stable fields; what is unknown is null.
func TestExplainAsJSONAndYAML(t *testing.T) {
	w := &worker{why: explained()}
	w.serve(t)
	for format, decode := range map[string]func([]byte, any) error{"json": json.Unmarshal, "yaml": yaml.Unmarshal} {
		code, stdout, stderr := replctl(t, "explain", "db3", "-o", format)
		var got map[string]any
		if err := decode([]byte(stdout), &got); code != 0 || err != nil {
			t.Fatalf("%s: exit %d, %v: %s", format, code, err, stderr)
		}
		rules, _ := got["rules"].([]any)
		if got["server"] != "db3" || got["promotable"] != false || len(rules) != 2 {
			t.Fatalf("%s: %v", format, got)
		}
		rule := rules[1].(map[string]any)
		for field, want := range map[string]any{"code": "diverged", "holds": false, "measured": "it has 0-1-105",
			"needs": "it has no transactions of its own", "text": "it has transactions that the cluster does not have"} {
			if rule[field] != want {
				t.Errorf("%s: %s is %v", format, field, rule[field])
			}
		}
		if d, _ := got["last_declined_failover"].(map[string]any); d["verdict"] != "dead" || d["lasted_ms"] != 1234.5 {
			t.Errorf("%s: %v", format, d)
		}
	}
	w.why.LastDeclined = nil
	if _, stdout, _ := replctl(t, "explain", "db3", "-o", "json"); !strings.Contains(stdout, `"last_declined_failover": null`) {
		t.Errorf("no declined failover: %s", stdout)
	}
}

func TestExplainOfAnUnknownServerIsAUsageError(t *testing.T) {
	w := &worker{repld: repld{fail: &fault.Error{Kind: fault.Usage, Code: "unknown_server", What: "cluster main has no server db9",
		Cause: "the name is not among its servers", State: "nothing was changed", Do: "replctl status"}}}
	w.serve(t)
	code, stdout, stderr := replctl(t, "explain", "db9")
	if code != int(fault.Usage) || stdout != "" {
		t.Errorf("exit %d, stdout %q", code, stdout)
	}
	wants(t, "stderr", stderr, "cluster main has no server db9", "do: replctl status")
}
