package mysql

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// laggard gives a master and a slave that has received 50 transactions and
// applied none; its SQL thread is stopped and its IO thread runs.
func laggard(t *testing.T, config ...string) (master, slave *node, last gtid.GTID) {
	t.Helper()
	n := rig(t, 2, config...)
	master, slave = n[0], n[1]
	master.lead()
	slave.follow(master, true)
	slave.applied(master.write(1, 1))
	slave.MustExec(t, "STOP SLAVE SQL_THREAD")
	last = master.write(2, 51)
	slave.received(last)
	if got := slave.rows(); got != "1" {
		t.Fatalf("the slave has applied already: %s rows", got)
	}
	return master, slave, last
}

// TestDrainByFileAndPositionKeepsTheRelayLog: a slave has received 50
// transactions, applied none, and its master is gone for good.
func TestDrainByFileAndPositionKeepsTheRelayLog(t *testing.T) {
	for name, prepare := range map[string]func(*testing.T, *node){
		"both threads stopped": func(t *testing.T, slave *node) {
			slave.must(slave.server.StopIO(bounded(t)))
			if o := slave.look(); o.Slave.IO != health.ThreadNo || o.Slave.SQL != health.ThreadNo {
				t.Fatalf("threads: %+v", o.Slave)
			}
		},
		"slave killed and restarted": func(t *testing.T, slave *node) {
			slave.must(slave.Kill())
			slave.must(slave.StartAgain(bounded(t)))
			o := slave.until("ok", func(o health.Observation) bool { return o.Reach == health.ReachOK })
			if o.Slave.IO != health.ThreadNo || !o.Slave.Received.IsEmpty() {
				t.Fatalf("after the restart: %+v", o.Slave)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			master, slave, last := laggard(t)
			master.must(master.Kill())
			prepare(t, slave)
			// In GTID mode a plain start would wipe the relay log: it is refused.
			if err := slave.server.StartSQL(bounded(t)); !errors.Is(err, errWouldWipe) {
				t.Fatalf("StartSQL with both threads down: %v", err)
			}
			slave.must(slave.server.DrainRelayLog(bounded(t)))
			slave.applied(last)
			slave.must(slave.server.DrainRelayLog(bounded(t)))
			if got := slave.rows(); got != "51" {
				t.Errorf("%s rows of 51", got)
			}
			slave.must(slave.server.Detach(bounded(t)))
			if o := slave.look(); o.Slave != nil || !o.ReadOnly || o.SlavePos.Of(0) != last {
				t.Errorf("after Detach: %+v at %s", o.Slave, o.SlavePos)
			}
			slave.must(slave.server.Detach(bounded(t)))
		})
	}
}

// TestStopIOWhileTheSQLThreadRunsDropsNothing: also when the SQL thread was
// started again with an IO thread that only tries to connect.
func TestStopIOWhileTheSQLThreadRunsDropsNothing(t *testing.T) {
	master, slave, last := laggard(t)
	master.must(master.Kill())
	slave.until("connecting", func(o health.Observation) bool { return o.Slave.IO == health.ThreadConnecting })
	if err := slave.server.DrainRelayLog(bounded(t)); !errors.Is(err, errWouldWipe) {
		t.Errorf("a drain with the IO thread up: %v", err)
	}
	slave.must(slave.server.StartSQL(bounded(t)))
	slave.must(slave.server.StopIO(bounded(t)))
	slave.applied(last)
	if got := slave.rows(); got != "51" {
		t.Errorf("%s rows of 51", got)
	}
	slave.must(slave.server.StopIO(bounded(t)))
}

