package mariadb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("REPLD_KIT_TEST_DIR"); dir != "" {
		os.Exit(beKilled(dir))
	}
	goleak.VerifyTestMain(m)
}

func TestAServerIsPlainAndReachable(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	for query, want := range map[string]string{
		"SELECT @@log_bin":                              "0",
		"SELECT @@server_id":                            "1",
		"SELECT @@read_only":                            "0",
		"SELECT @@gtid_strict_mode":                     "0",
		"SELECT @@port":                                 fmt.Sprint(s.Port),
		"SELECT @@bind_address":                         "127.0.0.1",
		"SELECT COUNT(*) FROM mysql.user WHERE user=''": "0",
		"SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name='test'":         "0",
		"SELECT COUNT(*) FROM mysql.global_priv WHERE user='root' AND priv LIKE '%socket%'": "1",
	} {
		if got := s.MustValue(t, query); got != want {
			t.Errorf("%s = %s, want %s", query, got, want)
		}
	}
	password, err := os.ReadFile(s.PasswordFile())
	if err != nil || strings.TrimSpace(string(password)) != s.AdminPassword {
		t.Errorf("password file holds %q (%v)", password, err)
	}
	cmd := exec.Command("mariadb", "--no-defaults", "-h127.0.0.1", "-P"+fmt.Sprint(s.Port), "-u"+s.AdminUser, "-N", "-e", "SHOW GRANTS")
	cmd.Env = append(os.Environ(), "MYSQL_PWD="+s.AdminPassword)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "GRANT ALL PRIVILEGES ON *.*") || !strings.Contains(string(out), "WITH GRANT OPTION") {
		t.Errorf("the administrator's login by TCP: %v: %s", err, out)
	}
}

func TestEachExecHasASessionOfItsOwn(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	s.MustExec(t, "SET sql_log_bin=0", "SET @mine=1")
	conn, err := s.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var left string
	if err := conn.QueryRowContext(t.Context(), "SELECT CONCAT(@@sql_log_bin+0, ' ', COALESCE(@mine, '-'))").Scan(&left); err != nil || left != "1 -" {
		t.Errorf("the next session has %q (%v)", left, err)
	}
	if got := s.MustValue(t, "SELECT CONCAT(@@sql_log_bin+0, ' ', COALESCE(@mine, '-'))"); got != "1 -" {
		t.Errorf("the pool has %q", got)
	}
}

func TestAnonymousAccountsAreThereIfWanted(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{Anonymous: true})
	if got := s.MustValue(t, "SELECT COUNT(*) > 0 FROM mysql.user WHERE user=''"); got != "1" {
		t.Error("no anonymous account")
	}
}

func TestConfigArgsAndDropInsTakeEffect(t *testing.T) {
	t.Parallel()
	k := New(t)
	s, err := k.Prepare(t.Context(), Options{Name: "blue", Config: []string{"server-id=7", "max_connections=20"}, Args: []string{"--log-bin=b"}, Env: []string{"TZ=Asia/Tokyo"}})
	if err != nil {
		t.Fatal(err)
	}
	if s.Running() {
		t.Fatal("a prepared server runs")
	}
	if err := os.WriteFile(s.DropInPath(), []byte("[mariadbd]\nserver-id=8\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.StartAgain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.MustValue(t, "SELECT CONCAT_WS(' ', @@server_id, @@max_connections, @@log_bin_basename, @@system_time_zone)"); got != "8 20 "+s.DataDir+"/b JST" {
		t.Errorf("settings are %s", got)
	}
	if _, err := k.Start(t.Context(), Options{Name: "blue"}); err == nil {
		t.Error("two servers of one name were made")
	}
}

func TestAServerBehindAPrefixIsHandledAsAnyOther(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{Prefix: []string{"nice", "-n", "3"}})
	if err := errors.Join(s.Freeze(), s.Thaw(), s.Restart(t.Context())); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(s.RestartCommand()[0]).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	if f := strings.Fields(rest); len(f) < 17 || f[16] != "3" {
		t.Errorf("the prefix is lost: %s", stat)
	}
	if err := s.Kill(); err != nil || s.Running() {
		t.Error(err)
	}
}

func TestAServerThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	k := New(t)
	_, err := k.Start(t.Context(), Options{Config: []string{"no-such-option=1"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-option") {
		t.Errorf("error is %v, want one that shows the log", err)
	}
}

func TestKillIsACrashAndStartAgainRecovers(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	s.MustExec(t, "CREATE DATABASE app", "CREATE TABLE app.t (id int primary key)", "INSERT INTO app.t VALUES (1)")
	pid := s.Pid()
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if s.Running() || !isGone(pid) {
		t.Fatal("runs after Kill")
	}
	if c, err := net.DialTimeout("tcp", s.Addr(), time.Second); err == nil {
		c.Close()
		t.Error("somebody listens after Kill")
	}
	if err := s.StartAgain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.StartAgain(t.Context()); err == nil {
		t.Error("a running server was started again")
	}
	if got := s.MustValue(t, "SELECT COUNT(*) FROM app.t"); got != "1" {
		t.Errorf("rows after the crash: %s", got)
	}
	if log := s.ErrorLog(); strings.Count(log, "ready for connections") != 2 || !strings.Contains(log, "crash recovery") {
		t.Errorf("the log shows no crash recovery:\n%s", log)
	}
}

func TestFreezeAnswersNothingAndThawGoesOn(t *testing.T) {
	t.Parallel()
	s := Start(t, Options{})
	s.MustExec(t, "DO 1")
	if err := s.Freeze(); err != nil {
		t.Fatal(err)
	}
	if !s.Running() {
		t.Error("a frozen server counts as gone")
	}
	c, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		t.Fatalf("a frozen server refuses connections: %v", err)
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a frozen server sent %d bytes (%v)", n, err)
	}
	if err := s.Thaw(); err != nil {
		t.Fatal(err)
	}
	s.MustExec(t, "DO 1")
	if err := errors.Join(s.Freeze(), s.Kill()); err != nil {
		t.Fatalf("a frozen server cannot be killed: %v", err)
	}
}

func TestTheRestartScriptRestartsAsAServiceManager(t *testing.T) {
	t.Parallel()
	k := New(t)
	s, err := k.Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	restart := func() (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		// With pipes, as a daemon runs it: a server that kept them open would
		// make this wait for ever.
		argv := s.RestartCommand()
		out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
		return string(out), err
	}
	was := s.Pid()
	for _, when := range []string{"running child", "running child of the script"} {
		if err := os.WriteFile(s.DropInPath(), fmt.Appendf(nil, "[mariadbd]\nserver-id=%d\n", was), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := restart(); err != nil {
			t.Fatalf("%s: %v: %s", when, err, out)
		}
		if pid := s.Pid(); pid == 0 || pid == was {
			t.Fatalf("%s: pid is %d, was %d", when, pid, was)
		}
		if got := s.MustValue(t, "SELECT @@server_id"); got != fmt.Sprint(was) {
			t.Errorf("%s: the drop-in is not in effect", when)
		}
		was = s.Pid()
	}
	if err := s.Kill(); err != nil || s.Running() {
		t.Fatalf("the script's server cannot be killed: %v", err)
	}
	if out, err := restart(); err != nil {
		t.Fatalf("killed server: %v: %s", err, out)
	}
	if err := os.WriteFile(s.DropInPath(), []byte("[mariadbd]\nno-such-option\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := restart(); err == nil || !strings.Contains(out, "no-such-option") {
		t.Errorf("bad configuration: %v: %s", err, out)
	}
	if err := os.Remove(s.DropInPath()); err != nil {
		t.Fatal(err)
	}
	if out, err := restart(); err != nil {
		t.Fatalf("after the repair: %v: %s", err, out)
	}
	if err := s.Stop(t.Context()); err != nil || s.Running() {
		t.Errorf("the script's server cannot be stopped: %v", err)
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	t.Parallel()
	k, err := NewKit(folder(t))
	if err != nil {
		t.Fatal(err)
	}
	servers, err := k.StartAll(t.Context(), Options{}, Options{})
	if err != nil {
		t.Fatal(errors.Join(err, k.Close()))
	}
	argv := servers[1].RestartCommand()
	if out, err := exec.Command(argv[0]).CombinedOutput(); err != nil {
		t.Errorf("restart: %v: %s", err, out)
	}
	// A restart that has just begun must not bring a server back.
	late := exec.Command(argv[0])
	if err := late.Start(); err != nil {
		t.Error(err)
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	_ = late.Wait()
	assertNothingLeft(t, k.Dir, servers[0].marker(), servers[1].marker())
	if err := k.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestNothingIsLeftWhenTheTestProcessIsKilled(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), "REPLD_KIT_TEST_DIR="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var kit, one, two string
	if _, err := fmt.Fscanln(out, &kit, &one, &two); err != nil {
		t.Fatal(err)
	}
	if len(findProcesses(one)) != 1 || len(findProcesses(two)) != 1 {
		t.Fatal("the servers do not run")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	assertNothingLeft(t, kit, one, two)
}

// beKilled is the other process: it starts a server by itself and one by the
// restart script, says so, and waits for its end.
func beKilled(dir string) int {
	k, err := NewKit(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	servers, err := k.StartAll(context.Background(), Options{}, Options{})
	if err == nil {
		err = exec.Command(servers[1].RestartCommand()[0]).Run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, errors.Join(err, k.Close()))
		return 1
	}
	fmt.Println(k.Dir, servers[0].marker(), servers[1].marker())
	time.Sleep(time.Minute)
	return 1
}

// folder is one that the servers' account may enter, unlike t.TempDir's, and
// with a short name: the path of a socket is limited.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kit-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func assertNothingLeft(t *testing.T, dir string, markers ...string) {
	t.Helper()
	Eventually(t, 10*time.Second, func() error {
		for _, m := range markers {
			if pids := findProcesses(m); len(pids) > 0 {
				return fmt.Errorf("processes %v are left", pids)
			}
		}
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the folder %s is left (%v)", dir, err)
		}
		return nil
	})
}
