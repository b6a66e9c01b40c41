package main

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/internal/fault"
)

// worker is a repld that also answers the verbs for work on servers.
type worker struct {
	repld
	asked []any // the requests, in order
	why   *api.Explanation
	about []string // what was to be explained
}

func (w *worker) serve(t *testing.T) {
	t.Helper()
	serve(t, w, w)
}

func (w *worker) note(request any, c api.Consent, p api.Progress) (*api.Result, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, request)
	return w.answer(c, p)
}

func (w *worker) Stop(_ context.Context, _ string, r api.StopRequest, p api.Progress) (*api.Result, error) {
	return w.note(r, r.Consent, p)
}

func (w *worker) Start(_ context.Context, _ string, r api.StartRequest, p api.Progress) (*api.Result, error) {
	return w.note(r, r.Consent, p)
}

func (w *worker) Maintenance(_ context.Context, _ string, r api.MaintenanceRequest, p api.Progress) (*api.Result, error) {
	return w.note(r, r.Consent, p)
}

func (w *worker) Restart(_ context.Context, _ string, r api.RestartRequest, p api.Progress) (*api.Result, error) {
	return w.note(r, r.Consent, p)
}

func (w *worker) Explain(_ context.Context, _, server string) (*api.Explanation, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.about = append(w.about, server)
	if w.fail != nil {
		return nil, w.fail
	}
	return w.why, nil
}

// Each verb sends exactly what was asked for, after the plan, and nothing of it
// is changed by a dry run or without a confirmation.
func TestVerbsForWorkOnServersSendWhatWasAskedFor(t *testing.T) {
	plan, yes := api.Consent{DryRun: true}, api.Consent{Confirmed: true}
	for line, request := range map[string]func(api.Consent) any{
		"stop db2":               func(c api.Consent) any { return api.StopRequest{Consent: c, Name: "db2"} },
		"stop db2 --sql-only":    func(c api.Consent) any { return api.StopRequest{Consent: c, Name: "db2", SQLOnly: true} },
		"start db2":              func(c api.Consent) any { return api.StartRequest{Consent: c, Name: "db2"} },
		"maintenance db2 on":     func(c api.Consent) any { return api.MaintenanceRequest{Consent: c, Name: "db2", On: true} },
		"maintenance db2 off":    func(c api.Consent) any { return api.MaintenanceRequest{Consent: c, Name: "db2"} },
		"restart db2":            func(c api.Consent) any { return api.RestartRequest{Consent: c, Name: "db2"} },
		"restart db1 --in-place": func(c api.Consent) any { return api.RestartRequest{Consent: c, Name: "db1", InPlace: true} },
	} {
		t.Run(line, func(t *testing.T) {
			w := &worker{repld: repld{question: "Go on?"}}
			w.serve(t)
			args := strings.Fields(line)
			if code, stdout, _ := replctl(t, append(args, "--dry-run")...); code != 0 || !strings.Contains(stdout, "needs confirmation: Go on?") {
				t.Errorf("dry run: exit %d, %s", code, stdout)
			}
			if code, _, stderr := replctl(t, args...); code != int(fault.Unconfirmed) {
				t.Errorf("unconfirmed: exit %d, %s", code, stderr)
			}
			if diff := cmp.Diff([]any{request(plan), request(plan)}, w.asked); diff != "" {
				t.Fatalf("repld was asked for more than plans:\n%s", diff)
			}
			if code, stdout, stderr := replctl(t, append(args, "--yes")...); code != 0 || stdout != "done as planned\n" {
				t.Errorf("confirmed: exit %d, %q, %s", code, stdout, stderr)
			}
			if diff := cmp.Diff(request(yes), w.asked[len(w.asked)-1]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What is wrong on the command line is said with exit 2, before repld is asked.
func TestVerbsForWorkOnServersRefuseBadArguments(t *testing.T) {
	w := &worker{}
	w.serve(t)
	for _, line := range []string{"stop", "stop db2 db3", "start", "maintenance db2", "maintenance db2 maybe", "maintenance on db2", "restart",
		"restart db1 --sql-only", "stop db2 --in-place", "stop -- -x", "explain a b", "explain no/name"} {
		if code, stdout, stderr := replctl(t, strings.Fields(line)...); code != int(fault.Usage) || stdout != "" || stderr == "" {
			t.Errorf("%s: exit %d, stdout %q, stderr %q", line, code, stdout, stderr)
		}
	}
	if len(w.asked)+len(w.about) > 0 {
		t.Errorf("repld was asked: %v %v", w.asked, w.about)
	}
}

// A refusal keeps its exit code and its four parts.
func TestARefusedStopSaysWhyAndWhatToDo(t *testing.T) {
	w := &worker{repld: repld{fail: &fault.Error{Kind: fault.Refused, Code: "no_acker", What: "db2 is the only acker", Server: "db2",
		Cause: "every commit would wait", State: "nothing was changed", Do: "bring another slave back first"}}}
	w.serve(t)
	code, stdout, stderr := replctl(t, "stop", "db2", "--yes")
	if code != int(fault.Refused) || stdout != "" {
		t.Errorf("exit %d, stdout %q", code, stdout)
	}
	wants(t, "stderr", stderr, "db2 is the only acker (server db2)", "cause: every commit would wait", "state: nothing was changed", "do: bring another slave back first")
	_, _, stderr = replctl(t, "stop", "db2", "--yes", "-o", "json")
	wants(t, "stderr", stderr, `"code": "no_acker"`, `"server": "db2"`, `"do": "bring another slave back first"`)
}
