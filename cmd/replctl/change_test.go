package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/internal/fault"
)

// repld stands in for the daemon behind the real control API: it answers with
// what a test says and remembers what it was asked.
type repld struct {
	api.Reader
	api.Changer
	question string
	fail     error

	mu      sync.Mutex
	inits   []api.InitRequest
	removes []api.RemoveRequest
}

func (r *repld) answer(c api.Consent, p api.Progress) (*api.Result, error) {
	if c.DryRun {
		return &api.Result{Plan: &api.Plan{Steps: []api.PlanStep{{Server: "db1", Text: "forget it"}}, Question: r.question, Document: "[mariadb]\n"}}, nil
	}
	if r.fail != nil {
		return nil, r.fail
	}
	p(api.Event{Step: "forget", Server: "db1", Status: "done"})
	return &api.Result{Changed: true, Text: "done as planned"}, nil
}

func (r *repld) Init(_ context.Context, _ string, req api.InitRequest, p api.Progress) (*api.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inits = append(r.inits, req)
	return r.answer(req.Consent, p)
}

func (r *repld) Remove(_ context.Context, _ string, req api.RemoveRequest, p api.Progress) (*api.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removes = append(r.removes, req)
	return r.answer(req.Consent, p)
}

// start serves r and points replctl at it.
func (r *repld) start(t *testing.T) {
	t.Helper()
	serve(t, r, r)
}

// serve puts an implementation behind a control socket and points replctl at it.
func serve(t *testing.T, read api.Reader, change api.Changer) {
	t.Helper()
	endpoint := "unix://" + filepath.Join(t.TempDir(), "s")
	l, err := api.Listen(endpoint, "")
	if err != nil {
		t.Fatal(err)
	}
	s := api.NewServer(read, change, api.ThisVersion(), slog.New(slog.DiscardHandler))
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		<-served
	})
	t.Setenv("REPLCTL_ENDPOINT", endpoint)
}

// replctl runs with an empty stdin that is no terminal.
func replctl(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	var out, errs bytes.Buffer
	code = run(args, null, &out, &errs)
	return code, out.String(), errs.String()
}

func wants(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%s lacks %q: %s", what, p, text)
		}
	}
}

func TestWithoutATerminalNothingIsConfirmed(t *testing.T) {
	r := &repld{question: "Forget db1?"}
	r.start(t)
	code, stdout, stderr := replctl(t, "remove", "db1")
	if code != int(fault.Unconfirmed) || stdout != "" {
		t.Errorf("exit %d, stdout %q", code, stdout)
	}
	wants(t, "stderr", stderr, "1. db1: forget it", "Forget db1?", "--yes", "state: nothing was changed")
	if diff := cmp.Diff([]api.RemoveRequest{{Consent: api.Consent{DryRun: true}, Name: "db1"}}, r.removes); diff != "" {
		t.Errorf("repld was asked for more than the plan:\n%s", diff)
	}
}

