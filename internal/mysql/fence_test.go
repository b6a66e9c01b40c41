package mysql

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/health"
	"github.com/repld/repld/test/mariadb"
)

// writers start commits that wait for an acker which never answers; told gives
// how many were told OK after all are done.
func (n *node) writers(count, from int) (told func() int) {
	n.t.Helper()
	var all sync.WaitGroup
	var mu sync.Mutex
	ok := 0
	for i := range count {
		c, err := Dial(bounded(n.t), Target{Address: n.Addr(), User: n.AdminUser, Password: n.AdminPassword})
		n.must(err)
		all.Go(func() {
			defer c.Close()
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			if err := c.Exec(ctx, "INSERT INTO app.t VALUES (?, 'waits')", from+i); err == nil {
				mu.Lock()
				ok++
				mu.Unlock()
			}
		})
	}
	return func() int {
		all.Wait()
		mu.Lock()
		defer mu.Unlock()
		return ok
	}
}

// running waits until that many sessions run a statement.
func (n *node) running(like, count string) {
	n.t.Helper()
	mariadb.Eventually(n.t, 10*time.Second, func() error {
		got := n.MustValue(n.t, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE ?", like)
		if got != count {
			all, err := n.Rows(bounded(n.t), "SELECT ID, USER, COMMAND, TIME, STATE, INFO FROM information_schema.PROCESSLIST")
			return fmt.Errorf("%s sessions run %s, want %s: %v %v", got, like, count, all, err)
		}
		return nil
	})
}

// TestAFenceNeverAnswersOKToAWaitingCommit: also when the server would let
// them go as soon as the last acker's stream ends.
func TestAFenceNeverAnswersOKToAWaitingCommit(t *testing.T) {
	for _, waitNoSlave := range []string{"ON", "OFF"} {
		t.Run("wait_no_slave="+waitNoSlave, func(t *testing.T) {
			n := rig(t, 2)
			master, slave := n[0], n[1]
			master.lead()
			slave.follow(master, true)
			master.must(master.server.Arm(bounded(t), time.Hour))
			master.until("armed", func(o health.Observation) bool { return o.SemiSync.MasterOn && o.SemiSync.Clients == 1 })
			slave.must(slave.Freeze()) // its stream stays, its acknowledgement never comes
			master.MustExec(t, "SET GLOBAL rpl_semi_sync_master_wait_no_slave = "+waitNoSlave, "SET GLOBAL event_scheduler = ON")
			told := master.writers(8, 100)
			// One waits for the acknowledgement; those behind it wait for their turn.
			master.until("waiting", func(o health.Observation) bool { return o.SemiSync.Waiting > 0 })
			master.running("INSERT%", "8")

			begun := time.Now()
			master.must(master.server.Fence(bounded(t)))
			took := time.Since(begun)
			if got := told(); got != 0 {
				t.Errorf("%d of 8 commits were told OK", got)
			}
			o := master.until("fenced", func(o health.Observation) bool { return o.Reach == health.ReachOK })
			if !o.ReadOnly || o.SemiSync.MasterEnabled || o.SemiSync.Waiting != 0 {
				t.Errorf("after the fence: read_only %t, %+v", o.ReadOnly, o.SemiSync)
			}
			if got := master.MustValue(t, "SELECT @@GLOBAL.event_scheduler"); got != "OFF" {
				t.Errorf("event_scheduler is %s", got)
			}
			if left := master.MustValue(t, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'"); left != "0" {
				t.Errorf("%s streams are left", left)
			}
			master.must(master.server.Fence(bounded(t)))
			t.Logf("fenced in %s", took)
			slave.must(slave.Thaw())
		})
	}
}

// TestAFenceEndsWhatRepldItselfWaitsFor: read_only cannot take hold before.
func TestAFenceEndsWhatRepldItselfWaitsFor(t *testing.T) {
	n := rig(t, 1)[0]
	n.lead()
	n.must(n.server.Arm(bounded(t), time.Hour))
	told := make(chan error, 1)
	go func() { told <- n.server.Announce(bounded(t), failover.ClusterRow{Cluster: "main", Master: "db1"}) }()
	n.until("waiting", func(o health.Observation) bool { return o.SemiSync.Waiting == 1 })
	n.must(n.server.Fence(bounded(t)))
	if err := <-told; err == nil {
		t.Error("an announcement was told OK that nobody acknowledged")
	}
	if o := n.look(); !o.ReadOnly || o.SemiSync.MasterEnabled {
		t.Errorf("after the fence: read_only %t, %+v", o.ReadOnly, o.SemiSync)
	}
}

// TestWhatAFenceAvoids pins the server's behaviour that dictates the order: if
// one of these changes, the order may be reconsidered.
func TestWhatAFenceAvoids(t *testing.T) {
	for name, wrong := range map[string]string{
		"KILL QUERY answers OK":    "KILL QUERY %s",
		"semi-sync off answers OK": "SET GLOBAL rpl_semi_sync_master_enabled = 0",
	} {
		t.Run(name, func(t *testing.T) {
			n := rig(t, 1)[0]
			n.lead()
			n.must(n.server.Arm(bounded(t), time.Hour))
			told := n.writers(1, 100)
			n.until("waiting", func(o health.Observation) bool { return o.SemiSync.Waiting == 1 })
			id := n.MustValue(t, "SELECT ID FROM information_schema.PROCESSLIST WHERE STATE LIKE '"+waitingForAck+"%'")
			if name == "KILL QUERY answers OK" {
				wrong = fmt.Sprintf(wrong, id)
			}
			n.MustExec(t, wrong)
			if told() != 1 {
				t.Error("it was not told OK")
			}
		})
	}
}

// TestAFenceHoldsAgainstClientsThatComeBack: a pool reconnects all the while.
func TestAFenceHoldsAgainstClientsThatComeBack(t *testing.T) {
	n := rig(t, 1)[0]
	n.lead()
	n.MustExec(t, "CREATE USER app@'%' IDENTIFIED BY 'application'", "GRANT ALL ON app.* TO app@'%'")
	n.must(n.server.Arm(bounded(t), time.Hour)) // no acker at all: every commit waits
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var mu sync.Mutex
	told := 0
	for w := range 4 {
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				c, err := Dial(ctx, Target{Address: n.Addr(), User: "app", Password: "application"})
				if err != nil {
					continue
				}
				if c.Exec(ctx, "INSERT INTO app.t VALUES (?, 'again')", 1000*(w+1)+i) == nil {
					mu.Lock()
					told++
					mu.Unlock()
				}
				_ = c.Close()
			}
		})
	}
	n.until("waiting", func(o health.Observation) bool { return o.SemiSync.Waiting > 0 })
	n.must(n.server.Fence(bounded(t)))
	cancel()
	all.Wait()
	if told != 0 {
		t.Errorf("%d commits were told OK", told)
	}
}

