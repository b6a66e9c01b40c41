package e2e

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/test/rig"
	"github.com/repld/repld/topology"
)

// killAt runs a verb and kills repld when a line of its progress holds the
// given words; it gives all that the verb said.
func killAt(t *testing.T, r *rig.Rig, args []string, line string) string {
	t.Helper()
	cmd := r.Command(within(t), args...)
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	killed := false
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if !killed && strings.Contains(strings.Join(strings.Fields(lines.Text()), " "), line) {
			killed = true
			if err := r.Repld.Kill(); err != nil {
				t.Error(err)
			}
		}
	}
	err = cmd.Wait()
	if !killed {
		t.Fatalf("no line holds %q (%v):\n%s", line, err, said.String())
	}
	// Unless the verb was quicker than the signal, its end is told as it is.
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		wantFault(t, rig.Output{Args: args, Stderr: said.String(), Code: code}, 6, "answer_lost", "went away", "run the same command again")
	}
	if err := r.StartRepld(within(t)); err != nil {
		t.Fatal(err)
	}
	return said.String()
}

// repld killed in the middle of init master: the same command goes on.
func TestBadInputRepldKilledInInitMaster(t *testing.T) {
	points := []string{"... %s: restart", "done %s: restart", "... %s: create_accounts", "... %s: announce", "... %s: prove"}
	r := start(t, rig.Options{Servers: len(points)})
	if err := r.StartRepld(within(t)); err != nil {
		t.Fatal(err)
	}
	for i, s := range r.Servers {
		point := fmt.Sprintf(points[i], s.Name)
		cluster := fmt.Sprintf("c%d", i)
		s.MustExec(t, "CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY)", "INSERT INTO app.t VALUES (1)")
		args := append(initMaster(r, s), "--cluster", cluster)
		killAt(t, r, args, point)
		answers(t, s)
		if out := r.Ctl(within(t), args...); out.Code != 0 {
			t.Fatalf("killed at %q, the same command: %v", point, out.Err())
		}
		for query, want := range map[string]string{
			"SELECT @@read_only":         "0",
			"SELECT COUNT(*) FROM app.t": "1",
			"SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA='repld' AND TABLE_NAME='probe'": "0",
		} {
			if v := s.MustValue(t, query); v != want {
				t.Errorf("killed at %q: %s is %s, want %s", point, query, v, want)
			}
		}
		if out := r.Ctl(within(t), append(args, "-o", "json")...); out.Code != 0 || !strings.Contains(out.Stdout, `"changed": false`) {
			t.Errorf("killed at %q, a third run: %v", point, out.Err())
		}
	}
}

// repld killed in the middle of init slave, also while it copies: the same
// command goes on and the cluster becomes healthy, with the same data. Nowhere
// does a password appear meanwhile.
func TestBadInputRepldKilledInInitSlave(t *testing.T) {
	points := []string{"done %s: restart", "... %s: copy", " MiB", "... %s: attach", "... %s: prove"}
	r := start(t, rig.Options{Servers: 1 + len(points)})
	if err := r.StartRepld(within(t)); err != nil {
		t.Fatal(err)
	}
	master := r.Servers[0]
	someData(t, master)
	if err := r.InitMaster(within(t), master); err != nil {
		t.Fatal(err)
	}
	argv := sampleArguments(t)
	var said strings.Builder
	for i, s := range r.Servers[1:] {
		point := strings.ReplaceAll(points[i], "%s", s.Name)
		args := initSlave(r, s)
		said.WriteString(killAt(t, r, args, point))
		answers(t, s)
		if st := serverStatus(status(t, r), s.Name); st != nil && st.Promotable {
			t.Errorf("killed at %q: half a slave may be promoted: %+v", point, st)
		}
		out := r.Ctl(within(t), args...)
		said.WriteString(out.Stdout + out.Stderr)
		if out.Code != 0 {
			t.Fatalf("killed at %q, the same command: %v", point, out.Err())
		}
		if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
			t.Fatalf("killed at %q: %v", point, err)
		}
	}
	master.MustExec(t, "INSERT INTO app.t (text) VALUES ('after')")
	for _, s := range r.Servers[1:] {
		sameTable(t, "app.t", master, s)
	}
	noSecretAnywhere(t, r, said.String(), argv())
}

