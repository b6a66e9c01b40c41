package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/ledger"
	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/test/rig"
)

// pre_failover vetoes, by hand too, as long as it exits with anything but 0: the
// failover is blocked with the reason and nothing is changed. It is asked again
// by itself.
func TestAPreFailoverHookVetoes(t *testing.T) {
	p := newPrograms(t)
	r := startAll(t, rig.Options{Servers: 2, Repld: []string{"hooks:",
		p.hook("pre_failover", "test -e "+p.path("allow")+" && exit 0\necho 'the storage team is at work'; exit 3"),
		p.hook("event", "")}})
	l := write(t, r)
	if err := r.Server("db1").Kill(); err != nil {
		t.Fatal(err)
	}
	st, err := r.WaitHealth(within(t), "blocked")
	if err != nil {
		t.Fatal(err)
	}
	if pr := st.Problems[0]; pr.Code != "vetoed_by_hook" || !strings.Contains(pr.Text, "exit status 3") || !strings.Contains(pr.Text, "the storage team is at work") {
		t.Errorf("problems: %+v", st.Problems)
	}
	if v := r.Server("db2").MustValue(t, "SELECT @@read_only"); v != "1" {
		t.Error("promoted in spite of a veto")
	}
	if out := r.Ctl(within(t), "failover", "--yes"); out.Code != 5 || !strings.Contains(out.Stderr, "vetoed_by_hook") {
		t.Errorf("by hand: %v", out.Err())
	}
	list, err := r.History(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if s := hookStep(&list[0], "pre_failover"); list[0].Result != "running" || s == nil || s.Output != "the storage team is at work" || !strings.HasPrefix(s.Result, "exit status 3") {
		t.Errorf("history while it is vetoed: %+v", list[0])
	}
	p.waitCall("event", func(c call) bool {
		return c.Event == "health" && c.Health == "blocked" && len(c.Problems) > 0 && c.Problems[0].Code == "vetoed_by_hook"
	})
	if err := os.WriteFile(p.path("allow"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	firstAck(t, l, 1)
	op := operation(t, r, "failover")
	if s := hookStep(op, "pre_failover"); op.Result != "done" || s == nil || s.Result != "ok" {
		t.Errorf("history: %+v", op)
	}
	if err := r.Server("db1").StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
	p.noSecrets(r)
}

// degrade makes a cluster of two serve without an acker: its slave is killed,
// and back up, but kept from streaming, when the function returns.
func degrade(t *testing.T, r *rig.Rig) {
	t.Helper()
	r.Server("db2").MustExec(t, "STOP SLAVE IO_THREAD")
	if _, err := r.WaitStatus(within(t), "degraded durability", func(st *api.Status) bool { return st.Durability.State == "degraded" }); err != nil {
		t.Fatal(err)
	}
}

// A master that only hangs while its commits wait for nobody could go on to tell
// clients OK. It is replaced only once the fence has stopped it: here by really
// ending its process, at the second try.
func TestAFenceHookStopsADegradedMasterThatHangs(t *testing.T) {
	p := newPrograms(t)
	r := startAll(t, rig.Options{Servers: 2, Repld: []string{"semi_sync: {ack_timeout: 500ms}", "hooks:",
		p.hook("fence", "test -e "+p.path("pid")+" || { echo 'no power switch' >&2; exit 1; }\nkill -9 $(cat "+p.path("pid")+") && echo \"$REPLD_OLD_MASTER at $REPLD_OLD_MASTER_ADDRESS is off\""),
		p.hook("post_failover", ""), p.hook("event", "")}})
	l := write(t, r)
	l.Stop()
	degrade(t, r)
	p.waitCall("event", func(c call) bool { return c.Event == "degraded" && c.AtRisk != nil && c.Operation.Kind == "degrade" })
	old := r.Server("db1")
	pid := old.Pid()
	if err := old.Freeze(); err != nil {
		t.Fatal(err)
	}
	st, err := r.WaitHealth(within(t), "blocked")
	if err != nil {
		t.Fatal(err)
	}
	if pr := st.Problems[0]; pr.Code != "fence_failed" || !strings.Contains(pr.Text, "no power switch") {
		t.Errorf("problems: %+v", st.Problems)
	}
	if v := r.Server("db2").MustValue(t, "SELECT @@read_only"); v != "1" {
		t.Error("promoted although the old master may go on")
	}
	if err := os.WriteFile(p.path("pid"), fmt.Appendf(nil, "%d", pid), 0o600); err != nil {
		t.Fatal(err)
	}
	op := operation(t, r, "failover")
	if s := hookStep(op, "fence"); op.Result != "done" || s == nil || s.Result != "ok" || s.Output != "db1 at "+old.Addr()+" is off" {
		t.Errorf("history: %+v", op)
	}
	post := p.waitCall("post_failover", func(c call) bool { return c.Event == "post_failover" })
	if post.OldMaster["name"] != "db1" || post.NewMaster["name"] != "db2" || post.NewMaster["address"] != r.Server("db2").Addr() || post.Epoch != 2 || post.Operation.ID != op.ID {
		t.Errorf("post_failover got %+v", post)
	}
	mariadb.Eventually(t, patience, func() error {
		if s := hookStep(operation(t, r, "failover"), "post_failover"); s == nil || s.Result != "ok" {
			return fmt.Errorf("post_failover is not in the history: %+v", s)
		}
		return nil
	})
	p.noSecrets(r)
}

// An armed master that is dead or silent holds nothing up by a fence that fails:
// its commits wait for an acker that does not answer it.
func TestAFailingFenceHoldsNoArmedClusterUp(t *testing.T) {
	p := newPrograms(t)
	r := startAll(t, rig.Options{Servers: 3, Repld: []string{"hooks:", p.hook("fence", "echo broken; exit 1"), p.hook("post_failover", "echo told; exit 4"), p.hook("event", "")}})
	l := write(t, r)
	old := r.Server("db1")
	if err := old.Freeze(); err != nil {
		t.Fatal(err)
	}
	ack := firstAck(t, l, 1)
	op := operation(t, r, "failover")
	if s := hookStep(op, "fence"); op.Result != "done" || *op.LostTransactions != 0 || s == nil || s.Result != "exit status 1" || s.Output != "broken" {
		t.Errorf("history: %+v", op)
	}
	if err := old.Thaw(); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l, ledger.OldMaster{ServerID: 1, Opened: ack.After})
	if s := hookStep(operation(t, r, "failover"), "post_failover"); s == nil || s.Result != "exit status 4" || s.Output != "told" {
		t.Errorf("post_failover in the history: %+v", s)
	}
	begun := p.waitCall("event", func(c call) bool { return c.Event == "operation_begun" })
	ended := p.waitCall("event", func(c call) bool { return c.Event == "operation_ended" && c.Operation.Kind == "failover" })
	if begun.OldMaster["name"] != "db1" || begun.Operation.Result != "running" || ended.Operation.Result != "done" || ended.NewMaster == nil || ended.Operation.ID != op.ID {
		t.Errorf("begun %+v, ended %+v", begun, ended)
	}
	// The thawed master accepts writes until it is fenced.
	p.waitCall("event", func(c call) bool { return c.Event == "two_writable" && c.Problems[0].Code == "two_writable" })
	p.waitCall("event", func(c call) bool {
		return c.Event == "health" && c.Health == "healthy" && c.Previous != "" && c.Epoch == 2
	})
	var order []string
	for _, c := range p.calls("event") {
		if c.Operation != nil && c.Operation.ID == op.ID {
			order = append(order, c.Event)
		}
	}
	if !slices.Equal(order, []string{"operation_begun", "operation_ended"}) {
		t.Errorf("events of the failover: %v", order)
	}
	if out := r.Ctl(within(t), "history", op.ID); !strings.Contains(out.Stdout, "output of hook:fence:\n  broken") {
		t.Errorf("history %s:\n%s", op.ID, out.Stdout)
	}
	p.noSecrets(r)
}

// A hook that hangs is killed at the timeout and delays nothing after it; after a
// switchover post_failover runs too.
func TestHooksAreBoundedAndRunAfterASwitchover(t *testing.T) {
	p := newPrograms(t)
	r := startAll(t, rig.Options{Servers: 2, Repld: []string{"hooks:", "  timeout: 700ms", p.hook("post_failover", "echo waits; sleep 600"), p.hook("event", "sleep 600")}})
	begun := time.Now()
	if err := r.Ctl(within(t), "switchover", "--yes").Err(); err != nil {
		t.Fatal(err)
	}
	t.Logf("switched over in %v", time.Since(begun))
	if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
		t.Fatal(err)
	}
	mariadb.Eventually(t, patience, func() error {
		s := hookStep(operation(t, r, "switchover"), "post_failover")
		if s == nil || !strings.Contains(s.Result, "did not end in time and was killed after 700ms") || s.Output != "waits" {
			return fmt.Errorf("post_failover in the history: %+v", s)
		}
		return nil
	})
	c := p.waitCall("post_failover", func(c call) bool { return true })
	if c.OldMaster["name"] != "db1" || c.NewMaster["name"] != "db2" || c.Operation.Kind != "switchover" {
		t.Errorf("post_failover got %+v", c)
	}
}

// A program that cannot be run is found when repld starts, not when it is needed.
func TestAHookThatCannotBeRunIsAConfigurationError(t *testing.T) {
	r := start(t, rig.Options{Servers: 0, Repld: []string{"hooks:", "  fence: [/nonexistent/fence]"}})
	err := r.StartRepld(within(t))
	if err == nil || !strings.Contains(err.Error(), "exit status 2") || !strings.Contains(err.Error(), "line 4: hooks.fence") || !strings.Contains(err.Error(), "/nonexistent/fence") {
		t.Errorf("%v", err)
	}
}

// In async nothing but the fence keeps a master that refuses repld from serving
// others: with it the failover is automatic.
func TestAFenceHookLetsAsyncFailOverByItself(t *testing.T) {
	p := newPrograms(t)
	r := startAll(t, rig.Options{Servers: 2, Repld: []string{"durability: async", "hooks:", p.hook("fence", "test -e "+p.path("off")+" || { echo 'still on'; exit 1; }")}})
	if err := r.Server("db1").Kill(); err != nil {
		t.Fatal(err)
	}
	st, err := r.WaitHealth(within(t), "blocked")
	if err != nil {
		t.Fatal(err)
	}
	if pr := st.Problems[0]; pr.Code != "fence_failed" || !strings.Contains(pr.Text, "still on") {
		t.Errorf("problems: %+v", st.Problems)
	}
	// Its word is not waited for when a person says that the master is off.
	if err := r.Ctl(within(t), "failover", "--yes").Err(); err != nil {
		t.Fatal(err)
	}
	if err := r.Server("db1").StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.path("off"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Server("db2").Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitStatus(within(t), "db1 open again", func(st *api.Status) bool {
		return st.Master != nil && *st.Master == "db1" && serverStatus(st, "db1").State == "writable"
	}); err != nil {
		t.Fatal(err)
	}
}

// repld is killed while post_failover runs, and before it has let the events run:
// both are made up for.
func TestACrashOfRepldOwesTheHookAndTheEvents(t *testing.T) {
	p := newPrograms(t)
	r := startAll(t, rig.Options{Servers: 2, Config: []string{"event_scheduler=ON"}, Repld: []string{"hooks:", "  timeout: 60s",
		p.hook("post_failover", "test -e "+p.path("quick")+" || exec sleep 600")}})
	ticking(t, r.Server("db1"))
	ticks(t, r.Server("db1"), 1)
	mariadb.Eventually(t, patience, func() error { // recorded, and received
		if v := r.Server("db2").MustValue(t, "SELECT COUNT(*) FROM tick.rows"); v == "0" || v == "1" || v == "2" || v == "3" || v == "4" {
			return fmt.Errorf("%s rows", v)
		}
		return nil
	})
	// The event cannot be enabled while its table of definitions is locked.
	second := r.Server("db2")
	conn, err := second.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "LOCK TABLES mysql.event READ"); err != nil {
		t.Fatal(err)
	}
	if err := r.Server("db1").Kill(); err != nil {
		t.Fatal(err)
	}
	p.waitCall("post_failover", func(c call) bool { return c.NewMaster["name"] == "db2" })
	if err := r.Repld.Kill(); err != nil {
		t.Fatal(err)
	}
	if v := second.MustValue(t, "SELECT @@event_scheduler"); v != "OFF" {
		t.Errorf("the scheduler is %s before the events are enabled", v)
	}
	if _, err := conn.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.path("quick"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.StartRepld(within(t)); err != nil {
		t.Fatal(err)
	}
	mariadb.Eventually(t, patience, func() error {
		if n := len(p.calls("post_failover")); n != 2 {
			return fmt.Errorf("post_failover ran %d times", n)
		}
		return nil
	})
	mariadb.Eventually(t, patience, func() error {
		if s := hookStep(operation(t, r, "failover"), "post_failover"); s == nil || s.Result != "ok" {
			return fmt.Errorf("post_failover in the history: %+v", s)
		}
		return nil
	})
	if err := r.Server("db1").StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
		t.Fatal(err)
	}
	onlyOn(t, r, "db2")
}
