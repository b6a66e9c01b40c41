package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/rig"
)

// A25: whatever happens to the state file, repld either has the state or says
// that it has not, and does nothing then.
func TestCaseA25_DamagedStateFileStopsRepldAndItsBackupWorks(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 2})
	if err := r.Repld.Stop(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(r.DataDir, "repld.db")
	good := readFile(t, file)
	var before []string
	for _, s := range r.Servers {
		before = append(before, settings(t, s))
	}
	garbage := []byte(strings.Repeat("not a state file ", len(good)/16))
	zeroed := append([]byte(nil), good...)
	clear(zeroed[2*os.Getpagesize() : min(len(zeroed), 12*os.Getpagesize())])
	bothMeta := append([]byte(nil), good...)
	copy(bothMeta, garbage[:2*os.Getpagesize()])
	for name, content := range map[string][]byte{
		"empty": {}, "100_bytes": good[:100], "cut_in_half": good[:len(good)/2], "cut_to_12_KiB": good[:12<<10],
		"garbage": garbage, "both_meta_pages": bothMeta, "zeroed_pages": zeroed, "removed": nil,
	} {
		t.Run(name, func(t *testing.T) {
			if content == nil {
				if err := os.Remove(file); err != nil {
					t.Fatal(err)
				}
			} else {
				writeFile(t, file, string(content), 0o600)
			}
			out := runRepld(t, r)
			wantFault(t, out, 1, "state_damaged", "repld.db", "repld.db.backup", "no server was contacted")
			if strings.Contains(out.Stderr, "goroutine") {
				t.Errorf("it panicked:\n%s", out.Stderr)
			}
			if content != nil && string(readFile(t, file)) != string(content) {
				t.Error("the damaged file was changed")
			}
		})
	}
	// The backup is put in its place, as the error says.
	writeFile(t, file, string(readFile(t, file+".backup")), 0o600)
	for i, s := range r.Servers {
		sameFootprint(t, "a repld without its state", before[i], settings(t, s))
	}
	if err := r.StartRepld(within(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
		t.Fatal(err)
	}
	l := write(t, r)
	if err := r.Server("db1").Kill(); err != nil {
		t.Fatal(err)
	}
	firstAck(t, l, 1)
	if err := r.Server("db1").StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
}

// A25: a state file that is older than the servers is recognised by what they
// say; nothing happens until a person confirms, and then the cluster is guarded
// as it is.
func TestCaseA25_OlderStateFileWaitsForAPerson(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 3})
	l := write(t, r)
	file := filepath.Join(r.DataDir, "repld.db")
	if err := r.Repld.Stop(); err != nil {
		t.Fatal(err)
	}
	old := readFile(t, file)
	if err := r.StartRepld(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := r.Server("db1").Kill(); err != nil {
		t.Fatal(err)
	}
	firstAck(t, l, 1)
	if err := r.Server("db1").StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	st, err := r.WaitHealth(within(t), "healthy")
	if err != nil {
		t.Fatal(err)
	}
	master := *st.Master
	if err := r.Repld.Stop(); err != nil {
		t.Fatal(err)
	}
	writeFile(t, file, string(old), 0o600)
	if err := r.StartRepld(within(t)); err != nil {
		t.Fatal(err)
	}
	if st, err = r.WaitStatus(within(t), "the older state recognised", func(st *api.Status) bool {
		return st.Health == "blocked" && strings.Contains(problemCodes(st.Problems), "confirmation_needed")
	}); err != nil {
		t.Fatal(err)
	}
	for _, p := range st.Problems {
		if p.Code == "confirmation_needed" && (!strings.Contains(p.Text, master) || !strings.Contains(p.Text, "epoch 2") || !strings.Contains(p.Do, "adopt")) {
			t.Errorf("the problem does not say what the servers say: %+v", p)
		}
	}
	// Its idea of the master is not acted upon.
	have := len(l.Acks())
	if err := l.WaitCount(within(t), have+200); err != nil {
		t.Fatal(err)
	}
	for _, s := range r.Servers {
		want := "1"
		if s.Name == master {
			want = "0"
		}
		if v := s.MustValue(t, "SELECT @@read_only"); v != want {
			t.Errorf("%s has read_only=%s", s.Name, v)
		}
	}
	wantFault(t, r.Ctl(within(t), "adopt", "db1", "--yes", "-o", "json"), 5, "not_a_master", "db1")
	wantFault(t, r.Ctl(within(t), "adopt", master, "-o", "json"), 8, "not_confirmed", master)
	if out := r.Ctl(within(t), "adopt", master, "--yes"); out.Code != 0 {
		t.Fatal(out.Err())
	}
	if st, err = r.WaitHealth(within(t), "healthy"); err != nil {
		t.Fatal(err)
	}
	if *st.Master != master || st.Epoch < 3 {
		t.Errorf("master %s, epoch %d", *st.Master, st.Epoch)
	}
	// It is guarded again.
	if err := r.Server(master).Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitStatus(within(t), "another master", func(st *api.Status) bool {
		return *st.Master != master && st.Writable()
	}); err != nil {
		t.Fatal(err)
	}
	if err := r.Server(master).StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
}

// A25: a repld that runs on a copy of the state stands back from the cluster of
// the first, says so, and takes over only when that one is gone.
func TestCaseA25_RepldOnACopyOfTheStateStandsBack(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 2})
	dir := filepath.Join(r.Dir, "second")
	mkdir(t, filepath.Join(dir, "data"))
	for _, name := range []string{"repld.db.backup", "repld.key"} {
		writeFile(t, filepath.Join(dir, "data", strings.TrimSuffix(name, ".backup")), string(readFile(t, filepath.Join(r.DataDir, name))), 0o600)
	}
	if out, err := exec.Command("cp", "-a", filepath.Join(r.DataDir, "ca"), filepath.Join(dir, "data")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	second := secondRepld(t, r, dir)
	st, err := second.WaitStatus(within(t), "the first repld seen", func(st *api.Status) bool {
		return strings.Contains(problemCodes(st.Problems), "managed_by_another")
	})
	if err != nil {
		t.Fatal(err)
	}
	if st.Health == "healthy" {
		t.Errorf("a repld that stands back calls the cluster healthy")
	}
	wantFault(t, second.Ctl(within(t), "failover", "--yes", "-o", "json"), 5, "managed_by_another")
	if st, err := r.WaitHealth(within(t), "healthy"); err != nil || strings.Contains(problemCodes(st.Problems), "managed") {
		t.Errorf("the first one is disturbed: %v %+v", err, st)
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// runRepld runs repld in the foreground, which is expected to end by itself.
func runRepld(t *testing.T, r *rig.Rig) rig.Output {
	t.Helper()
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "repld"), "--config", r.Config)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return rig.Output{Stdout: stdout.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode()}
}