// TestADrainFromAnEarlierPositionAppliesNothingTwice: a server that is killed
// may have recorded a position before what it has committed.
func TestADrainFromAnEarlierPositionAppliesNothingTwice(t *testing.T) {
	n := rig(t, 2)
	master, slave := n[0], n[1]
	master.lead()
	slave.follow(master, true)
	slave.applied(master.write(1, 1))
	early := slave.look().Slave
	slave.MustExec(t, "SET GLOBAL gtid_strict_mode = 0")
	slave.applied(master.write(2, 20))
	slave.MustExec(t, "STOP SLAVE SQL_THREAD", "FLUSH RELAY LOGS")
	last := master.write(21, 40)
	slave.received(last)
	master.must(master.Kill())
	slave.must(slave.server.StopIO(bounded(t)))
	// What relay-log.info can say after a crash.
	slave.MustExec(t, fmt.Sprintf("CHANGE MASTER TO RELAY_LOG_FILE = '%s', RELAY_LOG_POS = %d, MASTER_USE_GTID = no", early.RelayLogFile, early.RelayLogPos))
	slave.must(slave.server.DrainRelayLog(bounded(t)))
	slave.applied(last)
	if o := slave.look(); o.Slave.SQLErrno != 0 || slave.rows() != "40" {
		t.Errorf("%s rows of 40, error %d %s", slave.rows(), o.Slave.SQLErrno, o.Slave.SQLError)
	}
}

// TestARelayLogThatIsNotOpenIsNotTakenForAnEmptyOne: as a kill in the middle of
// RESET SLAVE can leave it. Such a server shows nothing, of any file.
func TestARelayLogThatIsNotOpenIsNotTakenForAnEmptyOne(t *testing.T) {
	n := rig(t, 2)
	master, slave := n[0], n[1]
	master.lead()
	slave.follow(master, false)
	slave.applied(master.write(1, 5))
	slave.must(slave.Kill())
	slave.must(os.Truncate(filepath.Join(slave.DataDir, "relay.index"), 0))
	slave.must(slave.StartAgain(bounded(t)))
	before, err := slave.Row(bounded(t), "SHOW SLAVE STATUS")
	slave.must(err)
	begun := time.Now()
	if err := slave.server.DrainRelayLog(bounded(t)); !errors.Is(err, errRelayUnopened) {
		t.Fatalf("after %v: %v", time.Since(begun), err)
	}
	after, err := slave.Row(bounded(t), "SHOW SLAVE STATUS")
	slave.must(err)
	if after["Using_Gtid"] != before["Using_Gtid"] || after["Relay_Log_File"] != before["Relay_Log_File"] {
		t.Errorf("it was changed: %v, was %v", after, before)
	}
	// What the error advises.
	slave.MustExec(t, "RESET SLAVE")
	slave.follow(master, false)
	slave.applied(master.write(6, 9))
}

func TestANamedConnectionFetchesWhatIsMissingAndLeavesTheRelayLogAlone(t *testing.T) {
	n := rig(t, 3)
	master, ahead, behind := n[0], n[1], n[2]
	master.lead()
	ahead.follow(master, true)
	behind.follow(master, true)
	behind.applied(master.write(1, 1))
	behind.must(behind.server.StopIO(bounded(t)))
	last := master.write(2, 101)
	ahead.applied(last)
	master.must(master.Kill())
	before := behind.look().Slave

	behind.must(behind.server.Fetch(bounded(t), ahead.source()))
	behind.must(behind.server.Fetch(bounded(t), ahead.source()))
	behind.applied(last)
	o := behind.look()
	if o.Fetch == nil || o.Fetch.IO != health.ThreadYes || !o.Fetch.TLS || o.SemiSync.SlaveOn {
		t.Errorf("rescue connection: %+v, semi-sync %+v", o.Fetch, o.SemiSync)
	}
	if s := o.Slave; s.RelayLogFile != before.RelayLogFile || s.RelayLogPos != before.RelayLogPos || s.RelayLogSpace != before.RelayLogSpace || s.IO != health.ThreadNo {
		t.Errorf("the default connection changed from %+v to %+v", before, s)
	}
	behind.must(behind.server.EndFetch(bounded(t)))
	behind.must(behind.server.EndFetch(bounded(t)))
	if o := behind.look(); o.Fetch != nil || o.Slave == nil {
		t.Errorf("after EndFetch: %+v %+v", o.Fetch, o.Slave)
	}
	if got := behind.rows(); got != "101" {
		t.Errorf("%s rows of 101", got)
	}
}

