package provision

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/internal/fault"
	kit "github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/topology"
)

// slaveRig is a master that init master has made, and servers for slaves.
type slaveRig struct {
	p      *Provisioner
	mem    *memory
	m      *kit.Server
	slaves []*kit.Server
}

func newSlaveRig(t *testing.T, before func(m *kit.Server), opts ...kit.Options) *slaveRig {
	t.Helper()
	if len(opts) == 0 {
		opts = []kit.Options{{Name: "db2"}}
	}
	list := kit.StartAll(t, append([]kit.Options{{Name: "db1"}}, opts...)...)
	p, mem := newProvisioner(t)
	rig := &slaveRig{p: p, mem: mem, m: list[0], slaves: list[1:]}
	if before != nil {
		before(rig.m)
	}
	mustInit(t, p, mem, rig.m)
	return rig
}

func (g *slaveRig) record(_ context.Context, srv topology.Server) error {
	g.mem.mu.Lock()
	defer g.mem.mu.Unlock()
	c := g.mem.clusters["main"]
	c.Servers[srv.Name] = &srv
	return nil
}

func (g *slaveRig) request(s *kit.Server) SlaveRequest {
	r := SlaveRequest{Request: requestFor(s)}
	r.Confirmed = true
	return r
}

func (g *slaveRig) init(t *testing.T, r SlaveRequest) (*SlaveResult, error) {
	t.Helper()
	return g.p.InitSlave(t.Context(), r, g.record)
}

func (g *slaveRig) mustInit(t *testing.T, r SlaveRequest) *SlaveResult {
	t.Helper()
	res, err := g.init(t, r)
	if err != nil {
		t.Fatalf("init slave: %v", err)
	}
	return res
}

func TestInitSlaveCopiesDataAndReplicatesOverTLS(t *testing.T) {
	rig := newSlaveRig(t, func(m *kit.Server) { furnish(t, m, 5000) })
	s := rig.slaves[0]
	stop := writer(t, rig.m)
	res := rig.mustInit(t, rig.request(s))
	if !res.Changed || res.Copied == nil || !res.Acker || res.Server.Joining || res.Server.Source != "db1" || res.Server.Identity.ServerID == 1 {
		t.Errorf("result %+v", res)
	}
	if n := stop(); n == 0 {
		t.Error("the master was not written to meanwhile")
	}
	caughtUp(t, rig.m, s)
	sameContent(t, rig.m, s)
	st, err := s.Row(t.Context(), "SHOW SLAVE STATUS")
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range map[string]string{"Using_Gtid": "Slave_Pos", "Master_SSL_Allowed": "Yes", "Master_SSL_Verify_Server_Cert": "Yes", "Slave_IO_Running": "Yes", "Slave_SQL_Running": "Yes", "Connect_Retry": "1"} {
		if st[k] != want {
			t.Errorf("%s is %q, want %q", k, st[k], want)
		}
	}
	for q, want := range map[string]string{
		"SELECT @@read_only": "1", "SELECT @@event_scheduler": "OFF", "SELECT @@rpl_semi_sync_slave_enabled": "1", "SELECT @@log_slave_updates": "1",
		"SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name LIKE 'repld_probe%'": "0",
	} {
		if got := s.MustValue(t, q); got != want {
			t.Errorf("%s: %s, want %s", q, got, want)
		}
	}
	if again := rig.mustInit(t, rig.request(s)); again.Changed || len(again.Plan.Steps) != 0 {
		t.Errorf("again: %+v", again.Plan.Steps)
	}
}

