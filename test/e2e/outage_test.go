package e2e

import (
	"slices"
	"testing"
	"time"

	"github.com/repld/repld/test/rig"
)

// All servers die at once under load, and come back in each order, the next one
// only when repld has had the time to do something rash with those that are
// there. Nothing acknowledged is lost, and the cluster heals by itself.
func TestTotalOutageReturningInEachOrder(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 3, Repld: []string{"failover: {block_window: 0s}", "semi_sync: {ack_timeout: 2s}"}})
	l := write(t, r)
	for _, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		// The master first, and while it still has an acker, so that the last
		// transactions stand on some of them only.
		master := r.Server(*status(t, r).Master)
		servers := append([]string{master.Name}, slices.DeleteFunc([]string{"db1", "db2", "db3"}, func(s string) bool { return s == master.Name })...)
		for _, name := range servers {
			if err := r.Server(name).Kill(); err != nil {
				t.Fatal(err)
			}
		}
		for i, at := range order {
			if err := r.Server(servers[at]).StartAgain(within(t)); err != nil {
				t.Fatal(err)
			}
			if i < 2 {
				time.Sleep(1500 * time.Millisecond)
			}
		}
		if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
			t.Fatalf("order %v: %v", order, err)
		}
		healed(t, r, l)
	}
	settle(t, r, l)
}
