package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/repld/repld/internal/config"
	"github.com/repld/repld/internal/mysql"
	"github.com/repld/repld/internal/provision"
	"github.com/repld/repld/test/ledger"
	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/topology"
)

func slaveConfig(dir string, id int) []string {
	return []string{
		fmt.Sprintf("server-id=%d", id), "log-bin=mariadb-bin", "relay-log=mariadb-relay-bin", "log-slave-updates=1", "gtid-strict-mode=1",
		"read-only=1", "skip-slave-start=1", "event-scheduler=OFF", "sync-binlog=1", "innodb-flush-log-at-trx-commit=1",
		"rpl-semi-sync-master-wait-point=AFTER_SYNC", "rpl-semi-sync-slave-kill-conn-timeout=1",
		"ssl-ca=" + dir + "/ca.pem", "ssl-cert=" + dir + "/cert.pem", "ssl-key=" + dir + "/key.pem",
	}
}

func TestQuick(t *testing.T) {
	ctx := t.Context()
	cfg := config.Default()
	cfg.DataDir = t.TempDir()
	store, err := topology.Open(filepath.Join(cfg.DataDir, "repld.db"), filepath.Join(cfg.DataDir, "repld.key"))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	ch := &changer{store: store, cfg: cfg, log: log, busy: map[string]bool{}}
	gs := newGuards(store, cfg, log, ch)
	ch.guards = gs
	ca, err := provision.OpenAuthority(cfg.DataDir, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	m, err := ca.Issue("main", "all", []string{"127.0.0.1", "localhost"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	certs := t.TempDir()
	for n, b := range map[string][]byte{"ca.pem": m.CA, "cert.pem": m.Cert, "key.pem": m.Key} {
		os.WriteFile(filepath.Join(certs, n), b, 0o600)
	}
	master := mariadb.Start(t, mariadb.Options{})
	res, err := ch.provisioner(nil).InitMaster(ctx, provision.MasterRequest{Request: provision.Request{
		Cluster: "main", Name: "db1", Address: master.Addr(), Admin: provision.Admin{User: master.AdminUser, Password: master.AdminPassword},
		ConfigFile: master.DropInPath(), RestartCommand: master.RestartCommand(), Restart: "now"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.recordMaster("main", res); err != nil {
		t.Fatal(err)
	}
	servers := []*mariadb.Server{master}
	for i := 2; i <= 3; i++ {
		s := mariadb.Start(t, mariadb.Options{Config: slaveConfig(certs, i)})
		servers = append(servers, s)
		conn, err := mysql.Dial(ctx, mysql.Target{Address: s.Addr(), User: s.AdminUser, Password: s.AdminPassword})
		if err != nil {
			t.Fatal(err)
		}
		id, err := mysql.IdentityOf(ctx, conn)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		// accounts first, so that repld can log in
		acc := store.Accounts("main")
		conn2, err := mysql.Dial(ctx, mysql.Target{Address: s.Addr(), User: s.AdminUser, Password: s.AdminPassword})
		if err != nil {
			t.Fatal(err)
		}
		for _, st := range mysql.AccountStatements(mysql.Credentials{User: acc["repld"].User, Password: acc["repld"].Password}, mysql.DaemonGrants()) {
			if err := conn2.Exec(ctx, "SET sql_log_bin=0"); err != nil {
				t.Fatal(err)
			}
			if err := conn2.Exec(ctx, st.SQL, st.Args...); err != nil {
				t.Fatal(err)
			}
		}
		conn2.Close()
		err = store.Apply(topology.PutServer{Cluster: "main", Server: topology.Server{
			Name: fmt.Sprintf("db%d", i), Address: s.Addr(), Identity: id, Flavor: "mariadb", Role: topology.RoleSlave, Source: "db1", Promotion: "neutral",
			CAFile: certs + "/ca.pem", CAPEM: string(m.CA)}})
		if err != nil {
			t.Fatal(err)
		}
	}
	runCtx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); gs.run(runCtx) }()
	defer func() { cancel(); <-done }()
	wait := func(want string) {
		t.Helper()
		mariadb.Eventually(t, 20*time.Second, func() error {
			_, r, ok := gs.Report("main")
			if !ok || string(r.Health) != want {
				return fmt.Errorf("health %v %+v", r.Health, r.Problems)
			}
			return nil
		})
	}
	wait("healthy")
	if err := ledger.Install(ctx, master); err != nil {
		t.Fatal(err)
	}
	l, err := ledger.Start(ctx, ledger.Options{Locate: ledger.Writable(servers...)})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.WaitCount(ctx, 500); err != nil {
		t.Fatal(err)
	}
	t0 := time.Now()
	master.Kill()
	ack, err := l.WaitAck(ctx, func(a ledger.Ack) bool { return a.ServerID != 1 })
	t.Logf("first ack %v after kill, %v %v", ack.After.Sub(t0), ack, err)
	time.Sleep(2 * time.Second)
	master.StartAgain(ctx)
	wait("healthy")
	l.Stop()
	mariadb.Eventually(t, 20*time.Second, func() error {
		rep, err := l.Compare(ctx, servers)
		if err != nil {
			return err
		}
		t.Log(rep)
		return rep.Err()
	})
	ops, _ := store.Operations("main", 0)
	for _, o := range ops {
		t.Logf("%+v", o)
		if o.OpenedMS != nil {
			t.Logf("detected %v opened %v total %v outage %v", *o.DetectedMS, *o.OpenedMS, *o.TotalMS, o.WriteOutageMS)
		}
	}
}
