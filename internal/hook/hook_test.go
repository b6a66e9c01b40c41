package hook

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// script writes an executable shell script: the programs here are real ones.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hook")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAProgramGetsItsInputAndItsOutputIsKept(t *testing.T) {
	p := script(t, `echo "$1|$REPLD_EVENT"; cat; echo err >&2`)
	out, err := Run(t.Context(), Call{Argv: []string{p, "a b;$(x)"}, Env: []string{"REPLD_EVENT=fence"}, Stdin: []byte(`{"x":1}` + "\n"), Timeout: 10 * time.Second})
	if err != nil || out != "a b;$(x)|fence\n{\"x\":1}\nerr" {
		t.Errorf("%q, %v", out, err)
	}
}

func TestAFailureGivesTheExitStatusAndTheOutput(t *testing.T) {
	out, err := Run(t.Context(), Call{Argv: []string{script(t, "echo no; exit 3")}, Timeout: 10 * time.Second})
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || out != "no" {
		t.Errorf("%q, %v", out, err)
	}
	_, err = Run(t.Context(), Call{Argv: []string{"/nonexistent/hook"}, Timeout: time.Second})
	if !errors.Is(err, ErrNotStarted) {
		t.Errorf("%v", err)
	}
}

// Nothing of repld's environment reaches a program but where programs and the
// home directory are: it may hold passwords.
func TestTheEnvironmentIsMinimal(t *testing.T) {
	t.Setenv("REPLCTL_ADMIN_PASSWORD", "secret-1")
	t.Setenv("MYSQL_PWD", "secret-2")
	out, err := Run(t.Context(), Call{Argv: []string{"/usr/bin/env"}, Env: []string{"REPLD_EPOCH=4"}, Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "PATH", "HOME", "LANG", "REPLD_EPOCH":
		default:
			t.Errorf("the program sees %s", line)
		}
	}
	if !strings.Contains(out, "REPLD_EPOCH=4") {
		t.Error("REPLD_EPOCH is missing")
	}
}

func TestOutputIsBoundedToItsLastPart(t *testing.T) {
	out, err := Run(t.Context(), Call{Argv: []string{script(t, `i=0; while [ $i -lt 3000 ]; do echo "line $i"; i=$((i+1)); done; printf '\033[2J\376end'`)}, Timeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) > MaxOutput+16 || !strings.HasPrefix(out, "… ") || !strings.HasSuffix(out, "[2J�end") || strings.Contains(out, "\x1b") {
		t.Errorf("%d bytes: %.60q … %q", len(out), out, out[max(0, len(out)-20):])
	}
}

// At the timeout not only the program ends, but what it has started too: a
// fence that goes on by itself afterwards could hit a server that is back.
func TestTheTimeoutKillsTheWholeProcessGroup(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pid")
	p := script(t, fmt.Sprintf("sleep 300 &\necho $! > %s.new; mv %s.new %s; echo begun; wait", pids, pids, pids))
	begun := time.Now()
	out, err := Run(t.Context(), Call{Argv: []string{p}, Timeout: 500 * time.Millisecond})
	if !errors.Is(err, ErrTimeout) || out != "begun" {
		t.Errorf("%q, %v", out, err)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
	text, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	// The orphan is reaped by init; until then it is a zombie.
	for end := time.Now().Add(10 * time.Second); alive(pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("process %d, started by the program, goes on", pid)
		}
	}
}

func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
	}
	return !strings.Contains(string(stat), ") Z ")
}

func TestABackgroundProcessHoldsNothingUp(t *testing.T) {
	begun := time.Now()
	out, err := Run(t.Context(), Call{Argv: []string{script(t, "sleep 20 & echo $!")}, Timeout: 15 * time.Second})
	if pid, convErr := strconv.Atoi(out); convErr == nil {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	if err != nil || time.Since(begun) > 10*time.Second {
		t.Errorf("%q, %v after %v", out, err, time.Since(begun))
	}
}

func TestCancellingEndsTheProgram(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err := Run(ctx, Call{Argv: []string{"/bin/sleep", "60"}, Timeout: time.Minute}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestCheckNamesWhatCannotBeRun(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, bad := range [][]string{nil, {""}, {"/nonexistent/x"}, {plain}, {filepath.Dir(plain)}, {"./here"}, {"no-such-program-anywhere"}} {
		if Check(bad) == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	for _, good := range [][]string{{"/bin/sh"}, {"sh", "-c", "x"}} {
		if err := Check(good); err != nil {
			t.Error(err)
		}
	}
}

// Calls run one at a time and in order, and one that finds no room is lost
// instead of holding anything up.
func TestTheQueueIsBoundedAndInOrder(t *testing.T) {
	gate := filepath.Join(t.TempDir(), "gate")
	p := script(t, fmt.Sprintf("while [ ! -e %s ]; do sleep 0.02; done; echo $1", gate))
	var got []string
	ended := make(chan struct{}, 8)
	q := NewQueue(2, func(_ Call, out string, err error) {
		got = append(got, out)
		if err != nil {
			t.Error(err)
		}
		ended <- struct{}{}
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); q.Run(ctx) }()
	call := func(s string) bool { return q.Add(Call{Argv: []string{p, s}, Timeout: time.Minute}) }
	call("1")
	for len(q.calls) > 0 {
		time.Sleep(time.Millisecond) // until the first one runs
	}
	if !call("2") || !call("3") || call("4") || q.Lost() != 1 {
		t.Errorf("%d lost", q.Lost())
	}
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		<-ended
	}
	cancel()
	<-done
	if strings.Join(got, "") != "123" {
		t.Errorf("%q", got)
	}
}
