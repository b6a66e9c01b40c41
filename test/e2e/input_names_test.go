package e2e

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/test/rig"
)

// What a cluster has already is refused under another name, kept if it is given
// again, and what another repld manages is left to that one.
func TestBadInputInAClusterThatExists(t *testing.T) {
	r := start(t, rig.Options{Servers: 3})
	if err := r.StartRepld(within(t)); err != nil {
		t.Fatal(err)
	}
	db1, db2, db3 := r.Servers[0], r.Servers[1], r.Servers[2]
	if err := r.InitMaster(within(t), db1); err != nil {
		t.Fatal(err)
	}
	free, own := footprint(t, db3), settings(t, db1)
	t.Run("slave_equal_to_master", func(t *testing.T) {
		wantFaultBoth(t, r, 2, "same_server", initSlave(r, db1), "db1")
		args := initSlave(r, db1)
		args[2] = "db9"
		wantFaultBoth(t, r, 2, "same_server", args, "db1")
		// The same server by another of its names.
		args = initSlave(r, db1, "--address", strings.Replace(db1.Addr(), "127.0.0.1", "localhost", 1))
		args[2] = "db9"
		wantFaultBoth(t, r, 2, "same_server", args, "db1")
	})
	t.Run("a_second_master", func(t *testing.T) {
		wantFaultBoth(t, r, 2, "has_master", initMaster(r, db2), "db1")
	})
	t.Run("statement_format", func(t *testing.T) {
		wantFaultBoth(t, r, 2, "statement_format", initSlave(r, db2, "--binlog-format", "statement"), "UUID")
	})
	t.Run("server_id_in_use", func(t *testing.T) {
		wantFaultBoth(t, r, 2, "server_id", initSlave(r, db2, "--server-id", "1"), "db1")
	})
	t.Run("dry_run_of_a_slave", func(t *testing.T) {
		out := r.Ctl(within(t), append(initSlave(r, db3), "--dry-run", "-o", "json")...)
		var plan struct {
			Steps []struct{ Server, Text string } `json:"steps"`
		}
		if err := json.Unmarshal([]byte(out.Stdout), &plan); err != nil || out.Code != 0 || len(plan.Steps) < 3 {
			t.Errorf("exit %d, %v\n%s%s", out.Code, err, out.Stdout, out.Stderr)
		}
	})
	t.Run("not_confirmed", func(t *testing.T) {
		wantFaultBoth(t, r, 8, "not_confirmed", changed(without(initSlave(r, db3), "--yes"), []string{"--restart", ""}), "--yes")
		wantFaultBoth(t, r, 8, "not_confirmed", []string{"remove", "db1"}, "--yes")
	})
	sameFootprint(t, "what was refused or only planned", free, footprint(t, db3))
	sameFootprint(t, "what was refused or only planned", own, settings(t, db1))

	// db2 comes with the server_id that the user wishes.
	if err := r.InitSlave(within(t), db2, "--server-id", "77"); err != nil {
		t.Fatal(err)
	}
	if v := db2.MustValue(t, "SELECT @@server_id"); v != "77" {
		t.Errorf("server_id is %s", v)
	}
	t.Run("name_taken", func(t *testing.T) {
		args := initSlave(r, db3)
		args[2] = "db2"
		wantFaultBoth(t, r, 2, "name_taken", args, "db2", db2.Addr())
	})
	t.Run("address_taken", func(t *testing.T) {
		args := initSlave(r, db2)
		args[2] = "db9"
		wantFaultBoth(t, r, 2, "address_taken", args, "db2", db2.Addr())
		args = initMaster(r, db2)
		args[2] = "m"
		wantFaultBoth(t, r, 2, "address_taken", append(args, "--cluster", "other"), "db2", "main")
	})
	t.Run("unknown_server", func(t *testing.T) {
		wantFaultBoth(t, r, 2, "unknown_server", []string{"remove", "db9", "--yes"}, "db9")
		wantFaultBoth(t, r, 2, "unknown_server", []string{"rejoin", "db9", "--yes"}, "db9")
		wantFaultBoth(t, r, 2, "unknown_server", []string{"failover", "--to", "db9", "--yes"}, "db9")
	})
	t.Run("again_changes_nothing", func(t *testing.T) { nothingTwice(t, r, initMaster(r, db1), initSlave(r, db2, "--server-id", "77")) })
	t.Run("managed_by_another_repld", func(t *testing.T) { managedByAnother(t, r) })
	// A refusal comes before any question.
	t.Run("refused_before_asked", func(t *testing.T) {
		wantFaultBoth(t, r, 5, "has_slaves", []string{"remove", "db1"}, "db2")
	})
	if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
		t.Error(err)
	}
}