func TestAttachWritesEveryOptionAndChangesNothingTwice(t *testing.T) {
	n := rig(t, 2)
	master, slave := n[0], n[1]
	master.lead()
	// What RESET SLAVE ALL leaves behind.
	slave.MustExec(t, "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=1, MASTER_SSL=1, MASTER_SSL_CA='/nowhere', MASTER_SSL_CAPATH='/nowhere',"+
		" MASTER_SSL_CERT='/nowhere', MASTER_SSL_KEY='/nowhere', MASTER_SSL_CIPHER='x', MASTER_SSL_CRL='/nowhere', MASTER_SSL_CRLPATH='/nowhere',"+
		" MASTER_DELAY=77, MASTER_HEARTBEAT_PERIOD=9, IGNORE_SERVER_IDS=(1)", "RESET SLAVE ALL")
	slave.follow(master, true)
	row, err := slave.Row(bounded(t), "SHOW SLAVE STATUS")
	slave.must(err)
	for column, want := range map[string]string{"Master_SSL_Allowed": "Yes", "Master_SSL_Verify_Server_Cert": "Yes",
		"Master_SSL_CA_File": slave.ca.file, "Master_SSL_CA_Path": "", "Master_SSL_Cert": "", "Master_SSL_Key": "", "Master_SSL_Cipher": "",
		"Master_SSL_Crl": "", "Master_SSL_Crlpath": "", "SQL_Delay": "0", "Using_Gtid": "Slave_Pos", "Connect_Retry": "1",
		"Replicate_Ignore_Server_Ids": "", "Master_User": replicationUser} {
		if got, ok := row[column]; !ok || got != want {
			t.Errorf("%s is %q, want %q", column, got, want)
		}
	}
	if got := slave.MustValue(t, "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME='SLAVE_HEARTBEAT_PERIOD'"); got != "0.500" {
		t.Errorf("heartbeat period %s", got)
	}
	session := func() string {
		return slave.MustValue(t, "SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND='Slave_IO'")
	}
	before := session()
	slave.must(slave.server.Attach(bounded(t), failover.Attachment{Source: master.source(), Acker: true}))
	if session() != before {
		t.Error("a second Attach restarted the IO thread")
	}
	// A filtered, delayed slave is no acker.
	slave.must(slave.server.Attach(bounded(t), failover.Attachment{Source: master.source(), Delay: 3 * time.Second, DoDB: []string{"a_b", "c"}}))
	o := slave.until("streaming", func(o health.Observation) bool { return o.Slave.IO == health.ThreadYes })
	if o.SemiSync.SlaveOn || o.SemiSync.SlaveEnabled || o.Slave.Delay != 3*time.Second || !o.Slave.Filtered || !o.ReadOnly {
		t.Errorf("%+v %+v", o.SemiSync, o.Slave)
	}
	if got := slave.MustValue(t, "SELECT @@GLOBAL.replicate_wild_do_table"); got != `a\_b.%,c.%` {
		t.Errorf("rule %s", got)
	}
	slave.follow(master, true)
	if o := slave.look(); o.Slave.Filtered || o.Slave.Delay != 0 {
		t.Errorf("the filter or the delay stayed: %+v", o.Slave)
	}
}

// TestAFormerMasterFollowsItsSuccessor: roles of semi-sync flip, the server
// stays closed, and it starts at the position that is given.
func TestAFormerMasterFollowsItsSuccessor(t *testing.T) {
	n := rig(t, 2)
	old, next := n[0], n[1]
	old.lead()
	next.follow(old, true)
	old.must(old.server.Arm(bounded(t), time.Minute))
	old.until("armed", func(o health.Observation) bool {
		return o.SemiSync.MasterOn && o.SemiSync.Clients == 1 && o.SemiSync.AfterSync
	})
	fork := old.write(1, 5)
	next.applied(fork)
	old.must(old.Kill())
	next.must(next.server.StopIO(bounded(t)))
	next.must(next.server.Detach(bounded(t)))
	next.must(next.server.Arm(bounded(t), time.Minute))
	next.must(next.server.Open(bounded(t), time.Second))
	if o := next.look(); !o.SemiSync.MasterEnabled || o.SemiSync.SlaveEnabled || o.ReadOnly {
		t.Errorf("promoted: %+v", o)
	}
	old.must(old.StartAgain(bounded(t)))
	old.must(old.server.Fence(bounded(t)))
	start := gtid.At(fork)
	old.must(old.server.Attach(bounded(t), failover.Attachment{Source: next.source(), Acker: true, StartAt: &start}))
	// The first commit waits for this very slave.
	last := next.write(6, 9)
	old.applied(last)
	o := old.until("an acker", func(o health.Observation) bool { return o.SemiSync.SlaveOn })
	if !o.ReadOnly || o.SemiSync.MasterEnabled || old.rows() != "9" {
		t.Errorf("former master: %+v, %s rows", o.SemiSync, old.rows())
	}
	// By these counters a wait that makes progress is told from one that does not.
	if semi := next.look().SemiSync; semi.YesTx == 0 || semi.NoTx != 0 {
		t.Errorf("%d commits were acknowledged by an acker, %d without one", semi.YesTx, semi.NoTx)
	}
}

