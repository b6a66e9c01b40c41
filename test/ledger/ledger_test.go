package ledger_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/repld/repld/test/ledger"
	"github.com/repld/repld/test/mariadb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is a master and its slaves, replicating plainly, slaves read-only.
func cluster(t *testing.T, n int) []*mariadb.Server {
	t.Helper()
	var opts []mariadb.Options
	for i := range n {
		opts = append(opts, mariadb.Options{Config: mariadb.Replicating(i + 1)})
	}
	servers := mariadb.StartAll(t, opts...)
	for _, s := range servers[1:] {
		s.MustExec(t, "SET GLOBAL read_only=1")
		if err := s.Follow(t.Context(), servers[0]); err != nil {
			t.Fatal(err)
		}
	}
	if err := ledger.Install(t.Context(), servers[0]); err != nil {
		t.Fatal(err)
	}
	return servers
}

func start(t *testing.T, servers []*mariadb.Server, opts ledger.Options) *ledger.Ledger {
	t.Helper()
	if opts.Locate == nil {
		opts.Locate = ledger.Writable(servers...)
	}
	l, err := ledger.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Stop)
	return l
}

func bound(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func waitCount(t *testing.T, l *ledger.Ledger, n int) {
	t.Helper()
	if err := l.WaitCount(bound(t), n); err != nil {
		t.Fatal(err)
	}
}

func compare(t *testing.T, l *ledger.Ledger, servers []*mariadb.Server, old ...ledger.OldMaster) *ledger.Report {
	t.Helper()
	r, err := l.Compare(bound(t), servers, old...)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(r)
	return r
}

func mustSay(t *testing.T, r *ledger.Report, want string) {
	t.Helper()
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("report says %v, want %q", err, want)
	}
}

func TestAHealthyClusterLosesNothing(t *testing.T) {
	t.Parallel()
	servers := cluster(t, 3)
	l := start(t, servers, ledger.Options{})
	waitCount(t, l, 200)
	r := compare(t, l, servers)
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	acks := l.Acks()
	if r.Acknowledged < 200 || r.Acknowledged != len(acks) || r.Unknown != 0 || r.Tables != 1 {
		t.Errorf("report: %+v", r)
	}
	if got := servers[2].MustValue(t, "SELECT COUNT(*) FROM ledger.`rows`"); got != fmt.Sprint(len(acks)) {
		t.Errorf("%s rows for %d acknowledged commits", got, len(acks))
	}
	for _, a := range acks {
		if a.ServerID != 1 || a.Addr != servers[0].Addr() || a.After.Before(a.Before) {
			t.Fatalf("ack %+v", a)
		}
	}
	// A second ledger leaves the rows of the first alone.
	l = start(t, servers, ledger.Options{Writers: 1})
	waitCount(t, l, 5)
	if err := compare(t, l, servers).Err(); err != nil {
		t.Error(err)
	}
}

func TestLostRowsAreFoundAfterAFailoverThatLosesThem(t *testing.T) {
	t.Parallel()
	servers := cluster(t, 2)
	l := start(t, servers, ledger.Options{})
	waitCount(t, l, 50)
	servers[1].MustExec(t, "STOP SLAVE IO_THREAD")
	received := len(l.Acks())
	waitCount(t, l, received+60)
	killed := time.Now()
	if err := servers[0].Kill(); err != nil {
		t.Fatal(err)
	}
	servers[1].MustExec(t, "STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only=0")
	first, err := l.WaitAck(bound(t), func(a ledger.Ack) bool { return a.ServerID == 2 })
	if err != nil {
		t.Fatal(err)
	}
	if a, ok := l.FirstAckAfter(killed, 1); !ok || a.ServerID != 2 || a.After.After(first.After) {
		t.Errorf("first ack after the kill is %+v, want %+v or before", a, first)
	}
	r := compare(t, l, servers[1:], ledger.OldMaster{ServerID: 1, Opened: killed.Add(time.Second)})
	mustSay(t, r, "acknowledged rows are not on db2")
	if n := len(r.Lost["db2"]); n < 50 || len(r.LateAcks) != 0 {
		t.Errorf("%d rows lost, want at least 50; late: %v", n, r.LateAcks)
	}
	if outage, began := l.LongestOutage(); outage < first.After.Sub(killed)/2 || began.After(first.After) {
		t.Errorf("longest outage %v from %v", outage, began)
	}
}