// nothingTwice runs verbs again whose work is done.
func nothingTwice(t *testing.T, r *rig.Rig, verbs ...[]string) {
	t.Helper()
	history, err := r.History(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range verbs {
		s := r.Server(args[2])
		before, pid := settings(t, s), s.Pid()
		// Not even --yes is needed: there is nothing to ask.
		out := r.Ctl(within(t), append(without(args, "--yes"), "-o", "json")...)
		var result struct {
			Changed *bool `json:"changed"`
		}
		if err := json.Unmarshal([]byte(out.Stdout), &result); err != nil || out.Code != 0 || result.Changed == nil || *result.Changed {
			t.Errorf("%v: exit %d, %v\n%s%s", args[:3], out.Code, err, out.Stdout, out.Stderr)
		}
		sameFootprint(t, strings.Join(args[:3], " "), before, settings(t, s))
		if s.Pid() != pid {
			t.Errorf("%s was restarted", s.Name)
		}
	}
	again, err := r.History(within(t))
	if err != nil || len(again) != len(history) {
		t.Errorf("the history grew from %d to %d: %v", len(history), len(again), err)
	}
}

// settings are those parts of a footprint that replication does not move.
func settings(t *testing.T, s *mariadb.Server) string {
	t.Helper()
	lines := strings.Split(footprint(t, s), "\n")
	var vars []map[string]string
	if err := json.Unmarshal([]byte(lines[0]), &vars); err != nil {
		t.Fatal(err)
	}
	vars = slices.DeleteFunc(vars, func(row map[string]string) bool {
		name := strings.ToLower(row["VARIABLE_NAME"])
		return strings.HasPrefix(name, "gtid_") && name != "gtid_strict_mode" && name != "gtid_domain_id"
	})
	text, err := json.Marshal(vars)
	if err != nil {
		t.Fatal(err)
	}
	lines[0], lines[3] = string(text), ""
	return strings.Join(lines, "\n")
}

// managedByAnother lets a second repld, with a state of its own, ask for the
// servers of the first.
func managedByAnother(t *testing.T, r *rig.Rig) {
	t.Helper()
	second := secondRepld(t, r, filepath.Join(r.Dir, "second"))
	db1, db2 := r.Servers[0], r.Servers[1]
	for _, args := range [][]string{initMaster(r, db1), initMaster(r, db2), append([]string{"adopt", "db1", "--yes"}, r.InitFlags(db1)...)} {
		wantFaultBoth(t, second, 5, "managed_by", args, "managed by", "main")
	}
	if st := status(t, second); len(st.Servers) != 0 {
		t.Errorf("the second repld recorded something: %+v", st)
	}
}

// secondRepld runs another repld, with a folder of its own, for the same
// servers; it ends with the test.
func secondRepld(t *testing.T, r *rig.Rig, dir string) *rig.Rig {
	t.Helper()
	second := *r
	second.Repld, second.Dir = nil, dir
	second.Config, second.DataDir = filepath.Join(dir, "repld.yaml"), filepath.Join(dir, "data")
	second.Socket, second.Log = filepath.Join(dir, "repld.sock"), filepath.Join(dir, "repld.log")
	mkdir(t, dir)
	writeFile(t, second.Config, "data_dir: "+second.DataDir+"\nlisten: unix://"+second.Socket+"\n", 0o600)
	if err := second.StartRepld(within(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the second repld's log ends:\n%s", second.LogTail(60))
		}
		if err := second.Repld.Kill(); err != nil {
			t.Error(err)
		}
	})
	return &second
}