// answers waits for a server whose restart outlived the repld that ordered it.
func answers(t *testing.T, s *mariadb.Server) {
	t.Helper()
	mariadb.Eventually(t, patience, func() error {
		_, err := s.Value(t.Context(), "SELECT 1")
		return err
	})
}

// someData makes a table that takes a moment to copy.
func someData(t *testing.T, s *mariadb.Server) {
	t.Helper()
	s.MustExec(t, "CREATE DATABASE app", "CREATE TABLE app.t (id INT AUTO_INCREMENT PRIMARY KEY, text VARCHAR(400))",
		"USE app", "INSERT INTO app.t (text) SELECT REPEAT(MD5(seq), 12) FROM seq_1_to_60000")
}

// sameTable waits until a slave has what the master has, and compares.
func sameTable(t *testing.T, table string, master, slave *mariadb.Server) {
	t.Helper()
	if err := slave.CatchUp(within(t), master); err != nil {
		t.Fatal(err)
	}
	checksum := func(s *mariadb.Server) string {
		row, err := s.Row(t.Context(), "CHECKSUM TABLE "+table)
		if err != nil {
			t.Fatal(err)
		}
		return row["Checksum"]
	}
	if a, b := checksum(master), checksum(slave); a != b || a == "NULL" {
		t.Errorf("%s: checksum %s on %s, %s on %s", table, a, master.Name, b, slave.Name)
	}
}

// sampleArguments reads all processes' arguments again and again; what it
// returns ends that and gives them.
func sampleArguments(t *testing.T) func() string {
	t.Helper()
	stop, done := make(chan struct{}), make(chan struct{})
	seen := map[string]bool{}
	go func() {
		defer close(done)
		for {
			paths, _ := filepath.Glob("/proc/[0-9]*/cmdline")
			for _, path := range paths {
				// A process may have ended meanwhile.
				if text, err := os.ReadFile(path); err == nil {
					seen[string(text)] = true
				}
			}
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	end := sync.OnceFunc(func() { close(stop); <-done })
	t.Cleanup(end)
	return func() string {
		end()
		var b strings.Builder
		for text := range seen {
			b.WriteString(text + "\n")
		}
		return b.String()
	}
}

// noSecretAnywhere stops repld, reads its passwords from its state and looks for
// them where they must not be: in its log, its files, its answers, in what was
// said and in processes' arguments.
func noSecretAnywhere(t *testing.T, r *rig.Rig, said, argv string) {
	t.Helper()
	places := map[string]string{"what replctl said": said, "the processes' arguments": argv}
	for _, verb := range []string{"history", "status"} {
		places[verb] = r.Ctl(within(t), verb, "-o", "json").Stdout
	}
	if !strings.Contains(argv, "mariadb-dump") && !strings.Contains(argv, "mysqldump") {
		t.Error("the dump was not among the sampled processes")
	}
	if err := r.Repld.Stop(); err != nil {
		t.Fatal(err)
	}
	store, err := topology.Open(filepath.Join(r.DataDir, "repld.db"), filepath.Join(r.DataDir, "repld.key"))
	if err != nil {
		t.Fatal(err)
	}
	secrets := map[string]string{"the administrator's": mariadb.AdminPassword}
	for purpose, a := range store.Accounts(api.DefaultCluster) {
		secrets[string(purpose)+"'s"] = a.Password
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if len(secrets) < 4 {
		t.Errorf("only %d passwords", len(secrets))
	}
	err = filepath.WalkDir(r.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		places[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range places {
		for whose, secret := range secrets {
			if secret == "" || strings.Contains(text, secret) {
				t.Errorf("%s password (%d bytes) stands in %s", whose, len(secret), where)
			}
		}
	}
}