func TestTamperingIsFound(t *testing.T) {
	t.Parallel()
	servers := cluster(t, 2)
	l := start(t, servers, ledger.Options{Writers: 2})
	waitCount(t, l, 20)
	if err := compare(t, l, servers).Err(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, do, undo, want string }{
		{"another payload", "UPDATE ledger.`rows` SET payload=CONCAT('x', payload) WHERE id=3", "UPDATE ledger.`rows` SET payload=SUBSTR(payload, 2) WHERE id=3", "table `ledger`.`rows`: db1 "},
		{"a row that nobody wrote", "INSERT INTO ledger.`rows` VALUES (999999, 1, 1, '')", "DELETE FROM ledger.`rows` WHERE id=999999", "1 rows on db2 were never written: 999999"},
		{"a missing row", "UPDATE ledger.`rows` SET id=-7 WHERE id=7", "UPDATE ledger.`rows` SET id=7 WHERE id=-7", "1 acknowledged rows are not on db2: 7"},
		{"another table", "CREATE TABLE ledger.`a``b` (i int)", "DROP TABLE ledger.`a``b`", "table `ledger`.`a``b`: db1 absent, db2 0"},
		{"two masters", "SET GLOBAL read_only=0", "SET GLOBAL read_only=1", "2 servers are writable, not 1: db1, db2"},
	} {
		servers[1].MustExec(t, "SET sql_log_bin=0", c.do)
		mustSay(t, compare(t, l, servers), c.want)
		servers[1].MustExec(t, "SET sql_log_bin=0", c.undo)
		if err := compare(t, l, servers).Err(); err != nil {
			t.Fatalf("after undoing %s: %v", c.name, err)
		}
	}
	servers[0].MustExec(t, "SET GLOBAL read_only=1")
	mustSay(t, compare(t, l, servers), "0 servers are writable")
}

func TestASlaveThatDoesNotCatchUpIsFound(t *testing.T) {
	t.Parallel()
	servers := cluster(t, 2)
	l := start(t, servers, ledger.Options{Writers: 1})
	waitCount(t, l, 5)
	servers[1].MustExec(t, "STOP SLAVE SQL_THREAD")
	waitCount(t, l, len(l.Acks())+5)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	r, err := l.Compare(ctx, servers)
	if err != nil {
		t.Fatal(err)
	}
	mustSay(t, r, "db2 stands at ")
}

func TestAFrozenServersAnswersAreUnknownUntilItThaws(t *testing.T) {
	t.Parallel()
	servers := cluster(t, 1)
	l := start(t, servers, ledger.Options{Writers: 4, Timeout: 500 * time.Millisecond})
	waitCount(t, l, 20)
	if err := servers[0].Freeze(); err != nil {
		t.Fatal(err)
	}
	frozen := time.Now()
	// Each writer's statement runs into its deadline, then each new connection.
	if _, err := l.WaitAck(deadline(t, 1500*time.Millisecond), func(a ledger.Ack) bool { return a.After.After(frozen.Add(100 * time.Millisecond)) }); err == nil {
		t.Fatal("a frozen server acknowledged")
	}
	thawed := time.Now()
	if err := servers[0].Thaw(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.WaitAck(bound(t), func(a ledger.Ack) bool { return a.Before.After(thawed) }); err != nil {
		t.Fatal(err)
	}
	r := compare(t, l, servers, ledger.OldMaster{ServerID: 1, Opened: thawed})
	if r.Unknown < 4 || r.UnknownCommitted > r.Unknown || len(r.Lost) != 0 || len(r.Extra) != 0 {
		t.Errorf("report: %+v", r)
	}
	if r.LongestOutage < time.Second {
		t.Errorf("longest outage is %v", r.LongestOutage)
	}
	if len(r.LateAcks) == 0 {
		t.Error("commits after the opening of another server are not late")
	}
	mustSay(t, r, "the old master "+servers[0].Addr()+" (server_id 1) acknowledged row")
}

func deadline(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestAnAccountThatReadOnlyDoesNotStopIsRefused(t *testing.T) {
	t.Parallel()
	servers := cluster(t, 1)
	_, err := ledger.Start(t.Context(), ledger.Options{User: mariadb.AdminUser, Password: mariadb.AdminPassword, Locate: ledger.Writable(servers...)})
	if err == nil || !strings.Contains(err.Error(), "could write to a read-only server") {
		t.Errorf("error is %v", err)
	}
	l := start(t, servers, ledger.Options{})
	waitCount(t, l, 10)
	servers[0].MustExec(t, "SET GLOBAL read_only=1")
	count := servers[0].MustValue(t, "SELECT COUNT(*) FROM ledger.`rows`")
	mariadb.Eventually(t, 10*time.Second, func() error {
		_, err := ledger.Writable(servers...)(t.Context())
		if err == nil {
			return fmt.Errorf("a read-only server passes as writable")
		}
		return nil
	})
	l.Stop()
	if got := servers[0].MustValue(t, "SELECT COUNT(*) FROM ledger.`rows`"); got != count || got != fmt.Sprint(len(l.Acks())) {
		t.Errorf("%s rows, were %s when it became read-only, %d acknowledged", got, count, len(l.Acks()))
	}
}
