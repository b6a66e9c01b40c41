package e2e

import (
	"strings"
	"testing"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/rig"
)

// While a cluster is paused nothing is promoted, and status says so; resume
// lets it go on. A second failover within block_window waits for resume.
func TestPauseAndResume(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 3})
	l := write(t, r)
	if err := r.Ctl(within(t), "pause", "--for", "10m").Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.Server("db1").Kill(); err != nil {
		t.Fatal(err)
	}
	st, err := r.WaitHealth(within(t), "no_master")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitStatus(within(t), "the dead master", func(st *api.Status) bool {
		return strings.Contains(problemCodes(st.Problems), "master_dead") && strings.Contains(problemCodes(st.Problems), "paused")
	}); err != nil || !st.Paused {
		t.Fatal(err, st.Paused)
	}
	if err := r.Ctl(within(t), "resume").Err(); err != nil {
		t.Fatal(err)
	}
	firstAck(t, l, 1)
	operation(t, r, "failover")
	if err := r.Server("db1").StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	st, err = r.WaitHealth(within(t), "healthy")
	if err != nil {
		t.Fatal(err)
	}

	// The new master dies within block_window.
	second := r.Server(*st.Master)
	if err := second.Kill(); err != nil {
		t.Fatal(err)
	}
	if st, err = r.WaitHealth(within(t), "blocked"); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(problemCodes(st.Problems), "block_window") {
		t.Errorf("problems: %+v", st.Problems)
	}
	if err := r.Ctl(within(t), "resume").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitStatus(within(t), "a third master", func(st *api.Status) bool {
		return st.Epoch == 3 && *st.Master != second.Name
	}); err != nil {
		t.Fatal(err)
	}
	if err := second.StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
}
