package provision

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/internal/mysql"
	kit "github.com/repld/repld/test/mariadb"
)

// pair starts a master that has been in use and a bare server.
func pair(t *testing.T) (m, s *kit.Server) {
	t.Helper()
	list := kit.StartAll(t,
		kit.Options{Name: "m", Config: kit.Replicating(1)},
		kit.Options{Name: "s", Config: append(kit.Replicating(2), "read-only=1")})
	return list[0], list[1]
}

func endpoint(s *kit.Server) Endpoint {
	return Endpoint{Target: mysql.Target{Name: s.Name, Address: s.Addr(), Socket: s.Socket, User: s.AdminUser, Password: s.AdminPassword}}
}

func copier(m, s *kit.Server) *Copier {
	return &Copier{From: endpoint(m), To: endpoint(s), ClusterID: "c1", Source: "m",
		Keep: func(user, _ string) bool { return user == "root" || user == s.AdminUser },
		Log:  slog.New(slog.DiscardHandler)}
}

// furnish gives a master one of everything that a copy must bring.
func furnish(t *testing.T, m *kit.Server, rows int) {
	t.Helper()
	m.MustExec(t,
		"CREATE DATABASE app", "CREATE DATABASE `we``ird-name` CHARACTER SET latin1 COLLATE latin1_german1_ci",
		"CREATE TABLE app.t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(200) CHARACTER SET utf8mb4, b BLOB, KEY(v))",
		"CREATE TABLE app.counter (id INT PRIMARY KEY, n BIGINT)", "INSERT INTO app.counter VALUES (1,0)",
		"CREATE TABLE app.audit (id INT AUTO_INCREMENT PRIMARY KEY, t INT)",
		"CREATE TABLE `we``ird-name`.`t x` (id INT PRIMARY KEY, e VARCHAR(20) CHARACTER SET latin1)",
		"INSERT INTO `we``ird-name`.`t x` VALUES (1, 'Straße'), (2, '\\\\C \\n delimiter ;;\\n')",
		"CREATE TABLE app.plain (id INT PRIMARY KEY, v VARCHAR(20)) ENGINE=MyISAM", "INSERT INTO app.plain VALUES (1,'one')",
		"INSERT INTO app.t(v,b) VALUES ('\\r\\n\\0 😀 \\'\\\\', UNHEX('00ff0d0a5c271a')), (NULL, NULL)",
		fmt.Sprintf("INSERT INTO app.t(v) SELECT REPEAT(CHAR(97+seq%%26), 150) FROM app.seq_1_to_%d", rows),
		"CREATE TRIGGER app.tr AFTER INSERT ON app.t FOR EACH ROW INSERT INTO app.audit(t) VALUES (NEW.id)",
		"CREATE VIEW app.vw AS SELECT id, v FROM app.t",
		"CREATE PROCEDURE app.p(x INT) INSERT INTO app.t(v) VALUES (x)",
		"CREATE FUNCTION app.f(x INT) RETURNS INT DETERMINISTIC RETURN x+1",
		"CREATE SEQUENCE app.sq",
		"CREATE USER app@'%' IDENTIFIED BY 'x'", "GRANT SELECT, INSERT, UPDATE ON app.* TO app@'%'", "GRANT EXECUTE ON PROCEDURE app.p TO app@'%'",
		"CREATE ROLE reader", "GRANT SELECT(v) ON app.t TO reader", "GRANT reader TO app@'%'", "SET DEFAULT ROLE reader FOR app@'%'",
		"CREATE USER tls@'10.%' IDENTIFIED BY 'y' REQUIRE SSL WITH MAX_USER_CONNECTIONS 5",
		"CREATE DEFINER=app@'%' EVENT app.ev ON SCHEDULE EVERY 1 SECOND DO INSERT INTO app.t(v) VALUES ('ev')",
		"CREATE EVENT app.off ON SCHEDULE EVERY 1 HOUR DISABLE DO SET @x=1")
}

