package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/test/rig"
)

// ticking makes events on the master: one that writes each second by an account
// that read_only does not stop, one that its owner has disabled and one that was
// made for slaves.
func ticking(t *testing.T, master *mariadb.Server) {
	t.Helper()
	const every = " ON SCHEDULE EVERY 1 SECOND %s DO INSERT INTO tick.rows (event, server) VALUES ('%s', @@server_id)"
	master.MustExec(t, "CREATE DATABASE tick", "CREATE TABLE tick.rows (id INT AUTO_INCREMENT PRIMARY KEY, event VARCHAR(20), server INT)",
		"CREATE EVENT tick.runs"+fmt.Sprintf(every, "", "runs"),
		"CREATE EVENT tick.was_disabled"+fmt.Sprintf(every, "DISABLE", "was_disabled"),
		"CREATE EVENT tick.for_slaves"+fmt.Sprintf(every, "DISABLE ON SLAVE", "for_slaves"))
}

// ticks waits until so many further rows were written by a server's events.
func ticks(t *testing.T, at *mariadb.Server, serverID int) {
	t.Helper()
	count := func() int {
		var n int
		if _, err := fmt.Sscan(at.MustValue(t, "SELECT COUNT(*) FROM tick.rows WHERE server = ?", serverID), &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := count()
	mariadb.Eventually(t, patience, func() error {
		if n := count(); n < before+2 {
			return fmt.Errorf("%d rows of server %d, %d before", n, serverID, before)
		}
		return nil
	})
}

func serverID(t *testing.T, s *mariadb.Server) int {
	t.Helper()
	id, err := strconv.Atoi(s.MustValue(t, "SELECT @@server_id"))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// onlyOn makes sure that events run on one server and nowhere else, and that no
// other event than the enabled one has ever run.
func onlyOn(t *testing.T, r *rig.Rig, master string) {
	t.Helper()
	m := r.Server(master)
	last := m.MustValue(t, "SELECT MAX(id) FROM tick.rows")
	ticks(t, m, serverID(t, m))
	if v := m.MustValue(t, "SELECT COUNT(*) FROM tick.rows WHERE id > ? AND server <> @@server_id", last); v != "0" {
		t.Errorf("%s rows were written by events elsewhere", v)
	}
	if v := m.MustValue(t, "SELECT COALESCE(GROUP_CONCAT(DISTINCT event), '') FROM tick.rows"); v != "runs" {
		t.Errorf("these events have run: %s", v)
	}
	if v := m.MustValue(t, "SELECT STATUS FROM information_schema.EVENTS WHERE EVENT_NAME = 'runs'"); v != "ENABLED" {
		t.Errorf("on the master %s the event is %s", master, v)
	}
	for _, s := range r.Servers {
		if s.Name == master || !s.Running() {
			continue
		}
		if v := s.MustValue(t, "SELECT @@event_scheduler"); v != "OFF" {
			t.Errorf("the scheduler of the slave %s is %s", s.Name, v)
		}
		if v := s.MustValue(t, "SELECT STATUS FROM information_schema.EVENTS WHERE EVENT_NAME = 'runs'"); v != "SLAVESIDE_DISABLED" {
			t.Errorf("on the slave %s the event is %s", s.Name, v)
		}
	}
	st, err := r.WaitHealth(within(t), "healthy")
	if err != nil {
		t.Fatal(err)
	}
	if st.Master == nil || *st.Master != master {
		t.Errorf("the master is %v", st.Master)
	}
}

// A24: events that ran on the master run on its successor, and nowhere else: after
// a failover, when the old master is back, after a switchover and after a restart
// of the master.
func TestCaseA24_EventsFollowTheMaster(t *testing.T) {
	// The user has the scheduler on in a file of his own.
	r := startAll(t, rig.Options{Servers: 3, Config: []string{"event_scheduler=ON"}})
	first := r.Server("db1")
	if v := first.MustValue(t, "SELECT @@event_scheduler"); v != "ON" {
		t.Fatalf("init master left the scheduler %s", v)
	}
	ticking(t, first)
	ticks(t, first, 1)
	onlyOn(t, r, "db1")

	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	op := operation(t, r, "failover")
	second := *op.NewMaster
	ticks(t, r.Server(second), serverID(t, r.Server(second)))
	if err := first.StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
		t.Fatal(err)
	}
	onlyOn(t, r, second)

	// Disabled just before a switchover: it stays disabled; a new one runs.
	r.Server(second).MustExec(t, "ALTER EVENT tick.runs DISABLE", "CREATE EVENT tick.fresh ON SCHEDULE EVERY 1 SECOND DO INSERT INTO tick.rows (event, server) VALUES ('fresh', @@server_id)")
	if err := r.Ctl(within(t), "switchover", "--to", "db1", "--yes").Err(); err != nil {
		t.Fatal(err)
	}
	mariadb.Eventually(t, patience, func() error {
		v := first.MustValue(t, "SELECT GROUP_CONCAT(EVENT_NAME, ' ', STATUS ORDER BY 1) FROM information_schema.EVENTS")
		if v != "for_slaves SLAVESIDE_DISABLED,fresh ENABLED,runs SLAVESIDE_DISABLED,was_disabled DISABLED" && v != "for_slaves SLAVESIDE_DISABLED,fresh ENABLED,runs SLAVESIDE_DISABLED,was_disabled SLAVESIDE_DISABLED" {
			return fmt.Errorf("after the switchover: %s", v)
		}
		return nil
	})
	if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
		t.Fatal(err)
	}
	first.MustExec(t, "DROP EVENT tick.fresh", "ALTER EVENT tick.runs ENABLE", "DELETE FROM tick.rows WHERE event = 'fresh'")
	onlyOn(t, r, "db1")

	// The recorded master restarts and nothing is promoted meanwhile.
	if err := r.Ctl(within(t), "pause").Err(); err != nil {
		t.Fatal(err)
	}
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := first.StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	if v := first.MustValue(t, "SELECT @@event_scheduler"); v != "OFF" {
		t.Errorf("a restarted server runs events by itself")
	}
	if err := r.Ctl(within(t), "resume").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitStatus(within(t), "db1 open", func(st *api.Status) bool { return serverStatus(st, "db1").State == "writable" }); err != nil {
		t.Fatal(err)
	}
	onlyOn(t, r, "db1")
}

// A scheduler that was off stays off.
func TestCaseA24_ASchedulerThatWasOffStaysOff(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 2})
	ticking(t, r.Server("db1"))
	if err := r.Ctl(within(t), "switchover", "--yes").Err(); err != nil {
		t.Fatal(err)
	}
	second := r.Server("db2")
	mariadb.Eventually(t, patience, func() error {
		if v := second.MustValue(t, "SELECT GROUP_CONCAT(EVENT_NAME ORDER BY 1) FROM information_schema.EVENTS WHERE STATUS = 'ENABLED'"); v != "runs" {
			return fmt.Errorf("enabled: %s", v)
		}
		return nil
	})
	if _, err := r.WaitHealth(within(t), "healthy"); err != nil {
		t.Fatal(err)
	}
	if v := second.MustValue(t, "SELECT CONCAT(@@event_scheduler, (SELECT COUNT(*) FROM tick.rows))"); v != "OFF0" {
		t.Errorf("scheduler and rows: %s", v)
	}
	if log := r.LogTail(400); strings.Contains(log, "level=ERROR") {
		t.Error("repld logged an error")
	}
}
