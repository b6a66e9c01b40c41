package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/ledger"
	"github.com/repld/repld/test/rig"
)

// build builds the programs that are shown.
func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := rig.Build(t.Context(), dir, os.Getenv("REPLD_NO_RACE") == ""); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The demonstration ends with success, says so, and shows the commands and the
// timings, without colours.
func TestTheWholeDemonstration(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run([]string{"--bin", build(t)}, &out, &errs); code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", code, errs.String(), out.String())
	}
	text := out.String()
	for _, want := range []string{
		`(?m)^\$ replctl init master db1 --address 127\.0\.0\.1:\d+ --admin-user admin \\$`,
		`(?m)^\$ replctl init slave db3 `, `(?m)^\$ kill -9 \d+$`, `(?m)^    opened +\d`, `(?m)^    lost +0 transactions$`,
		`\d+ ms after the kill the first commit`, `read-only slave of db[23]`,
		`\d{2,} commits were acknowledged, and each row is on each of the 3 servers: 0 lost`, `Nothing was lost`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("the output has no %q", want)
		}
	}
	if strings.Contains(text, "\x1b") || strings.Contains(text, "\r") {
		t.Error("the output has control codes although it is no terminal")
	}
	gone(t, text)
	if t.Failed() {
		t.Log(text)
	}
}

// Interrupted in the middle of the set-up, it leaves no process and no file.
func TestInterruptedItLeavesNothingBehind(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	out := &trigger{at: "$ replctl init slave db3", then: interrupt}
	if err := play(ctx, build(t), out); err == nil {
		t.Fatal("it went on")
	}
	if !strings.Contains(out.text.String(), out.at) || strings.Contains(out.text.String(), "kill -9") {
		t.Errorf("it was not interrupted in the middle:\n%s", out.text.String())
	}
	gone(t, out.text.String())
}

// A Ctrl-C in the terminal ends it with an exit code that is no success.
func TestAnInterruptIsNoSuccess(t *testing.T) {
	dir := build(t)
	program := filepath.Join(dir, "demo")
	if text, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	cmd := exec.CommandContext(t.Context(), program, "--bin", dir)
	var errs bytes.Buffer
	out := &trigger{at: "$ repld --config", then: func() { _ = cmd.Process.Signal(os.Interrupt) }}
	cmd.Stdout, cmd.Stderr = out, &errs
	err := cmd.Run()
	if code := cmd.ProcessState.ExitCode(); err == nil || code != 1 || !strings.Contains(errs.String(), "interrupted") {
		t.Errorf("exit code %d, %v, %s", code, err, errs.String())
	}
	gone(t, out.text.String())
}

// Whatever is lost, late or not proved makes the demonstration fail.
func TestVerdict(t *testing.T) {
	zero, one := uint64(0), uint64(1)
	fine := func() *ledger.Report { return &ledger.Report{Acknowledged: 5, Writable: []string{"db2"}} }
	for name, c := range map[string]struct {
		change func(*ledger.Report)
		lost   *uint64
		good   bool
	}{
		"all is well":       {func(*ledger.Report) {}, &zero, true},
		"a row is lost":     {func(r *ledger.Report) { r.Lost = map[string][]int64{"db3": {7}} }, &zero, false},
		"a late answer":     {func(r *ledger.Report) { r.LateAcks = []ledger.Ack{{ID: 7}} }, &zero, false},
		"tables differ":     {func(r *ledger.Report) { r.Differences = []string{"t"} }, &zero, false},
		"nothing written":   {func(r *ledger.Report) { r.Acknowledged = 0 }, &zero, false},
		"repld says 1 lost": {func(*ledger.Report) {}, &one, false},
		"repld cannot tell": {func(*ledger.Report) {}, nil, false},
	} {
		r := fine()
		c.change(r)
		if err := verdict(r, &api.Operation{LostTransactions: c.lost}); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A command is printed so that a shell would read the same arguments from it.
func TestCommandsCanBeTyped(t *testing.T) {
	var out bytes.Buffer
	s := &screen{out: &out, dir: t.TempDir()}
	args := []string{"init", "master", "db1", "--config-command", "ssh db1 'a b' > " + s.dir + "/x", "--yes",
		"--admin-user", "admin", "--admin-password-file", s.dir + "/admin.password", "--restart", "now"}
	s.shell(`printf '%s\n'`, args...)
	command := strings.TrimPrefix(out.String(), "$ ")
	// $D stands in single quotes where the argument needs quotes; only its name
	// is compared.
	got, err := exec.CommandContext(t.Context(), "sh", "-c", "D='$D'; "+command).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, got, command)
	}
	if want := s.short(strings.Join(args, "\n") + "\n"); string(got) != want {
		t.Errorf("%s\nreads as\n%s\nwant\n%s", command, got, want)
	}
}

// trigger calls a function once something was printed.
type trigger struct {
	text bytes.Buffer
	at   string
	then func()
}

func (w *trigger) Write(p []byte) (int, error) {
	n, err := w.text.Write(p)
	if w.then != nil && strings.Contains(w.text.String(), w.at) {
		w.then()
		w.then = nil
	}
	return n, err
}

// gone checks that the folder that was printed is no more, and that no process
// has it in its arguments.
func gone(t *testing.T, text string) {
	t.Helper()
	m := regexp.MustCompile(`(?m)^\$ D=(.+)$`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no folder was named:\n%s", text)
	}
	if _, err := os.Stat(m[1]); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", m[1], err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		left := users(m[1])
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("still running: %q", left)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// users are the command lines of the processes that name the folder.
func users(dir string) []string {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return []string{err.Error()}
	}
	var out []string
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), dir) {
			out = append(out, strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return out
}