func TestYesConfirmsAndADryRunOnlyPrints(t *testing.T) {
	r := &repld{question: "Forget db1?"}
	r.start(t)
	code, stdout, stderr := replctl(t, "--dry-run", "remove", "db1")
	if code != 0 || stderr != "" {
		t.Errorf("dry run: exit %d, stderr %q", code, stderr)
	}
	wants(t, "stdout of the dry run", stdout, "1. db1: forget it", "needs confirmation: Forget db1?", "[mariadb]")
	if len(r.removes) != 1 {
		t.Errorf("the dry run asked %d times", len(r.removes))
	}
	code, stdout, stderr = replctl(t, "--yes", "remove", "db1", "--purge-config")
	if code != 0 || stdout != "done as planned\n" {
		t.Errorf("yes: exit %d, stdout %q", code, stdout)
	}
	wants(t, "stderr", stderr, "done    db1: forget")
	want := api.RemoveRequest{Consent: api.Consent{Confirmed: true}, Name: "db1", PurgeConfig: true}
	if diff := cmp.Diff(want, r.removes[2]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhatNeedsNoConfirmationIsDoneAtOnce(t *testing.T) {
	r := &repld{}
	r.start(t)
	if code, _, stderr := replctl(t, "remove", "db1"); code != 0 {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if len(r.removes) != 2 || r.removes[1].Confirmed {
		t.Errorf("%+v", r.removes)
	}
}

func TestDropInThatAPersonMustWriteGoesToStdoutWithExit7(t *testing.T) {
	r := &repld{fail: &fault.Error{Kind: fault.Partly, Code: "config_not_writable", What: "cannot write the configuration", Server: "db1", Errno: 13, Document: "[mariadb]\nserver_id=1\n"}}
	r.start(t)
	code, stdout, stderr := replctl(t, "remove", "db1")
	if code != 7 || stdout != "[mariadb]\nserver_id=1\n" {
		t.Errorf("exit %d, stdout %q", code, stdout)
	}
	wants(t, "stderr", stderr, "replctl: cannot write the configuration (server db1, error 13)")
	code, _, stderr = replctl(t, "-o", "json", "remove", "db1")
	wants(t, "stderr", stderr, `"server": "db1"`, `"server_errno": 13`, `"code": "config_not_writable"`)
	if code != 7 || strings.Contains(stderr, "server_id") || strings.Contains(stderr, "kind") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

func TestInitSendsWhatWasAskedForAndTheCleanPassword(t *testing.T) {
	r := &repld{}
	r.start(t)
	file := filepath.Join(t.TempDir(), "pw")
	if err := os.WriteFile(file, []byte(" s3cret \r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := replctl(t, "init", "replica", "db2", "--address", "[::1]:3307", "--admin-user", "root", "--admin-password-file", file,
		"--server-id", "7", "--config-file", "/etc/x.cnf", "--config-command", "ssh 'db 2' repl-config", "--restart-command", "systemctl restart mariadb",
		"--restart", "now", "--ssl-ca", "/ca", "--ssl-cert", "/cert", "--ssl-key", "/key", "--binlog-format", "row", "--promotion", "avoid",
		"--clone", "none", "--replace-data", "--delay", "1d", "--replicate-do-db", "a", "--replicate-do-db", "b,c", "--skip-errors", "1062,1032")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	want := api.InitRequest{
		Name: "db2", Address: "[::1]:3307", Admin: api.Admin{User: "root", Password: " s3cret "}, ServerID: 7, ConfigFile: "/etc/x.cnf",
		ConfigCommand: []string{"ssh", "db 2", "repl-config"}, RestartCommand: []string{"systemctl", "restart", "mariadb"}, Restart: "now",
		SSLCA: "/ca", SSLCert: "/cert", SSLKey: "/key", BinlogFormat: "row", Promotion: "avoid",
		Slave: &api.SlaveOptions{Clone: "none", ReplaceData: true, DelayMS: 86400000, ReplicateDoDB: []string{"a", "b,c"}, SkipErrors: "1062,1032"},
	}
	if diff := cmp.Diff(want, r.inits[1]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	t.Setenv("REPLCTL_ADMIN_PASSWORD", "from env")
	if code, _, stderr := replctl(t, "init", "master", "db1", "--address", "h:1", "--admin-socket", "/s"); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	if got := r.inits[3].Admin; got != (api.Admin{User: "root", Password: "from env", Socket: "/s"}) || r.inits[3].Slave != nil {
		t.Errorf("%+v", r.inits[3])
	}
}

// terminal is a pseudo-terminal: the person's side and replctl's.
func terminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return person, program
}

// prompts tells, by its channel, when what was written ends like a question.
// Its buffer is no embedded field: io.WriteString would go past Write.
type prompts struct {
	end   string
	asked chan struct{}
	text  strings.Builder
}

func (p *prompts) Write(b []byte) (int, error) {
	if strings.HasSuffix(string(b), p.end) {
		close(p.asked)
	}
	return p.text.Write(b)
}

func (p *prompts) String() string { return p.text.String() }

func TestAnswerOnATerminalDecides(t *testing.T) {
	for answer, want := range map[string]int{"y\n": 0, "Yes\n": 0, "n\n": 8, "\n": 8, "yep\n": 8} {
		r := &repld{question: "Forget db1?"}
		r.start(t)
		person, program := terminal(t)
		stderr := &prompts{end: "Forget db1? [y/N] ", asked: make(chan struct{})}
		done := make(chan int, 1)
		go func() { done <- run([]string{"remove", "db1"}, program, io.Discard, stderr) }()
		<-stderr.asked
		if _, err := person.WriteString(answer); err != nil {
			t.Fatal(err)
		}
		if code := <-done; code != want {
			t.Errorf("answer %q: exit %d, want %d: %s", answer, code, want, stderr)
		}
	}
}

func TestPasswordIsAskedForWithoutBeingShown(t *testing.T) {
	r := &repld{}
	r.start(t)
	person, program := terminal(t)
	stderr := &prompts{end: "password of root: ", asked: make(chan struct{})}
	done := make(chan int, 1)
	go func() {
		done <- run([]string{"init", "master", "db1", "--address", "h:1", "--admin-user", "root"}, program, io.Discard, stderr)
	}()
	<-stderr.asked
	if _, err := person.WriteString("s3cret\n"); err != nil {
		t.Fatal(err)
	}
	if code := <-done; code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	if got := r.inits[1].Admin.Password; got != "s3cret" {
		t.Errorf("password %q", got)
	}
	// Whatever the terminal echoed stands before what is written now.
	if _, err := program.WriteString("END\n"); err != nil {
		t.Fatal(err)
	}
	echoed := make([]byte, 1024)
	n, err := person.Read(echoed)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(echoed[:n]); strings.Contains(text, "s3cret") || !strings.Contains(text, "END") {
		t.Errorf("the terminal shows %q", text)
	}
	after, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
	if err != nil || after.Lflag&unix.ECHO == 0 {
		t.Errorf("the terminal stays silent: %v", err)
	}
}
