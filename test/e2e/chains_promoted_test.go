package e2e

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/ledger"
	"github.com/repld/repld/test/rig"
)

// A relay that becomes the master, in order or because the master dies, keeps
// the slaves below it, which acknowledge from then on.
func TestARelayIsPromoted(t *testing.T) {
	r := startChain(t, rig.Options{Servers: 3})
	l := write(t, r)
	db1, db2, db3 := r.Server("db1"), r.Server("db2"), r.Server("db3")
	if err := r.Ctl(within(t), "switchover", "--to", "db2", "--yes").Err(); err != nil {
		t.Fatal(err)
	}
	reads(t, r, "db3", "db2")
	reads(t, r, "db1", "db2")
	if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
		t.Fatal(err)
	}
	follows(t, db3, db2, true)
	// The old master becomes a relay, is promoted because the master dies.
	if err := r.Ctl(within(t), append(append([]string{"init", "slave", "db3", "--yes"}, r.InitFlags(db3)...), "--source", "db1")...).Err(); err != nil {
		t.Fatal(err)
	}
	follows(t, db3, db1, false)
	killed := time.Now()
	if err := db2.Kill(); err != nil {
		t.Fatal(err)
	}
	ack, err := l.WaitAck(within(t), func(a ledger.Ack) bool { return a.ServerID == 1 && a.After.After(killed) })
	if err != nil {
		t.Fatal(err)
	}
	reads(t, r, "db3", "db1")
	if err := db2.StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l, ledger.OldMaster{ServerID: 2, Opened: ack.After})
	follows(t, db3, db1, true)
	follows(t, db2, db1, true)
}

// A relay that is merely restarted keeps what is below it, and a chained slave
// can be switched over to.
func TestARelayIsRestartedAndAChainedSlavePromotedInOrder(t *testing.T) {
	r := startChain(t, rig.Options{Servers: 4})
	l := write(t, r)
	db2, db3 := r.Server("db2"), r.Server("db3")
	moved := watchSource(t, r, "db3", "db2")
	if err := db2.Restart(within(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitStatus(within(t), "the relay streaming again", func(st *api.Status) bool {
		return serverStatus(st, "db2").State == "streaming" && serverStatus(st, "db3").State == "streaming"
	}); err != nil {
		t.Fatal(err)
	}
	if where := moved(); where != "" {
		t.Errorf("the restart moved db3 to %s", where)
	}
	if err := r.Ctl(within(t), "switchover", "--to", "db3", "--yes").Err(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"db1", "db2", "db4"} {
		reads(t, r, name, "db3")
	}
	settle(t, r, l)
	follows(t, db2, db3, true)
}

// watchSource notes, until it is asked, whether a slave reads from another
// server than the given one.
func watchSource(t *testing.T, r *rig.Rig, name, source string) func() string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	found := make(chan string, 1)
	go func() {
		defer close(found)
		for ctx.Err() == nil {
			out := r.Ctl(ctx, "status", "-o", "json")
			var st api.Status
			if json.Unmarshal([]byte(out.Stdout), &st) == nil {
				if s := serverStatus(&st, name); s != nil && s.Source != nil && *s.Source != source {
					found <- *s.Source
					return
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	return func() string { cancel(); return <-found }
}
