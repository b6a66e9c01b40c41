// Package cli drives the real repld and replctl, as a user does: exit codes,
// messages, signals. What they do to database servers is tested elsewhere.
package cli

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// bin is the directory of the binaries under test.
var bin string

func TestMain(m *testing.M) { os.Exit(build(m)) }

func build(m *testing.M) int {
	dir, err := os.MkdirTemp("", "repld-cli")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	out, err := exec.Command("go", "build", "-o", dir+string(filepath.Separator), "github.com/repld/repld/cmd/repld", "github.com/repld/repld/cmd/replctl").CombinedOutput()
	if err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	bin = dir
	return m.Run()
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
			env.Setenv("SOCK", filepath.Join(env.WorkDir, "s"))
			env.Setenv("REPLCTL_ENDPOINT", "unix://"+filepath.Join(env.WorkDir, "s"))
			env.Setenv("LC_ALL", "C.UTF-8")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":  exits,
			"listen": listen,
		},
	})
}

// exits CODE PROGRAM [ARG...] runs a program and wants this very exit code;
// stdout and stderr are left for the next lines of the script.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARG...]")
	}
	want := args[0]
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		exit, ok := err.(*exec.ExitError)
		if !ok {
			ts.Fatalf("%s: %v", args[1], err)
		}
		got = fmt.Sprint(exit.ExitCode())
	}
	if got != want {
		ts.Fatalf("%s exited with %s, want %s", strings.Join(args[1:], " "), got, want)
	}
}

// listen PATH waits until something accepts connections on the socket.
func listen(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: listen PATH")
	}
	var err error
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		var conn net.Conn
		if conn, err = net.Dial("unix", args[0]); err == nil {
			conn.Close()
			return
		}
	}
	ts.Fatalf("nobody listens on %s: %v", args[0], err)
}

// TestSystemdIsToldWhenRepldIsReadyAndWhenItStops also holds repld to its
// promise to stop cleanly within 10 s of SIGTERM.
func TestSystemdIsToldWhenRepldIsReadyAndWhenItStops(t *testing.T) {
	dir := t.TempDir()
	notify, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(dir, "n"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer notify.Close()
	next := func() string {
		buf := make([]byte, 256)
		_ = notify.SetReadDeadline(time.Now().Add(20 * time.Second))
		n, err := notify.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
	sock := filepath.Join(dir, "s")
	cmd := exec.Command(filepath.Join(bin, "repld"), "--config", "/dev/null", "--data_dir", filepath.Join(dir, "data"), "--listen", "unix://"+sock, "--log.format", "json")
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+filepath.Join(dir, "n"))
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			<-ended
		}
	}()
	if got := next(); got != "READY=1" {
		t.Errorf("first notice %q", got)
	}
	// Ready means ready: no waiting here.
	if out, err := exec.Command(filepath.Join(bin, "replctl"), "--endpoint", "unix://"+sock, "history").CombinedOutput(); err != nil {
		t.Errorf("replctl after READY: %v: %s", err, out)
	}
	begun := time.Now()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := next(); got != "STOPPING=1" {
		t.Errorf("second notice %q", got)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("repld: %v\n%s", err, log.String())
		}
	case <-time.After(10 * time.Second):
		t.Error("repld has not stopped after 10 s")
	}
	t.Logf("stopped in %v", time.Since(begun))
	if _, err := os.Stat(sock); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
	for line := range strings.Lines(log.String()) {
		if !strings.HasPrefix(line, `{"time":`) {
			t.Errorf("not JSON in the log: %s", line)
		}
	}
}
