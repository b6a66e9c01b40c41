package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/ledger"
	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/test/rig"
)

// A moment of a change of master, as repld's log tells it: when an effect begins
// or has ended, or when something was journaled.
type moment string

// The moments of a failover and of a switchover, in their order.
var (
	failoverMoments = []moment{
		"msg=begun", "msg=acting .*action=stop_io", "msg=done .*action=stop_io", "msg=acting .*action=detach", "msg=done .*action=detach",
		"msg=acting .*action=arm", "msg=acting .*action=open", "msg=done .*action=open", "msg=open ", "msg=acting .*action=attach", "msg=ended",
	}
	switchoverMoments = []moment{
		"msg=begun", "msg=acting .*action=shut", "msg=done .*action=shut", "msg=acting .*action=detach", "msg=done .*action=detach",
		"msg=acting .*action=arm", "msg=acting .*action=open", "msg=done .*action=open", "msg=open ", "msg=acting .*action=attach", "msg=ended",
	}
)

// await waits until a line that has been written to repld's log since the given
// size has the moment, and gives it.
func await(ctx context.Context, r *rig.Rig, size int64, m moment) (string, error) {
	want := regexp.MustCompile(string(m))
	for {
		text, err := os.ReadFile(r.Log)
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(string(text[min(size, int64(len(text))):])) {
			if strings.HasSuffix(line, "\n") && want.MatchString(line) {
				return line, nil
			}
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("%s: %w", m, ctx.Err())
		case <-time.After(200 * time.Microsecond):
		}
	}
}

func logSize(t *testing.T, r *rig.Rig) int64 {
	t.Helper()
	info, err := os.Stat(r.Log)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// changeMaster lets the master die, or orders a switchover, without waiting for
// its end.
func changeMaster(t *testing.T, r *rig.Rig, planned bool) (old *mariadb.Server, ordered <-chan rig.Output) {
	t.Helper()
	old = r.Server(*status(t, r).Master)
	done := make(chan rig.Output, 1)
	if planned {
		go func() { done <- r.Ctl(within(t), "switchover", "--yes") }()
		return old, done
	}
	if err := old.Kill(); err != nil {
		t.Fatal(err)
	}
	done <- rig.Output{}
	return old, done
}

// healed waits until the cluster is healthy, everybody who was killed being
// back, and clients write again. Exactly one server accepts writes then.
func healed(t *testing.T, r *rig.Rig, l *ledger.Ledger) {
	t.Helper()
	if _, err := r.WaitStatus(within(t), "health and slaves that have caught up", func(st *api.Status) bool {
		return st.Health == "healthy" && !slices.ContainsFunc(st.Servers, func(s api.ServerStatus) bool { return s.LagMS == nil || *s.LagMS > 200 })
	}); err != nil {
		t.Fatal(err)
	}
	if err := l.WaitCount(within(t), len(l.Acks())+20); err != nil {
		t.Fatal(err)
	}
	var open []string
	for _, s := range r.Servers {
		if s.MustValue(t, "SELECT @@read_only") == "0" {
			open = append(open, s.Name)
		}
	}
	if st := status(t, r); !slices.Equal(open, []string{*st.Master}) {
		t.Fatalf("%v accept writes, the master is %s", open, *st.Master)
	}
}

// kinds names the two ways to change the master.
var kinds = map[bool]string{false: "failover", true: "switchover"}

// repld may be killed at any moment of a failover or switchover: started again,
// it finishes or takes it back, and nothing is lost.
func TestRepldKilledAtEachStep(t *testing.T) {
	for planned, moments := range map[bool][]moment{false: failoverMoments, true: switchoverMoments} {
		t.Run(kinds[planned], func(t *testing.T) {
			r := startAll(t, rig.Options{Servers: 3, Repld: []string{"failover: {block_window: 0s}"}})
			l := write(t, r)
			for _, m := range moments {
				size := logSize(t, r)
				old, ordered := changeMaster(t, r, planned)
				if _, err := await(within(t), r, size, m); err != nil {
					t.Fatal(err)
				}
				if err := r.Repld.Kill(); err != nil {
					t.Fatal(err)
				}
				<-ordered
				if err := r.StartRepld(within(t)); err != nil {
					t.Fatal(err)
				}
				if !planned {
					if _, err := r.WaitStatus(within(t), "a new master after "+string(m), func(st *api.Status) bool {
						return st.Master != nil && *st.Master != old.Name && serverStatus(st, *st.Master).State == "writable"
					}); err != nil {
						t.Fatal(err)
					}
					if err := old.StartAgain(within(t)); err != nil {
						t.Fatal(err)
					}
				}
				healed(t, r, l)
			}
			settle(t, r, l)
		})
	}
}

// The candidate of a failover or switchover may freeze at any moment, for longer
// than its opening is good for: nothing is lost, and it is not opened late
// beside another one.
func TestCandidateFrozenAtEachStep(t *testing.T) {
	for planned, moments := range map[bool][]moment{false: failoverMoments, true: switchoverMoments} {
		t.Run(kinds[planned], func(t *testing.T) {
			r := startAll(t, rig.Options{Servers: 3, Repld: []string{"failover: {block_window: 0s, switchover_timeout: 5s}"}})
			l := write(t, r)
			for _, m := range moments {
				if strings.HasPrefix(string(m), "msg=done") {
					continue // the next effect begins at once
				}
				freezeAt(t, r, l, m, planned)
			}
			settle(t, r, l)
		})
	}
}

var serverInLine = regexp.MustCompile(`server=\[?(db\d)`)

func freezeAt(t *testing.T, r *rig.Rig, l *ledger.Ledger, m moment, planned bool) {
	t.Helper()
	size := logSize(t, r)
	old, ordered := changeMaster(t, r, planned)
	line, err := await(within(t), r, size, m)
	if err != nil {
		t.Fatal(err)
	}
	frozen := r.Server("db3")
	if old == frozen {
		frozen = r.Server("db2")
	}
	if found := serverInLine.FindStringSubmatch(line); found != nil && found[1] != old.Name {
		frozen = r.Server(found[1])
	}
	if err := frozen.Freeze(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(4500 * time.Millisecond) // longer than an opening lasts and than hang_timeout
	if err := frozen.Thaw(); err != nil {
		t.Fatal(err)
	}
	if out := <-ordered; out.Code != 0 && out.Code != 1 && out.Code != 5 {
		t.Errorf("%s frozen at %s: %v", frozen.Name, m, out.Err())
	}
	if !planned {
		if _, err := r.WaitStatus(within(t), "a master after "+string(m), func(st *api.Status) bool {
			return st.Master != nil && serverStatus(st, *st.Master).State == "writable"
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range r.Servers {
		if !s.Running() {
			if err := s.StartAgain(within(t)); err != nil && !errors.Is(err, os.ErrExist) {
				t.Fatal(err)
			}
		}
	}
	healed(t, r, l)
}