// The administrator has the name of an installation's own account, so that the
// master holds nothing but repld's.
func TestInitSlaveOfAnEmptyMasterStartsBeforeRepldsFirstTransaction(t *testing.T) {
	list := kit.StartAll(t, kit.Options{Name: "db1"}, kit.Options{Name: "db2"})
	for _, s := range list {
		s.MustExec(t, "ALTER USER root@localhost IDENTIFIED BY '"+s.AdminPassword+"'", "DROP USER IF EXISTS admin@'%', admin@localhost")
		// Closed and started again, so that the kit logs in anew.
		s.AdminUser = "root"
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.StartAgain(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	p, mem := newProvisioner(t)
	rig := &slaveRig{p: p, mem: mem, m: list[0], slaves: list[1:]}
	mustInit(t, p, mem, rig.m)
	s := rig.slaves[0]
	res := rig.mustInit(t, rig.request(s))
	if res.Copied != nil || !res.StartAt.Equal(*mem.clusters["main"].Start) {
		t.Fatalf("copied %+v, started at %s", res.Copied, res.StartAt)
	}
	caughtUp(t, rig.m, s)
	sameContent(t, rig.m, s)
	if a, b := rig.m.MustValue(t, "SELECT @@gtid_binlog_state"), s.MustValue(t, "SELECT @@gtid_binlog_state"); !strings.HasSuffix(a, b) || b == "" {
		t.Errorf("binary log states: master %s, slave %s", a, b)
	}
}

func TestInitSlaveAfterTheServerWasKilledInTheMiddleOfTheCopyGoesOn(t *testing.T) {
	rig := newSlaveRig(t, func(m *kit.Server) { furnish(t, m, 60000) })
	s := rig.slaves[0]
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rig.mem.onStep = func(step, status string) {
		if step == StepCopy && status == "run" {
			kit.Eventually(t, 20*time.Second, func() error {
				if n, err := s.Value(context.Background(), "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema='app'"); err != nil || n == "0" {
					return fmt.Errorf("%s tables, %w", n, err)
				}
				return nil
			})
			cancel()
		}
	}
	// The first call of the progress blocks until the load has begun, so it must not
	// be the one that begins it.
	first := true
	wait := rig.mem.onStep
	rig.mem.onStep = func(step, status string) {
		if step == StepCopy && first {
			first = false
			go wait(step, status)
		}
	}
	_, err := rig.p.InitSlave(ctx, rig.request(s), rig.record)
	wantFault(t, err, fault.Failed, "copy_cancelled", "incomplete copy")
	rig.mem.onStep = nil
	if rig.mem.clusters["main"].Servers["db2"] != nil {
		t.Error("a server without data was recorded")
	}
	rig.mustInit(t, rig.request(s))
	caughtUp(t, rig.m, s)
	sameContent(t, rig.m, s)
}

func TestCaseA5InitSlaveRefusesForeignData(t *testing.T) {
	rig := newSlaveRig(t, func(m *kit.Server) {
		m.MustExec(t, "CREATE DATABASE app", "CREATE TABLE app.keep (id INT PRIMARY KEY)", "INSERT INTO app.keep VALUES (1)")
	})
	s := rig.slaves[0]
	s.MustExec(t, "CREATE DATABASE app", "CREATE TABLE app.keep (id INT PRIMARY KEY)", "INSERT INTO app.keep VALUES (900),(901),(902)")
	id := s.MustValue(t, "SELECT @@server_id")
	_, err := rig.init(t, rig.request(s))
	wantFault(t, err, fault.Refused, "existing_data", "app", "--replace-data", "nothing was changed")
	if n := s.MustValue(t, "SELECT COUNT(*) FROM app.keep"); n != "3" {
		t.Fatalf("%s of 3 rows are left", n)
	}
	if now := s.MustValue(t, "SELECT @@server_id"); now != id {
		t.Errorf("server_id went from %s to %s", id, now)
	}
	r := rig.request(s)
	r.ReplaceData, r.Confirmed = true, false
	_, err = rig.init(t, r)
	wantFault(t, err, fault.Unconfirmed, "not_confirmed", "Destroy", "app")
	r.Confirmed = true
	rig.mustInit(t, r)
	caughtUp(t, rig.m, s)
	sameContent(t, rig.m, s)
}

func TestCaseA3TheCauseOfARefusedReplicationLoginIsNamed(t *testing.T) {
	rig := newSlaveRig(t, nil)
	s := rig.slaves[0]
	undo := func(statements ...string) { rig.m.MustExec(t, statements...) }
	hash := rig.m.MustValue(t, "SELECT authentication_string FROM mysql.user WHERE user='repld_replication' AND host='%'")
	for name, c := range map[string]struct{ do, undo []string }{
		"anonymous account": {[]string{"CREATE USER ''@localhost"}, []string{"DROP USER ''@localhost"}},
		"no account": {[]string{"RENAME USER repld_replication@'%' TO repld_replication@'10.0.0.%'"},
			[]string{"RENAME USER repld_replication@'10.0.0.%' TO repld_replication@'%'"}},
		"lacks REPLICATION SLAVE": {[]string{"REVOKE REPLICATION SLAVE ON *.* FROM repld_replication@'%'"},
			[]string{"GRANT REPLICATION SLAVE ON *.* TO repld_replication@'%'"}},
		"password": {[]string{"ALTER USER repld_replication@'%' IDENTIFIED BY 'another'"},
			[]string{"ALTER USER repld_replication@'%' IDENTIFIED BY PASSWORD '" + hash + "'"}},
	} {
		rig.m.MustExec(t, c.do...)
		_, err := rig.init(t, rig.request(s))
		if name == "anonymous account" {
			// repld's own login is shadowed just as well, and is tried first.
			if f := fault.As(err); f == nil || f.Errno != 1045 && f.Errno != 1698 || f.Kind != fault.Failed {
				t.Errorf("%s: %v", name, err)
			}
		} else {
			wantFault(t, err, fault.Failed, "replication_login", name)
		}
		if v, _ := s.Rows(t.Context(), "SHOW ALL SLAVES STATUS"); len(v) != 0 {
			t.Errorf("%s: a connection is left", name)
		}
		undo(c.undo...)
	}
	rig.mustInit(t, rig.request(s))
}

func TestCaseA13AnUnencryptedAccountIsRefusedAfterStart(t *testing.T) {
	rig := newSlaveRig(t, nil)
	s := rig.slaves[0]
	rig.m.MustExec(t, "ALTER USER repld_replication@'%' REQUIRE NONE")
	_, err := rig.init(t, rig.request(s))
	wantFault(t, err, fault.Refused, "not_encrypted", "without TLS", "REQUIRE SSL")
	if st, _ := s.Row(t.Context(), "SHOW SLAVE STATUS"); st["Slave_IO_Running"] != "No" {
		t.Errorf("the IO thread is %s", st["Slave_IO_Running"])
	}
	rig.m.MustExec(t, "ALTER USER repld_replication@'%' REQUIRE SSL")
	rig.mustInit(t, rig.request(s))
}

func TestCaseA8AFilteredSlaveIsNeverPromotableAndUsesWildRules(t *testing.T) {
	rig := newSlaveRig(t, func(m *kit.Server) {
		m.MustExec(t, "CREATE DATABASE app", "CREATE TABLE app.keep (id INT PRIMARY KEY)", "CREATE DATABASE other", "CREATE TABLE other.x (id INT PRIMARY KEY)")
	})
	s := rig.slaves[0]
	r := rig.request(s)
	r.ReplicateDoDB = []string{"app"}
	res := rig.mustInit(t, r)
	if res.Acker || len(res.Server.NeverPromotable()) != 1 {
		t.Errorf("acker %v, never promotable because %v", res.Acker, res.Server.NeverPromotable())
	}
	// The case's own sequence: changes made from another current schema.
	conn, err := rig.m.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, q := range []string{"CREATE TABLE app.late (id INT PRIMARY KEY)", "USE other", "INSERT INTO app.keep VALUES (1)", "INSERT INTO x VALUES (5)", "USE app", "INSERT INTO keep VALUES (2)", "INSERT INTO late VALUES (3)"} {
		if _, err := conn.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	caughtUp(t, rig.m, s)
	for q, want := range map[string]string{"SELECT COUNT(*) FROM app.keep": "2", "SELECT COUNT(*) FROM app.late": "1",
		"SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name='other'": "0", "SELECT @@rpl_semi_sync_slave_enabled": "0"} {
		if got := s.MustValue(t, q); got != want {
			t.Errorf("%s: %s, want %s", q, got, want)
		}
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.MustValue(t, "SELECT @@replicate_wild_do_table"); got != "app.%" {
		t.Errorf("after a restart the filter is %q", got)
	}
	// Without the filter it would be whole in name only.
	_, err = rig.init(t, rig.request(s))
	wantFault(t, err, fault.Refused, "incomplete_data", "only app", "--replace-data", "nothing was changed")
	r.ReplicateDoDB = []string{"app", "other"}
	_, err = rig.init(t, r)
	wantFault(t, err, fault.Refused, "incomplete_data", "no data of other", "--replace-data")
}

func TestInitSlaveWithDelayAndSkipErrorsIsNoAcker(t *testing.T) {
	rig := newSlaveRig(t, nil)
	s := rig.slaves[0]
	r := rig.request(s)
	r.Delay, r.SkipErrors = time.Hour, "1062,1032"
	res := rig.mustInit(t, r)
	if res.Acker || len(res.Server.NeverPromotable()) != 2 {
		t.Errorf("%+v", res.Server)
	}
	st, _ := s.Row(t.Context(), "SHOW SLAVE STATUS")
	if st["SQL_Delay"] != "3600" || s.MustValue(t, "SELECT @@slave_skip_errors") != "1032,1062" && s.MustValue(t, "SELECT @@slave_skip_errors") != "1062,1032" {
		t.Errorf("delay %s, skip %s", st["SQL_Delay"], s.MustValue(t, "SELECT @@slave_skip_errors"))
	}
}

func TestInitSlaveRefusesTheMasterItself(t *testing.T) {
	rig := newSlaveRig(t, nil)
	r := rig.request(rig.m)
	r.Name = "copy"
	_, err := rig.init(t, r)
	wantFault(t, err, fault.Usage, "same_server")
	// Another spelling of the same address leads to the same server.
	r.Address = strings.Replace(r.Address, "127.0.0.1", "127.0.0.2", 1)
	_, err = rig.init(t, r)
	if f := fault.As(err); f == nil || f.Kind == fault.Refused {
		t.Errorf("got %v", err)
	}
}