func TestNoEffectIsSentToAForeignServer(t *testing.T) {
	n := rig(t, 1)[0]
	identity := n.look().Identity
	identity.DataDir = "/elsewhere/"
	foreign := NewServer(Options{Server: "db9", Target: n.target, Identity: func() topology.Identity { return identity }})
	t.Cleanup(func() { _ = foreign.Close() })
	for verb, err := range everyVerb(foreign, bounded(t), n.source()) {
		if !errors.Is(err, failover.ErrForeign) {
			t.Errorf("%s: %v", verb, err)
		}
	}
	if o := n.look(); !o.ReadOnly || o.Slave != nil || o.Fetch != nil || o.SemiSync.MasterEnabled {
		t.Errorf("something was done: %+v", o)
	}
	// A server_id that is changed while the connection stays open is noticed too.
	n.must(n.server.Open(bounded(t), time.Second))
	n.MustExec(t, "SET GLOBAL server_id = 99")
	if err := n.server.Disarm(bounded(t)); !errors.Is(err, failover.ErrForeign) {
		t.Errorf("after server_id changed: %v", err)
	}
}

func TestADownServerIsUnreachableAndNothingIsSent(t *testing.T) {
	n := rig(t, 1)[0]
	n.must(n.server.Open(bounded(t), time.Second)) // leaves an open connection behind
	n.must(n.Kill())
	for verb, err := range everyVerb(n.server, bounded(t), n.source()) {
		if !errors.Is(err, failover.ErrUnreachable) {
			t.Errorf("%s: %v", verb, err)
		}
		if strings.Contains(err.Error(), daemonPassword) {
			t.Errorf("%s shows the password: %v", verb, err)
		}
	}
}

// everyVerb calls every verb once, in no order.
func everyVerb(s *Server, ctx context.Context, from failover.Source) map[string]error {
	return map[string]error{
		"StopIO": s.StopIO(ctx), "DrainRelayLog": s.DrainRelayLog(ctx), "StartSQL": s.StartSQL(ctx),
		"Fetch": s.Fetch(ctx, from), "EndFetch": s.EndFetch(ctx), "Detach": s.Detach(ctx),
		"Arm": s.Arm(ctx, time.Second), "Disarm": s.Disarm(ctx), "Open": s.Open(ctx, time.Second), "Fence": s.Fence(ctx),
		"Attach":   s.Attach(ctx, failover.Attachment{Source: from}),
		"Announce": s.Announce(ctx, failover.ClusterRow{ClusterID: "x"}),
	}
}

func TestAnnounceNeverGoesBackToAnOlderEpoch(t *testing.T) {
	n := rig(t, 1)[0]
	n.must(n.server.Open(bounded(t), time.Second))
	row := failover.ClusterRow{ClusterID: "c1", Cluster: "main", Epoch: 3, Master: "db1", Durability: "semi-sync", Ackers: []string{"db2"}, Instance: "i1"}
	n.must(n.server.Announce(bounded(t), row))
	older := row
	older.Epoch, older.Master, older.Ackers = 2, "db2", nil
	n.must(n.server.Announce(bounded(t), older))
	rows, err := ReadCluster(bounded(t), n.conn())
	n.must(err)
	if len(rows) != 1 || fmt.Sprint(rows[0]) != fmt.Sprint(row) {
		t.Errorf("%+v, want %+v", rows, row)
	}
	newer := older
	newer.Epoch = 4
	n.must(n.server.Announce(bounded(t), newer))
	if rows, _ = ReadCluster(bounded(t), n.conn()); rows[0].Master != "db2" || rows[0].Epoch != 4 {
		t.Errorf("%+v", rows)
	}
}
