package provision

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/topology"
)

// childEnv carries the work of a process that is going to be killed.
const childEnv = "REPLD_TEST_KILLED_CHILD"

type childWork struct {
	Request Request
	DataDir string
	// State is the file that pending is kept in; At is the step and its status at
	// which the process kills itself.
	State, At string
}

// TestKilledChild is no test of its own: it is the process that
// TestInitMasterGoesOnAfterSIGKILL starts and that dies by SIGKILL.
func TestKilledChild(t *testing.T) {
	text := os.Getenv(childEnv)
	if text == "" {
		t.Skip("runs only as a child")
	}
	var w childWork
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		t.Fatal(err)
	}
	die := func(at string) {
		if at == w.At {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	p, m := newProvisioner(t)
	p.DataDir = w.DataDir
	saves := 0
	m.onSave = func(pending Pending) error {
		saves++
		out, err := json.Marshal(pending)
		if err != nil {
			return err
		}
		if err := os.WriteFile(w.State, out, 0o600); err != nil {
			return err
		}
		die("save " + string(rune('0'+saves)))
		return nil
	}
	m.onStep = func(step, status string) { die(step + " " + status) }
	_, err := p.InitMaster(t.Context(), MasterRequest{w.Request})
	t.Fatalf("it was not killed at %s: %v", w.At, err)
}

// A process that is killed at any step leaves something that the same request
// brings to its end, with the journaled passwords and the first position.
func TestInitMasterGoesOnAfterSIGKILL(t *testing.T) {
	for _, at := range []string{
		"certificate run", "certificate done", "write_config done", "save 1", "restart run", "restart done", "save 2",
		"create_accounts done", "announce run", "announce done", "open run", "open done", "prove run", "prove done",
	} {
		t.Run(strings.ReplaceAll(at, " ", "_"), func(t *testing.T) {
			s := mariadb.Start(t, mariadb.Options{})
			p, m := newProvisioner(t)
			w := childWork{Request: requestFor(s), DataDir: p.DataDir, State: filepath.Join(t.TempDir(), "pending"), At: at}
			text, err := json.Marshal(w)
			if err != nil {
				t.Fatal(err)
			}
			child := exec.Command(os.Args[0], "-test.run=^TestKilledChild$")
			child.Env = append(os.Environ(), childEnv+"="+string(text))
			out, err := child.CombinedOutput()
			if status, ok := child.ProcessState.Sys().(syscall.WaitStatus); err == nil || !ok || status.Signal() != syscall.SIGKILL {
				t.Fatalf("the child was not killed: %v\n%s", err, out)
			}
			left, err := os.ReadFile(w.State)
			if err == nil {
				m.pending["main/"+s.Name] = left
			}
			res := mustInit(t, p, m, s)
			if !res.Changed || res.Era.First != 1 || !res.GTIDBefore.IsEmpty() {
				t.Errorf("era %+v after %q, want it from repld's very first transaction", res.Era, res.GTIDBefore)
			}
			password := res.Accounts[topology.AccountRepld].Password
			if strings.Contains(string(left), `"accounts"`) && !strings.Contains(string(left), password) {
				t.Error("other passwords than the journaled ones")
			}
			for query, want := range map[string]string{
				"SELECT @@read_only": "0",
				"SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA='repld' AND TABLE_NAME='probe'": "0",
			} {
				if v := s.MustValue(t, query); v != want {
					t.Errorf("%s is %s, want %s", query, v, want)
				}
			}
			again, err := p.InitMaster(t.Context(), MasterRequest{requestFor(s)})
			if err != nil || again.Changed {
				t.Errorf("a further run: %v, %+v", err, again.Plan.Steps)
			}
		})
	}
}
