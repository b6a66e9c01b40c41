package e2e

import (
	"os"
	"strings"
	"testing"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/rig"
)

// A25: what docs/operations.md says of the state file holds. A damaged one
// contacts no server; its backup is good; an older one does nothing by itself
// until a person confirms the master.
func TestCaseA25_DamagedAndOlderStateFiles(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 3})
	l := write(t, r)
	state := r.DataDir + "/repld.db"
	backup, err := os.ReadFile(state + ".backup")
	if err != nil {
		t.Fatal(err)
	}
	replace := func(with []byte) {
		t.Helper()
		if err := r.Repld.Stop(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(state, with, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	replace([]byte("not a state file"))
	if err := r.StartRepld(within(t)); err == nil || !strings.Contains(err.Error(), "no server was contacted") ||
		!strings.Contains(err.Error(), state+".backup") {
		t.Fatalf("with a damaged state file: %v", err)
	}
	if err := os.WriteFile(state, backup, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.StartRepld(within(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
		t.Fatal(err)
	}

	if err := r.Ctl(within(t), "switchover", "--to", "db2", "--yes").Err(); err != nil {
		t.Fatal(err)
	}
	replace(backup) // from before the switchover
	if err := r.StartRepld(within(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitStatus(within(t), "the question for a person", func(st *api.Status) bool {
		return st.Health == "blocked" && strings.Contains(problemCodes(st.Problems), "confirmation_needed")
	}); err != nil {
		t.Fatal(err)
	}
	if v := r.Server("db2").MustValue(t, "SELECT @@read_only"); v != "0" {
		t.Error("the real master was closed on the word of an old state file")
	}
	if err := r.Ctl(within(t), "adopt", "db2", "--yes").Err(); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
}
