package provision

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/test/mariadb"
)

// running is a master with slaves that were set up by hand, the first by file
// and position, the others by GTID.
func running(t *testing.T, slaves int) []*mariadb.Server {
	t.Helper()
	opts := []mariadb.Options{{Name: "m", Config: mariadb.Replicating(1)}}
	for i := range slaves {
		opts = append(opts, mariadb.Options{Name: fmt.Sprintf("s%d", i+1), Config: append(mariadb.Replicating(i+2), "report-host=127.0.0.1")})
	}
	all := mariadb.StartAll(t, opts...)
	m := all[0]
	m.MustExec(t, "CREATE USER repl@'%' IDENTIFIED BY 'r'", "GRANT REPLICATION SLAVE ON *.* TO repl@'%'",
		"CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY)", "INSERT INTO app.t VALUES (1)")
	for i, s := range all[1:] {
		mode := "MASTER_USE_GTID=slave_pos"
		if i == 0 {
			mode = "MASTER_LOG_FILE='binlog.000001', MASTER_LOG_POS=4, MASTER_USE_GTID=no"
		}
		s.MustExec(t, "SET GLOBAL gtid_slave_pos=''", fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%d, MASTER_USER='repl', MASTER_PASSWORD='r', %s", m.Port, mode), "START SLAVE")
	}
	for _, s := range all[1:] {
		sameRows(t, m, s)
	}
	return all
}

func sameRows(t *testing.T, m, s *mariadb.Server) {
	t.Helper()
	mariadb.Eventually(t, 20*time.Second, func() error {
		row, err := m.Row(t.Context(), "CHECKSUM TABLE app.t")
		if err != nil {
			return err
		}
		other, err := s.Row(t.Context(), "CHECKSUM TABLE app.t")
		if err != nil {
			return err
		}
		if row["Checksum"] != other["Checksum"] {
			return fmt.Errorf("checksum %v, master %v", other, row)
		}
		return nil
	})
}

// A running set-up is taken over without copying data: positions become GTIDs,
// clear text becomes TLS, and every server is configured for a restart.
func TestAdoptTakesOverRunningSlaves(t *testing.T) {
	all := running(t, 2)
	m := all[0]
	p, mem := newProvisioner(t)
	_, err := p.InitMaster(t.Context(), MasterRequest{requestFor(m)})
	wantFault(t, err, fault.Refused, "has_slaves", "replctl adopt m", "2 slaves")

	r := AdoptRequest{Request: requestFor(m), Slaves: []Request{requestFor(all[1]), requestFor(all[2])}}
	dry := r
	dry.DryRun = true
	dry.Slaves = nil // found by themselves
	planned, err := p.Adopt(t.Context(), dry)
	if err != nil || len(planned.SlavePlans) != 2 || !strings.Contains(planned.Text(), "moved from file and position to GTID") {
		t.Fatalf("dry run: %v\n%s", err, planned.Text())
	}

	killed := errors.New("killed")
	mem.onSave = func(p Pending) error {
		if p.Verb == "adopt" {
			return killed
		}
		return nil
	}
	if _, err := p.Adopt(t.Context(), r); !errors.Is(err, killed) {
		t.Fatalf("it was not interrupted: %v", err)
	}
	mem.onSave = nil
	res, err := p.Adopt(t.Context(), r)
	if err != nil {
		t.Fatalf("adopt: %v", err)
	}
	if len(res.Slaves) != 2 || res.Server.Name != "m" || res.Era.First < 4 {
		t.Errorf("result: %+v", res)
	}
	m.MustExec(t, "INSERT INTO app.t VALUES (2)")
	for _, s := range all[1:] {
		row, err := s.Row(t.Context(), "SHOW SLAVE STATUS")
		if err != nil {
			t.Fatal(err)
		}
		for column, want := range map[string]string{"Using_Gtid": "Slave_Pos", "Master_SSL_Allowed": "Yes", "Master_SSL_Verify_Server_Cert": "Yes",
			"Master_User": UserReplication, "Slave_IO_Running": "Yes", "Slave_SQL_Running": "Yes"} {
			if row[column] != want {
				t.Errorf("%s: %s is %s, want %s", s.Name, column, row[column], want)
			}
		}
		if v := s.MustValue(t, "SELECT @@read_only"); v != "1" {
			t.Errorf("%s is writable", s.Name)
		}
		sameRows(t, m, s)
	}
	removeSlave(t, p, mem, res, all[1])
}

// removeSlave takes an adopted slave out again: an ordinary server is left, with
// its data and without a transaction of its own.
func removeSlave(t *testing.T, p *Provisioner, mem *memory, res *AdoptResult, s *mariadb.Server) {
	t.Helper()
	mem.recordMaster("main", &res.MasterResult)
	for _, srv := range res.Slaves {
		mem.clusters["main"].Servers[srv.Name] = &srv
	}
	_, err := p.Remove(t.Context(), RemoveRequest{Name: "m", Confirmed: true})
	wantFault(t, err, fault.Refused, "has_slaves", s.Name)
	out, err := p.Remove(t.Context(), RemoveRequest{Name: s.Name, PurgeConfig: true, Confirmed: true})
	if err != nil || len(out.Warnings) > 0 {
		t.Fatalf("remove: %v, %v", err, out.Warnings)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string]string{
		"SELECT @@read_only": "0", "SELECT @@have_ssl": "DISABLED", "SELECT COUNT(*) FROM app.t": "2",
		"SELECT COUNT(*) FROM mysql.user WHERE User LIKE 'repld%'": "0", "SELECT @@gtid_binlog_state REGEXP '0-2-'": "0",
	} {
		if v := s.MustValue(t, query); v != want {
			t.Errorf("%s is %s, want %s", query, v, want)
		}
	}
	if row, err := s.Rows(t.Context(), "SHOW SLAVE STATUS"); err != nil || len(row) > 0 {
		t.Errorf("it is still a slave: %v %v", row, err)
	}
}

func TestAdoptRefusesErrantAndForeignSlaves(t *testing.T) {
	all := running(t, 2)
	p, _ := newProvisioner(t)
	r := AdoptRequest{Request: requestFor(all[0]), Slaves: []Request{requestFor(all[1]), requestFor(all[2])}}
	all[1].MustExec(t, "SET GLOBAL gtid_strict_mode=0", "CREATE DATABASE extra")
	_, err := p.Adopt(t.Context(), r)
	wantFault(t, err, fault.Refused, "errant", "transactions that the master never had", "0-2-")
	if v := all[0].MustValue(t, "SELECT COUNT(*) FROM mysql.user WHERE User LIKE 'repld%'"); v != "0" {
		t.Error("the refused adopt changed the master")
	}

	all[2].MustExec(t, "STOP SLAVE SQL_THREAD")
	r.Slaves = r.Slaves[1:]
	_, err = p.Adopt(t.Context(), r)
	if f := fault.As(err); !strings.Contains(f.Cause, "follows: its threads do not both run") {
		t.Errorf("a stopped SQL thread: %v", err)
	}
}
