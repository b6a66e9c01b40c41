package partition

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/ledger"
)

// A master that stands still (SIGSTOP) for less than hang_timeout is left alone;
// for longer it is replaced, and fenced when it goes on, before it tells anybody
// OK: also after its slaves have noticed (slave_net_timeout, 5 s).
func TestMasterFrozen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		freeze   time.Duration
		replaced bool
	}{
		{"for half a second", 500 * time.Millisecond, false},
		{"for longer than hang_timeout", 3 * time.Second, true},
		{"for longer than slave_net_timeout", 8 * time.Second, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			x := up(t, 3)
			x.write(app1, app2)
			old := x.Server("db1")
			x.must(old.Freeze())
			frozen := time.Now()
			if c.replaced {
				to, ack := x.successor(1)
				t.Logf("%s goes on %v after the freeze", to.Name, ack.After.Sub(frozen).Round(time.Millisecond))
			}
			time.Sleep(time.Until(frozen.Add(c.freeze))) // the freeze is to be so long
			x.must(old.Thaw())
			x.goesOn(50, 0)
			if !c.replaced {
				x.noFailover()
			}
			x.settle()
			if c.replaced {
				x.tellsNothing(frozen)
			}
		})
	}
}

// A master that stands still for longer than server_timeout may tell clients OK
// in the moment in which it goes on: that its timeout ran out is all it knows.
// With server_timeout: never it cannot. Else what it told OK alone is not lost:
// it is saved, and the server stays out until a person has decided.
func TestMasterFrozenForLongerThanServerTimeout(t *testing.T) {
	t.Parallel()
	for _, timeout := range []string{"5s", "never"} {
		t.Run(timeout, func(t *testing.T) {
			t.Parallel()
			c := up(t, 3, quick, fmt.Sprintf("semi_sync: {ack_timeout: 4s, server_timeout: %s}", timeout))
			c.wait = patience // for as long as it takes
			c.write(app1)
			c.must(c.Server("db1").Freeze())
			frozen := time.Now()
			c.opened("db2", "db3")
			time.Sleep(time.Until(frozen.Add(8 * time.Second))) // longer than server_timeout
			c.must(c.Server("db1").Thaw())
			c.goesOn(50, 0)
			c.ledger.Stop()
			var late []ledger.Ack // also of commits that were sent before and waited
			for _, a := range c.ledger.Acks() {
				if a.ServerID == 1 && a.After.After(frozen) {
					late = append(late, a)
				}
			}
			t.Logf("%d commits were told OK by the old master when it went on", len(late))
			if timeout == "never" {
				c.settle()
				c.tellsNothing(frozen)
				return
			}
			c.takenBack()
			report, err := c.ledger.Compare(c.soon(), c.Servers)
			c.must(err)
			for _, a := range late {
				for name := range report.Lost {
					report.Lost[name] = slices.DeleteFunc(report.Lost[name], func(id int64) bool { return id == a.ID })
				}
			}
			maps.DeleteFunc(report.Lost, func(_ string, ids []int64) bool { return len(ids) == 0 })
			c.must(report.Err())
		})
	}
}

// tellsNothing fails the test if the old master told anybody OK for a commit that
// was sent to it after it froze. For one that was sent before, its slaves' word
// may have lain with it, unread, all the time: it is in the cluster.
func (c *cluster) tellsNothing(frozen time.Time) {
	c.t.Helper()
	for _, a := range c.ledger.LateAcks(1, frozen) {
		if a.Before.After(frozen) {
			c.t.Errorf("row %d was sent to the frozen master %v after the freeze and told OK", a.ID, a.Before.Sub(frozen))
		}
	}
}

// takenBack waits until db1 is back. If it is kept out, what it has alone must
// have been saved before, and it is given up by a person's word.
func (c *cluster) takenBack() {
	c.t.Helper()
	st := c.until("db1 back or kept out", func(st *api.Status) bool {
		return st.Health == "healthy" || serverStatus(st, "db1").State == "diverged" && c.operation("rejoin") != nil
	})
	if st.Health == "healthy" {
		return
	}
	if op := c.operation("rejoin"); op.Result != "blocked" || !strings.Contains(strings.Join(op.Evidence, "\n"), "were saved in") {
		c.t.Errorf("history says %+v", op)
	}
	c.must(c.Ctl(c.soon(), "rejoin", "db1", "--discard-errant", "--yes").Err())
	c.healthy()
}