// follow makes s a slave of m from its gtid_slave_pos, plainly.
func follow(t *testing.T, m, s *kit.Server) {
	t.Helper()
	m.MustExec(t, "CREATE USER IF NOT EXISTS plainrepl@'%' IDENTIFIED BY 'r'", "GRANT REPLICATION SLAVE ON *.* TO plainrepl@'%'")
	s.MustExec(t, fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=%d, MASTER_USER='plainrepl', MASTER_PASSWORD='r', MASTER_USE_GTID=slave_pos, MASTER_SSL=0", m.Port), "START SLAVE")
	caughtUp(t, m, s)
}

func caughtUp(t *testing.T, m, s *kit.Server) {
	t.Helper()
	kit.Eventually(t, 20*time.Second, func() error {
		want, got := m.MustValue(t, "SELECT @@gtid_binlog_pos"), s.MustValue(t, "SELECT @@gtid_slave_pos")
		if want != got {
			st, _ := s.Row(context.Background(), "SHOW SLAVE STATUS")
			return fmt.Errorf("master at %s, slave at %s; IO %s %s; SQL %s %s", want, got, st["Slave_IO_Running"], st["Last_IO_Error"], st["Slave_SQL_Running"], st["Last_SQL_Error"])
		}
		return nil
	})
}

// sameContent compares every table of the servers by checksum, and the
// definitions of all else.
func sameContent(t *testing.T, m, s *kit.Server) {
	t.Helper()
	for _, q := range []string{
		"SELECT GROUP_CONCAT(CONCAT(table_schema,'.',table_name,':',table_type) ORDER BY 1) FROM information_schema.tables WHERE table_schema NOT IN ('mysql','sys','information_schema','performance_schema')",
		"SELECT GROUP_CONCAT(CONCAT(db,name,body,definer) ORDER BY 1) FROM mysql.proc WHERE db NOT IN ('sys')",
		"SELECT GROUP_CONCAT(CONCAT(trigger_schema,trigger_name,action_statement,definer) ORDER BY 1) FROM information_schema.triggers WHERE trigger_schema<>'sys'",
		"SELECT GROUP_CONCAT(CONCAT(event_schema,event_name,event_definition,definer,sql_mode,time_zone) ORDER BY 1) FROM information_schema.events",
		"SELECT GROUP_CONCAT(CONCAT(user,host,priv) ORDER BY 1) FROM mysql.global_priv WHERE user NOT IN ('root','admin')",
		"SELECT GROUP_CONCAT(CONCAT(user,host,role,admin_option) ORDER BY 1) FROM mysql.roles_mapping",
	} {
		if a, b := m.MustValue(t, q), s.MustValue(t, q); a != b {
			t.Errorf("%s\nmaster: %s\nslave:  %s", q, a, b)
		}
	}
	tables, err := m.Rows(context.Background(), "SELECT table_schema d, table_name n FROM information_schema.tables WHERE table_type='BASE TABLE' AND table_schema NOT IN ('mysql','sys','information_schema','performance_schema')")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range tables {
		q := "CHECKSUM TABLE " + mysql.QuoteName(x["d"]) + "." + mysql.QuoteName(x["n"])
		a, _ := m.Row(context.Background(), q)
		b, _ := s.Row(context.Background(), q)
		if a["Checksum"] != b["Checksum"] {
			t.Errorf("%s: master %s, slave %s", q, a["Checksum"], b["Checksum"])
		}
	}
}

// writer writes to the master until it is stopped.
func writer(t *testing.T, m *kit.Server) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var n int
	conn, err := m.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	wg.Go(func() {
		defer conn.Close()
		for ctx.Err() == nil {
			tx, err := conn.BeginTx(ctx, nil)
			if err != nil {
				return
			}
			_, err1 := tx.ExecContext(ctx, "INSERT INTO app.t(v) VALUES (UUID())")
			_, err2 := tx.ExecContext(ctx, "UPDATE app.counter SET n=n+1")
			if errors.Join(err1, err2, tx.Commit()) != nil {
				return
			}
			n++
		}
	})
	var once sync.Once
	stop = func() int { once.Do(func() { cancel(); wg.Wait() }); return n }
	t.Cleanup(func() { stop() })
	return stop
}

