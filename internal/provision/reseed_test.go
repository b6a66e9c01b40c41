package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/mysql"
	kit "github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/topology"
)

// A former master with transactions that nobody else has: they are saved by
// repld's own account over TLS, then it is seeded anew and follows.
func TestCaseA23AFormerMasterIsSavedThenSeededAnewAndFollows(t *testing.T) {
	rig := newSlaveRig(t, func(m *kit.Server) { furnish(t, m, 20000) })
	old, now := rig.m, rig.slaves[0]
	rig.mustInit(t, rig.request(now))
	caughtUp(t, old, now)
	fork := old.MustValue(t, "SELECT @@gtid_binlog_pos")
	now.MustExec(t, "STOP SLAVE", "RESET SLAVE ALL")
	old.MustExec(t, "INSERT INTO app.t(v) VALUES ('lonely')", "CREATE DATABASE lonely", "CREATE TABLE lonely.x (id INT PRIMARY KEY)")
	if err := old.Kill(); err != nil {
		t.Fatal(err)
	}
	now.MustExec(t, "SET GLOBAL read_only=0", "INSERT INTO app.t(v) VALUES ('new era')")
	c := rig.mem.clusters["main"]
	c.Master, c.Servers["db2"].Role, c.Servers["db2"].Source = "db2", topology.RoleMaster, ""
	rig.mem.clusters["main"] = c
	if err := old.StartAgain(t.Context()); err != nil {
		t.Fatal(err)
	}
	from, err := rig.p.CopyEndpoint("main", *c.Servers["db1"])
	if err != nil {
		t.Fatal(err)
	}
	// The authority as text does as well as its file.
	if from.CAPEM, err = os.ReadFile(from.CAFile); err != nil {
		t.Fatal(err)
	}
	from.CAFile = ""
	x, err := SaveErrant(t.Context(), ErrantRequest{Cluster: "main", Server: "db1", From: from, Fork: parseGTID(t, fork),
		Has: parseState(t, now.MustValue(t, "SELECT @@gtid_binlog_state")), DataDir: rig.p.DataDir, Now: time.Now()})
	if err != nil || len(x.Transactions) != 3 || !AllBeforeRestart(x.Transactions) {
		t.Fatalf("%+v, %v", x, err)
	}
	interruptReseed(t, rig, old)
	before := old.MustValue(t, "SELECT CONCAT(@@server_id,@@server_uid)")
	out, err := rig.p.Reseed(t.Context(), ReseedRequest{Cluster: "main", Server: "db1"})
	if err != nil {
		t.Fatal(err)
	}
	if v := old.MustValue(t, "SELECT @@gtid_binlog_state"); v != "" || old.MustValue(t, "SELECT @@read_only") != "1" {
		t.Errorf("binary log state %q is left", v)
	}
	if after := old.MustValue(t, "SELECT CONCAT(@@server_id,@@server_uid)"); after != before {
		t.Errorf("identity went from %s to %s", before, after)
	}
	attachTo(t, rig, "db1", now)
	caughtUp(t, now, old)
	sameContent(t, now, old)
	if v := old.MustValue(t, "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name='lonely'"); v != "0" || out.At.IsEmpty() {
		t.Errorf("what was given up is still there; copied up to %s", out.At)
	}
}

// interruptReseed ends a re-seed before it begins to deliver, and one in its
// middle.
func interruptReseed(t *testing.T, rig *slaveRig, old *kit.Server) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := rig.p.Reseed(ctx, ReseedRequest{Cluster: "main", Server: "db1"}); err == nil {
		t.Fatal("a cancelled copy succeeded")
	}
	if v := old.MustValue(t, "SELECT COUNT(*) FROM app.t WHERE v='lonely'"); v != "1" {
		t.Fatal("data is gone although nothing was delivered")
	}
	old.MustExec(t, "SET GLOBAL read_only=0")
	_, err := rig.p.Reseed(t.Context(), ReseedRequest{Cluster: "main", Server: "db1"})
	wantFault(t, err, fault.Refused, "not_fenced")
	old.MustExec(t, "SET GLOBAL read_only=1")
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	_, err = rig.p.Reseed(ctx, ReseedRequest{Cluster: "main", Server: "db1", Progress: func(p Progress) {
		if p.Phase == "copy" && p.Bytes > 1<<20 {
			cancel()
		}
	}})
	wantFault(t, err, fault.Failed, "copy_cancelled", "incomplete copy")
}

func attachTo(t *testing.T, rig *slaveRig, name string, source *kit.Server) {
	t.Helper()
	srv := rig.mem.clusters["main"].Servers[name]
	e, err := rig.p.CopyEndpoint("main", *srv)
	if err != nil {
		t.Fatal(err)
	}
	accounts := rig.mem.accounts["main"]
	e.Target.User, e.Target.Password = accounts[topology.AccountRepld].User, accounts[topology.AccountRepld].Password
	s := mysql.NewServer(mysql.Options{Server: name, Target: func() mysql.Target { return e.Target }, Identity: func() topology.Identity { return srv.Identity },
		Replication: func() mysql.Credentials {
			a := accounts[topology.AccountReplication]
			return mysql.Credentials{User: a.User, Password: a.Password}
		}})
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	err = s.Attach(ctx, failover.Attachment{Acker: true, Source: failover.Source{Name: "db2", Host: source.Host, Port: uint16(source.Port), CAFile: srv.CAFile, CertFile: srv.CertFile, KeyFile: srv.KeyFile}})
	if err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, 10*time.Second, func() error {
		st, err := rig.m.Row(context.Background(), "SHOW SLAVE STATUS")
		if err == nil && (st["Slave_IO_Running"] != "Yes" || st["Slave_SQL_Running"] != "Yes") {
			err = errors.New(fmt.Sprint(st))
		}
		return err
	})
}
