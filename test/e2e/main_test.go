package e2e

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/ledger"
	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/test/rig"
)

// bin is where the programs under test were built, once for all tests.
var bin string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "repld-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := rig.Build(context.Background(), dir, os.Getenv("REPLD_NO_RACE") == ""); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	bin = dir
	return m.Run()
}

// patience bounds every wait of a test: the machine may be slow, the race
// detector is on.
const patience = 60 * time.Second

// start makes a rig that is closed with the test; on a failure repld's log is
// shown.
func start(t *testing.T, o rig.Options) *rig.Rig {
	t.Helper()
	if o.Bin == "" {
		t.Parallel() // most tests mostly wait; those that measure bring programs of their own
	}
	o.Bin = cmp.Or(o.Bin, bin)
	r, err := rig.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("repld's log ends:\n%s", r.LogTail(150))
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// startAll makes a rig with a healthy cluster.
func startAll(t *testing.T, o rig.Options) *rig.Rig {
	t.Helper()
	r := start(t, o)
	if err := r.InitAll(within(t)); err != nil {
		t.Fatal(err)
	}
	return r
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// write starts a ledger of writers on the cluster.
func write(t *testing.T, r *rig.Rig) *ledger.Ledger {
	t.Helper()
	ctx := within(t)
	st := status(t, r)
	if err := ledger.Install(ctx, r.Server(*st.Master)); err != nil {
		t.Fatal(err)
	}
	l, err := ledger.Start(t.Context(), ledger.Options{Locate: ledger.Writable(r.Servers...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Stop)
	if err := l.WaitCount(ctx, 100); err != nil {
		t.Fatal(err)
	}
	return l
}

// firstAck waits for the first commit that another server than the given one
// acknowledges.
func firstAck(t *testing.T, l *ledger.Ledger, not uint32) ledger.Ack {
	t.Helper()
	a, err := l.WaitAck(within(t), func(a ledger.Ack) bool { return a.ServerID != not })
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// settle stops the writers, waits for health and compares all rows and servers.
func settle(t *testing.T, r *rig.Rig, l *ledger.Ledger, old ...ledger.OldMaster) *ledger.Report {
	t.Helper()
	l.Stop()
	if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
		t.Fatal(err)
	}
	var report *ledger.Report
	mariadb.Eventually(t, patience, func() (err error) {
		if report, err = l.Compare(t.Context(), r.Servers, old...); err != nil {
			return err
		}
		return report.Err()
	})
	t.Log(report)
	return report
}

func status(t *testing.T, r *rig.Rig) *api.Status {
	t.Helper()
	st, err := r.Status(within(t))
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func serverStatus(st *api.Status, name string) *api.ServerStatus {
	for i := range st.Servers {
		if st.Servers[i].Name == name {
			return &st.Servers[i]
		}
	}
	return nil
}

// operation waits until the newest operation of a kind has ended.
func operation(t *testing.T, r *rig.Rig, kind string) *api.Operation {
	t.Helper()
	var found *api.Operation
	mariadb.Eventually(t, patience, func() error {
		list, err := r.History(t.Context())
		if err != nil {
			return err
		}
		for i := range list {
			if list[i].Kind == kind && list[i].Result != "running" {
				found = &list[i]
				return nil
			}
		}
		return fmt.Errorf("no ended %s among %d operations", kind, len(list))
	})
	return found
}
