package mysql

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/topology"
)

const eventRows = "SELECT GROUP_CONCAT(EVENT_NAME, ':', STATUS ORDER BY EVENT_NAME SEPARATOR ' ') FROM information_schema.EVENTS WHERE EVENT_SCHEMA = 'evt'"

// everything about the events but whether they run.
const eventBodies = "SELECT GROUP_CONCAT(EVENT_NAME, DEFINER, CHARACTER_SET_CLIENT, COLLATION_CONNECTION, DATABASE_COLLATION, SQL_MODE, TIME_ZONE," +
	" EVENT_DEFINITION, COALESCE(STARTS, EXECUTE_AT), ON_COMPLETION, EVENT_COMMENT ORDER BY EVENT_NAME SEPARATOR '\n') FROM information_schema.EVENTS WHERE EVENT_SCHEMA = 'evt'"

// What ran on a master runs on its successor and nowhere else; what somebody had
// disabled stays disabled; and nothing else of an event changes. On a slave every
// event is SLAVESIDE_DISABLED, whatever it was on the master.
func TestEventsMoveWithTheMaster(t *testing.T) {
	n := rig(t, 2)
	first, second := n[0], n[1]
	first.lead()
	second.follow(first, true)
	conn, err := first.Conn(bounded(t))
	first.must(err)
	defer conn.Close()
	for _, q := range []string{
		"CREATE USER u@localhost", "GRANT ALL ON evt.* TO u@localhost",
		"SET character_set_client = latin1, collation_connection = latin1_german1_ci, sql_mode = 'ANSI_QUOTES', time_zone = '+03:00'",
		"CREATE DATABASE evt",
		"CREATE DEFINER = u@localhost EVENT evt.runs ON SCHEDULE EVERY 1 DAY COMMENT 'c' DO SELECT '\xe4'",
		"CREATE DEFINER = u@localhost EVENT evt.was_disabled ON SCHEDULE EVERY 1 DAY DO SELECT 1", "ALTER EVENT evt.was_disabled DISABLE",
		"CREATE DEFINER = u@localhost EVENT evt.for_slaves ON SCHEDULE EVERY 1 DAY DISABLE ON SLAVE DO SELECT 1",
		"CREATE DEFINER = u@localhost EVENT evt.past ON SCHEDULE AT NOW() + INTERVAL 1 HOUR ON COMPLETION PRESERVE DO SELECT 1",
		"SET character_set_client = utf8mb4, collation_connection = utf8mb4_bin",
		"CREATE DEFINER = u@localhost EVENT evt.`größe` ON SCHEDULE EVERY 1 DAY DO SELECT 1",
	} {
		if _, err := conn.ExecContext(bounded(t), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
	first.MustExec(t, "SET GLOBAL event_scheduler = ON")
	has, err := first.server.Events(bounded(t), nil)
	first.must(err)
	want := topology.Events{On: true, Enabled: []topology.Event{{Schema: "evt", Name: "größe"}, {Schema: "evt", Name: "past"}, {Schema: "evt", Name: "runs"}}}
	if diff := cmp.Diff(want, has); diff != "" {
		t.Fatal(diff)
	}
	before := first.MustValue(t, eventBodies)
	second.must(second.CatchUp(bounded(t), first.Server))
	if got := second.MustValue(t, eventRows); got != "for_slaves:SLAVESIDE_DISABLED größe:SLAVESIDE_DISABLED past:SLAVESIDE_DISABLED runs:SLAVESIDE_DISABLED was_disabled:SLAVESIDE_DISABLED" {
		t.Errorf("on the slave %s", got)
	}

	// The master changes.
	first.must(first.server.Fence(bounded(t)))
	second.must(second.CatchUp(bounded(t), first.Server))
	second.must(second.server.Detach(bounded(t)))
	second.must(second.server.Open(bounded(t), maxOpening))
	for range 2 {
		got, err := second.server.Events(bounded(t), &want)
		second.must(err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	if got := second.MustValue(t, eventRows); got != "for_slaves:SLAVESIDE_DISABLED größe:ENABLED past:ENABLED runs:ENABLED was_disabled:SLAVESIDE_DISABLED" {
		t.Errorf("on the new master %s", got)
	}
	if after := second.MustValue(t, eventBodies); after != before {
		t.Errorf("the events were\n%s\nand are\n%s", before, after)
	}

	// The old one comes back.
	at := first.MustValue(t, "SELECT @@gtid_binlog_pos")
	first.MustExec(t, "SET GLOBAL event_scheduler = ON") // switched on behind repld's back
	pos := first.look().BinlogPos
	first.must(first.server.Attach(bounded(t), failover.Attachment{Source: second.source(), StartAt: &pos}))
	if first.MustValue(t, "SELECT @@event_scheduler") != "OFF" {
		t.Error("the scheduler of a slave is on")
	}
	first.must(first.CatchUp(bounded(t), second.Server))
	if got := first.MustValue(t, eventRows); got != "for_slaves:SLAVESIDE_DISABLED größe:SLAVESIDE_DISABLED past:SLAVESIDE_DISABLED runs:SLAVESIDE_DISABLED was_disabled:DISABLED" {
		t.Errorf("on the former master %s", got)
	}
	if after := first.MustValue(t, eventBodies); after != before {
		t.Errorf("the events were\n%s\nand are\n%s", before, after)
	}
	if state := first.MustValue(t, "SELECT @@gtid_binlog_state"); len(state) < len(at) {
		t.Errorf("binlog state %s, was %s", state, at)
	}
	for _, g := range first.look().BinlogState.Beyond(second.look().BinlogState) {
		t.Errorf("an errant transaction: %s", g)
	}

	// An event that is gone, and one whose time has passed, do not hold the rest up.
	gone := topology.Events{Enabled: append([]topology.Event{{Schema: "evt", Name: "gone"}}, want.Enabled...)}
	second.MustExec(t, "SET timestamp = UNIX_TIMESTAMP() + 100000")
	if _, err := second.server.Events(bounded(t), &gone); err != nil {
		t.Error(err)
	}
}