func TestCopyIsExactWhileTheMasterIsWrittenTo(t *testing.T) {
	m, s := pair(t)
	furnish(t, m, 40000)
	stop := writer(t, m)
	c := copier(m, s)
	var last Progress
	c.Progress = func(p Progress) { last = p }
	out, err := c.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if last.Phase != "done" || last.Bytes < 5<<20 {
		t.Errorf("last progress: %+v", last)
	}
	for q, want := range map[string]string{
		"SELECT @@gtid_slave_pos":    out.At.String(),
		"SELECT @@gtid_binlog_pos":   "",
		"SELECT @@gtid_binlog_state": "",
		"SELECT status FROM information_schema.events WHERE event_name='ev'":  "SLAVESIDE_DISABLED",
		"SELECT status FROM information_schema.events WHERE event_name='off'": "DISABLED",
		"SELECT @@event_scheduler": "OFF",
		"SELECT COUNT(*) FROM information_schema.tables WHERE table_name='copy_state'": "0",
	} {
		if got := s.MustValue(t, q); got != want {
			t.Errorf("%s: %q, want %q", q, got, want)
		}
	}
	follow(t, m, s)
	if n := stop(); n < 10 {
		t.Fatalf("only %d transactions were written meanwhile", n)
	}
	caughtUp(t, m, s)
	sameContent(t, m, s)
	// What arrives later must still find its account and its role there.
	m.MustExec(t, "ALTER USER app@'%' IDENTIFIED BY 'new'", "REVOKE reader FROM app@'%'", "DROP ROLE reader", "DROP USER tls@'10.%'", "DROP EVENT app.ev", "CALL app.p(7)")
	caughtUp(t, m, s)
	sameContent(t, m, s)
}

func TestCaseA5CopyNeverReplacesForeignDataUnasked(t *testing.T) {
	m, s := pair(t)
	m.MustExec(t, "CREATE DATABASE app", "CREATE TABLE app.keep (id INT PRIMARY KEY)", "INSERT INTO app.keep VALUES (1)")
	s.MustExec(t, "CREATE DATABASE app", "CREATE TABLE app.keep (id INT PRIMARY KEY)", "INSERT INTO app.keep VALUES (900),(901),(902)",
		"CREATE DATABASE other", "CREATE TABLE other.x (id INT PRIMARY KEY)")
	before := s.MustValue(t, "SELECT @@gtid_binlog_state")
	_, err := copier(m, s).Run(t.Context())
	f := fault.As(err)
	if err == nil || f.Kind != fault.Refused || f.Code != "foreign_data" || !strings.Contains(f.Cause, "app") || !strings.Contains(f.Cause, "other") {
		t.Fatalf("got %v", err)
	}
	if n := s.MustValue(t, "SELECT COUNT(*) FROM app.keep"); n != "3" {
		t.Fatalf("%s rows are left of 3", n)
	}
	if after := s.MustValue(t, "SELECT @@gtid_binlog_state"); after != before {
		t.Fatalf("binary log went from %s to %s", before, after)
	}
	if v := s.MustValue(t, "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name='repld'"); v != "0" {
		t.Fatal("a refused copy left a schema")
	}
	c := copier(m, s)
	c.Replace = true
	if _, err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v := s.MustValue(t, "SELECT @@gtid_binlog_state"); v != "" {
		t.Errorf("binary log state %q is left", v)
	}
	follow(t, m, s)
	sameContent(t, m, s)
}

