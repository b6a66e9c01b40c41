package mysql_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/internal/mysql"
	kit "github.com/repld/repld/test/mariadb"
)

// A password may hold anything; the programs must get it unchanged, and nobody
// may read it from their arguments or find it in a file.
func TestClientProgramsGetAnyPasswordAndShowItNowhere(t *testing.T) {
	s := kit.Start(t, kit.Options{Name: "db1", Config: kit.Replicating(1)})
	const password = "s\"e'c\\ret#1 ;=[x]\tend\\"
	s.MustExec(t, "CREATE USER odd@localhost IDENTIFIED BY "+mysql.QuoteString(password), "GRANT ALL ON *.* TO odd@localhost")
	login := mysql.ClientLogin{Socket: s.Socket, User: "odd", Password: password}
	done := make(chan error, 1)
	go func() {
		done <- mysql.LoadText(t.Context(), login, strings.NewReader("SELECT SLEEP(2);\nCREATE DATABASE loaded;\n"))
	}()
	kit.Eventually(t, 5*time.Second, func() error {
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil || !strings.HasPrefix(string(text), "mariadb\x00") {
				continue
			}
			if env, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "environ")); strings.Contains(string(text)+string(env), "c\\ret") {
				t.Error("the password shows in a process' arguments or environment")
			}
			return nil
		}
		return errors.New("the program has not been seen")
	})
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if v := s.MustValue(t, "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name='loaded'"); v != "1" {
		t.Error("the text was not run")
	}
	rows, err := s.Rows(context.Background(), "SHOW BINLOG EVENTS")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if strings.Contains(r["Info"], "loaded") {
			t.Errorf("the load is in the binary log: %s", r["Info"])
		}
	}
	login.Password = "wrong"
	err = mysql.LoadText(t.Context(), login, strings.NewReader("SELECT 1;\n"))
	var p *mysql.ProgramError
	if !errors.As(err, &p) || p.Errno() != 1045 {
		t.Errorf("got %v", err)
	}
	if _, err := mysql.StartDump(t.Context(), mysql.ClientLogin{Address: s.Addr(), User: "odd", Password: password}, []string{"mysql"}); err == nil {
		t.Error("a dump over the network without an authority was started")
	}
}

// A dump whose program dies has no end, and says so although reading it looks
// like reaching its end.
func TestADumpThatIsCutIsNoDump(t *testing.T) {
	s := kit.Start(t, kit.Options{Name: "db1", Config: kit.Replicating(1)})
	s.MustExec(t, "CREATE DATABASE app", "CREATE TABLE app.t (id INT PRIMARY KEY, v TEXT)", "INSERT INTO app.t SELECT seq, REPEAT('x', 500) FROM app.seq_1_to_50000")
	d, err := mysql.StartDump(t.Context(), mysql.ClientLogin{Socket: s.Socket, User: s.AdminUser, Password: s.AdminPassword}, []string{"app"})
	if err != nil {
		t.Fatal(err)
	}
	if d.At.File == "" || d.At.Pos == 0 {
		t.Errorf("place %+v", d.At)
	}
	if _, err := d.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64<<10)
	for err == nil {
		_, err = d.Read(buf)
	}
	if err := d.Close(); err == nil {
		t.Error("a dump of a server that died is taken for whole")
	}
}
