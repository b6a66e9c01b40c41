package e2e

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/test/rig"
)

// One repld guards several clusters, which share nothing: a server belongs to
// one of them, and masters that die together are replaced each in its own.
func TestTwoClustersLoseTheirMastersTogether(t *testing.T) {
	r := start(t, rig.Options{Servers: 4})
	if err := r.StartRepld(within(t)); err != nil {
		t.Fatal(err)
	}
	db := func(n int) *mariadb.Server { return r.Servers[n-1] }
	for _, do := range []func() error{
		func() error { return r.InitMaster(within(t), db(1)) },
		func() error { return r.InitSlave(within(t), db(2)) },
		func() error { return r.InitMaster(within(t), db(3), "--cluster", "shop") },
		func() error { return r.InitSlave(within(t), db(4), "--cluster", "shop") },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	// A server of one cluster is refused in another, under whatever name.
	args := append([]string{"--cluster", "shop", "init", "slave", "other", "--yes"}, r.InitFlags(db(2))...)
	if out := r.Ctl(within(t), args...); out.Code != 2 {
		t.Errorf("exit %d: %s", out.Code, out.Stderr)
	}
	of := func(cluster string) *api.Status {
		out, st := r.Ctl(t.Context(), "--cluster", cluster, "status", "-o", "json"), &api.Status{}
		if err := json.Unmarshal([]byte(out.Stdout), st); err != nil {
			t.Fatal(err, out.Err())
		}
		return st
	}
	wait := func(cluster, master, health string) {
		t.Helper()
		mariadb.Eventually(t, patience, func() error {
			if st := of(cluster); st.Health != health || st.Master == nil || *st.Master != master {
				return fmt.Errorf("cluster %s: %s, master %v, %+v", cluster, st.Health, st.Master, st.Problems)
			}
			return nil
		})
	}
	wait("main", "db1", "healthy")
	wait("shop", "db3", "healthy")
	for _, n := range []int{1, 3} {
		if err := db(n).Kill(); err != nil {
			t.Fatal(err)
		}
	}
	wait("main", "db2", "degraded")
	wait("shop", "db4", "degraded")
	for _, n := range []int{1, 3} {
		if err := db(n).StartAgain(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	wait("main", "db2", "healthy")
	wait("shop", "db4", "healthy")
}