func TestCopyThatWasKilledIsSaidAndMadeAnew(t *testing.T) {
	m, s := pair(t)
	furnish(t, m, 60000)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := copier(m, s)
	c.Progress = func(p Progress) {
		if p.Phase == "copy" && p.Bytes > 1<<20 {
			cancel()
		}
	}
	_, err := c.Run(ctx)
	f := fault.As(err)
	if err == nil || f.Code != "copy_cancelled" || !strings.Contains(f.State, "incomplete copy") {
		t.Fatalf("got %v", err)
	}
	conn, err := mysql.Dial(t.Context(), endpoint(s).Target)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	st, err := mysql.ReadCopyState(t.Context(), conn)
	if err != nil || st == nil || st.Failed == "" || st.ClusterID != "c1" {
		t.Fatalf("state %+v, %v", st, err)
	}
	if v := s.MustValue(t, "SELECT @@gtid_slave_pos"); v != "" {
		t.Fatalf("a broken copy stands at %s", v)
	}
	if v := s.MustValue(t, "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name='app'"); v != "1" {
		t.Fatal("the test did not interrupt the copy in its middle")
	}
	// Half a copy is no foreign data; what somebody added since is.
	s.MustExec(t, "SET sql_log_bin=0", "CREATE DATABASE mine", "CREATE TABLE mine.x (id INT)")
	if _, err := copier(m, s).Run(t.Context()); fault.As(err).Code != "foreign_data" || strings.Contains(fault.As(err).Cause, "app") {
		t.Fatalf("got %v", err)
	}
	s.MustExec(t, "SET sql_log_bin=0", "DROP DATABASE mine")
	if _, err := copier(m, s).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	follow(t, m, s)
	sameContent(t, m, s)
}

func TestCopyIsMadeAnewWhenTheSchemaChangesMeanwhile(t *testing.T) {
	m, s := pair(t)
	furnish(t, m, 30000)
	c := copier(m, s)
	changed := false
	c.Progress = func(p Progress) {
		if p.Phase == "copy" && !changed {
			changed = true
			m.MustExec(t, "CREATE PROCEDURE app.late() SET @x=1", "CREATE USER late@'%' IDENTIFIED BY 'z'", "INSERT INTO app.plain VALUES (2,'two')")
		}
	}
	out, err := c.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if out.Attempts != 2 {
		t.Errorf("%d attempts, want 2", out.Attempts)
	}
	follow(t, m, s)
	sameContent(t, m, s)
}

func TestCopyFailsWithTheProgramsOwnWords(t *testing.T) {
	m, s := pair(t)
	furnish(t, m, 10)
	m.MustExec(t, "CREATE USER weak@localhost IDENTIFIED BY 'w'", "GRANT SELECT ON mysql.* TO weak@localhost", "GRANT SELECT ON app.t TO weak@localhost")
	c := copier(m, s)
	c.From.Target.User, c.From.Target.Password = "weak", "w"
	_, err := c.Run(t.Context())
	if err == nil {
		t.Fatal("a dump by an account without privileges passed")
	}
	if f := fault.As(err); f.Cause == "" || strings.Contains(err.Error(), "'w'") {
		t.Fatalf("got %v", err)
	}
	if v := s.MustValue(t, "SELECT @@gtid_slave_pos"); v != "" {
		t.Errorf("slave stands at %s", v)
	}
}

func TestPrintTellsWhatASnapshotDoesNotCover(t *testing.T) {
	p := mysql.Print{"table app.t": "", "view app.v": "1"}
	if c := p.Changed(mysql.Print{"table app.t": "", "view app.v": "1", "table app.new": ""}); len(c) != 0 {
		t.Errorf("a new table counts as a change: %v", c)
	}
	if c := p.Changed(mysql.Print{"view app.v": "2", "event app.e": ""}); len(c) != 3 {
		t.Errorf("want a dropped table, a changed view and a new event, got %v", c)
	}
}

var _ = gtid.GTID{}
