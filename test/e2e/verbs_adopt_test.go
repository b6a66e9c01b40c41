package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/test/rig"
)

// A set-up that was made by hand, one slave by file and position and one by
// GTID, is taken over without copying data: moved to GTID and TLS, and guarded.
func TestAdoptOfARunningSetUp(t *testing.T) {
	r := start(t, rig.Options{})
	var opts []mariadb.Options
	for i := range 3 {
		opts = append(opts, mariadb.Options{Name: fmt.Sprintf("db%d", i+1), Config: append(mariadb.Replicating(i+1), "report-host=127.0.0.1")})
	}
	var err error
	if r.Servers, err = r.Kit.StartAll(within(t), opts...); err != nil {
		t.Fatal(err)
	}
	master, byFile, byGTID := r.Servers[0], r.Servers[1], r.Servers[2]
	master.MustExec(t, "CREATE USER repl@'%' IDENTIFIED BY 'r'", "GRANT REPLICATION SLAVE ON *.* TO repl@'%'",
		"CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY)", "INSERT INTO app.t VALUES (1)")
	const change = "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%d, MASTER_USER='repl', MASTER_PASSWORD='r', %s"
	byFile.MustExec(t, fmt.Sprintf(change, master.Port, "MASTER_LOG_FILE='binlog.000001', MASTER_LOG_POS=4"), "START SLAVE")
	byGTID.MustExec(t, fmt.Sprintf(change, master.Port, "MASTER_USE_GTID=slave_pos"), "START SLAVE")
	for _, s := range r.Servers[1:] {
		sameTable(t, "app.t", master, s)
	}
	if err := r.StartRepld(within(t)); err != nil {
		t.Fatal(err)
	}
	// init would have to tear it down, and says what to use instead.
	wantFaultBoth(t, r, 5, "has_slaves", initMaster(r, master), "replctl adopt db1")
	args := append([]string{"adopt", "db1", "--yes"}, r.InitFlags(master)...)
	before := settings(t, byFile)
	out := r.Ctl(within(t), append(args, "--dry-run")...)
	for _, words := range []string{"moved from file and position to GTID", "db2", "db3"} {
		if out.Code != 0 || !strings.Contains(out.Stdout, words) {
			t.Errorf("the plan does not say %q: %v\n%s", words, out.Err(), out.Stdout)
		}
	}
	sameFootprint(t, "a plan", before, settings(t, byFile))
	adoptByHand(t, r, args)
	st, err := r.WaitHealth(within(t), "healthy")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"db2", "db3"} {
		s := serverStatus(st, name)
		if s == nil || s.TLS == nil || !*s.TLS || s.ReadOnly == nil || !*s.ReadOnly || !s.Promotable {
			t.Errorf("%s: %+v", name, s)
			continue
		}
		row, err := r.Server(name).Row(t.Context(), "SHOW SLAVE STATUS")
		if err != nil || row["Using_Gtid"] != "Slave_Pos" {
			t.Errorf("%s: %v, Using_Gtid %s", name, err, row["Using_Gtid"])
		}
	}
	if out := r.Ctl(within(t), args...); out.Code != 0 || !strings.Contains(out.Stdout, "nothing to do") {
		t.Errorf("once more: %v", out.Err())
	}
	// What was adopted is guarded like what was set up.
	l := write(t, r)
	if err := master.Kill(); err != nil {
		t.Fatal(err)
	}
	firstAck(t, l, 1)
	if err := master.StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
	if st := status(t, r); st.Epoch != 2 || *st.Master == "db1" {
		t.Errorf("%+v", st)
	}
	if _, err := r.WaitStatus(within(t), "nobody else", func(st *api.Status) bool { return len(st.Servers) == 3 }); err != nil {
		t.Error(err)
	}
}

// adoptByHand runs adopt and does what it asks for: the slaves' option files are
// the servers' own, so that repld may not guess where its drop-in belongs.
func adoptByHand(t *testing.T, r *rig.Rig, args []string) {
	t.Helper()
	for range 2 * len(r.Servers) {
		out := r.Ctl(within(t), args...)
		switch {
		case out.Code == 0:
			return
		case out.Code != 7:
			t.Fatal(out.Err())
		}
		f := wantFault(t, r.Ctl(within(t), append(args, "-o", "json")...), 7, "config_not_writable")
		s := r.Server(*f.Error.Server)
		if s == nil {
			t.Fatalf("no server is named: %+v", f)
		}
		if have, err := filepath.Glob(s.DropInPath()); err != nil || len(have) > 0 {
			t.Fatalf("%s has its drop-in, and it is asked for again: %s", s.Name, out.Stderr)
		}
		copyAsTold(t, f.Error.Do)
		writeFile(t, s.DropInPath(), out.Stdout, 0o644)
		if err := s.Restart(within(t)); err != nil {
			t.Fatal(err)
		}
		if s != r.Servers[0] {
			s.MustExec(t, "START SLAVE")
		}
	}
	t.Fatal("adopt comes to no end")
}

// copyAsTold copies the files of "copy A to B, C to D and E to F".
func copyAsTold(t *testing.T, do string) {
	t.Helper()
	pairs := regexp.MustCompile(`(/\S+) to (/[^\s,]+)`).FindAllStringSubmatch(do, -1)
	for _, pair := range pairs {
		writeFile(t, pair[2], string(readFile(t, pair[1])), 0o600)
		if out, err := exec.Command("chown", "--reference="+filepath.Dir(pair[2]), pair[2]).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if len(pairs) != 3 {
		t.Errorf("%d files to copy in %q", len(pairs), do)
	}
}