// TestAnOpeningThatComesLateDoesNotOpen: the server froze between the deadline
// and the statement.
func TestAnOpeningThatComesLateDoesNotOpen(t *testing.T) {
	n := rig(t, 1)[0]
	n.look()
	c, err := n.server.connect(bounded(t))
	n.must(err)
	thawed := make(chan error, 1)
	err = open(bounded(t), c, 50*time.Millisecond, func() error {
		if err := n.Freeze(); err != nil {
			return err
		}
		go func() {
			time.Sleep(200 * time.Millisecond) // longer than the statement is good for
			thawed <- n.Thaw()
		}()
		return nil
	})
	n.must(<-thawed)
	if !errors.Is(err, ErrExpired) {
		t.Errorf("open: %v", err)
	}
	if o := n.look(); !o.ReadOnly {
		t.Error("the server is open")
	}
	n.server.release(c)
	n.must(n.server.Open(bounded(t), time.Second))
	n.must(n.server.Open(bounded(t), time.Second))
	if o := n.look(); o.ReadOnly {
		t.Error("the server did not open")
	}
}

// TestAnUnansweredStatementIsKilledBeforeTheNextVerb, and the sessions in use
// are spared.
func TestAnUnansweredStatementIsKilledBeforeTheNextVerb(t *testing.T) {
	n := rig(t, 1)[0]
	n.look()
	lock, err := TakeLock(bounded(t), n.target(), "c1", "i1", n.seen)
	n.must(err)
	t.Cleanup(func() { _ = lock.Close() })
	older := n.conn() // of an earlier process: not in the register
	n.must(n.server.Disarm(bounded(t)))
	if err := older.Exec(bounded(t), "SELECT 1"); err == nil {
		t.Error("an older session survived the first verb")
	}
	n.must(n.server.Open(bounded(t), time.Second))

	// SET GLOBAL read_only waits for LOCK TABLES: a statement that gets no answer.
	n.MustExec(t, "CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY)")
	holder, err := Dial(bounded(t), Target{Address: n.Addr(), User: n.AdminUser, Password: n.AdminPassword})
	n.must(err)
	t.Cleanup(func() { _ = holder.Close() })
	n.must(holder.Exec(bounded(t), "LOCK TABLES app.t WRITE"))
	short, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	err = n.server.do(short, "close", func(c *effectConn) error { return c.Exec(short, "SET GLOBAL read_only = 1") })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v", err)
	}
	pending := "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'repld' AND INFO LIKE 'SET GLOBAL read_only%'"
	if got := n.MustValue(t, pending); got != "1" {
		t.Fatalf("%s statements wait", got)
	}
	n.must(n.server.Disarm(bounded(t)))
	if got := n.MustValue(t, pending); got != "0" {
		t.Errorf("%s statements wait after the next verb", got)
	}
	n.must(holder.Exec(bounded(t), "UNLOCK TABLES"))
	if o := n.look(); o.ReadOnly {
		t.Error("the old statement took effect after the next verb")
	}
	n.must(lock.Check(bounded(t)))
}

// TestTheEndOfTheLastStreamCanAnswerOK is why a fence leaves the streams alone
// while commits wait.
func TestTheEndOfTheLastStreamCanAnswerOK(t *testing.T) {
	n := rig(t, 2)
	master, slave := n[0], n[1]
	master.lead()
	slave.follow(master, true)
	master.must(master.server.Arm(bounded(t), time.Hour))
	master.until("armed", func(o health.Observation) bool { return o.SemiSync.MasterOn && o.SemiSync.Clients == 1 })
	slave.must(slave.Freeze())
	master.MustExec(t, "SET GLOBAL rpl_semi_sync_master_wait_no_slave = OFF")
	told := master.writers(1, 100)
	master.until("waiting", func(o health.Observation) bool { return o.SemiSync.Waiting == 1 })
	id := master.MustValue(t, "SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'")
	master.MustExec(t, "KILL "+id)
	if told() != 1 {
		t.Error("it was not told OK")
	}
	slave.must(slave.Thaw())
}
