package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/test/rig"
)

// smallDisk mounts a disk of a size; it is unmounted with the test, or given
// room by the function.
func smallDisk(t *testing.T, size string) (dir string, grow func()) {
	t.Helper()
	dir = t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+size+",mode=1777", "tmpfs", dir).CombinedOutput(); err != nil {
		if os.Getenv("CI") != "" || os.Getuid() == 0 {
			t.Fatalf("mount: %v: %s", err, out)
		}
		t.Skip("NOT TESTED: a full disk needs root to mount one")
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	for _, d := range []string{filepath.Dir(dir), filepath.Dir(filepath.Dir(dir))} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir, func() {
		t.Helper()
		if out, err := exec.Command("mount", "-o", "remount,size=500m", dir).CombinedOutput(); err != nil {
			t.Fatalf("remount: %v: %s", err, out)
		}
	}
}

// fillUp writes large rows to a server until a write is not answered, and gives
// a function that waits for that write.
func fillUp(t *testing.T, s *mariadb.Server) (wait func() error) {
	t.Helper()
	s.MustExec(t, "CREATE DATABASE big", "CREATE TABLE big.rows (id INT AUTO_INCREMENT PRIMARY KEY, data LONGBLOB)")
	db, err := s.DB()
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		done := make(chan error, 1)
		go func() {
			_, err := db.ExecContext(context.Background(), "INSERT INTO big.rows (data) SELECT REPEAT(UUID(), 30000)")
			done <- err
		}()
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(5 * time.Second):
			return func() error {
				select {
				case err := <-done:
					return err
				case <-time.After(2 * patience):
					return errors.New("the write was not answered")
				}
			}
		}
	}
	t.Fatal("the disk is not full yet")
	return nil
}

// The disk of the master's binary log is full: writes hang, reads answer. It is
// alive: nothing is promoted, status names it, and all goes on once there is
// space. Acknowledged rows are all there.
func TestCaseA20_FullBinlogDiskIsNamedAndNoFailover(t *testing.T) {
	disk, grow := smallDisk(t, "24m")
	r := start(t, rig.Options{Servers: 3, ServerConfig: map[string][]string{"db1": {"log-bin=" + disk + "/binlog"}}})
	if err := r.InitAll(within(t)); err != nil {
		t.Fatal(err)
	}
	l := write(t, r)
	db1 := r.Server("db1")
	db1.MustExec(t, "SET GLOBAL binlog_format=ROW")
	wait := fillUp(t, db1)
	st, err := r.WaitStatus(within(t), "the stall in status", func(st *api.Status) bool {
		return strings.Contains(problemCodes(st.Problems), "master_stalled")
	})
	if err != nil {
		t.Fatal(err)
	}
	if *st.Master != "db1" || st.Health != "degraded" || !strings.Contains(st.Problems[0].Text, "free space") {
		t.Errorf("status: %+v", st)
	}
	time.Sleep(5 * time.Second) // longer than hang_timeout: a failover has its chance
	if st := status(t, r); *st.Master != "db1" || st.Epoch != 1 || serverStatus(st, "db1").State != "writable" {
		t.Errorf("status: %+v", st)
	}
	if list, err := r.History(t.Context()); err != nil || list[0].Kind == "failover" {
		t.Errorf("history: %+v, %v", list, err)
	}
	grow()
	if err := wait(); err != nil {
		t.Error(err)
	}
	if err := l.WaitCount(within(t), len(l.Acks())+50); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(problemCodes(status(t, r).Problems), "master_stalled") {
		mariadb.Eventually(t, patience, func() error {
			if codes := problemCodes(status(t, r).Problems); strings.Contains(codes, "master_stalled") {
				return errors.New(codes)
			}
			return nil
		})
	}
	settle(t, r, l)
}

// A global read lock, as backups take it, stalls the master's writes: it is
// named, and no reason for a failover.
func TestAGlobalReadLockIsNamedAndNoFailover(t *testing.T) {
	r := startAll(t, rig.Options{Servers: 2})
	l := write(t, r)
	conn, err := r.Server("db1").Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "FLUSH TABLES WITH READ LOCK"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitStatus(within(t), "the stall in status", func(st *api.Status) bool {
		return strings.Contains(problemCodes(st.Problems), "master_stalled") && *st.Master == "db1" && st.Epoch == 1
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
}

// The disk of one slave's relay log is full: the slave is named and out of the
// race, the others and the master go on, a failover works.
func TestCaseA16_FullRelayDiskStopsNothingElse(t *testing.T) {
	disk, grow := smallDisk(t, "24m")
	r := start(t, rig.Options{Servers: 3, ServerConfig: map[string][]string{"db3": {"relay-log=" + disk + "/relay"}}})
	if err := r.InitAll(within(t)); err != nil {
		t.Fatal(err)
	}
	l := write(t, r)
	slave := r.Server("db3")
	slave.MustExec(t, "STOP SLAVE SQL_THREAD")
	db1 := r.Server("db1")
	db1.MustExec(t, "SET GLOBAL binlog_format=ROW", "CREATE DATABASE big", "CREATE TABLE big.rows (id INT AUTO_INCREMENT PRIMARY KEY, data LONGBLOB)")
	for range 30 {
		if err := db1.Exec(within(t), "INSERT INTO big.rows (data) SELECT REPEAT(UUID(), 30000)"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.WaitStatus(within(t), "the slave named", func(st *api.Status) bool {
		return serverStatus(st, "db3").State == "unreachable" && st.Health == "degraded"
	}); err != nil {
		t.Fatal(err)
	}
	if sr := serverStatus(status(t, r), "db3"); sr.Promotable || !strings.Contains(fmt.Sprint(sr.NotPromotableBecause, sr.Problems), "disk of the relay log") {
		t.Errorf("db3: %+v", sr)
	}
	grow()
	if _, err := r.WaitStatus(within(t), "the slave back", func(st *api.Status) bool {
		return serverStatus(st, "db3").State != "unreachable"
	}); err != nil {
		t.Fatal(err)
	}
	slave.MustExec(t, "START SLAVE SQL_THREAD")
	settle(t, r, l)
}

// The disk of repld's state is full: nothing is begun that cannot be journaled,
// it is said, and goes on by itself.
func TestFullStateDiskHoldsRepldBackAndNothingIsLost(t *testing.T) {
	disk, grow := smallDisk(t, "8m")
	r := start(t, rig.Options{Servers: 3, DataDir: filepath.Join(disk, "data"), Repld: []string{"failover: {block_window: 0s}"}})
	if err := r.InitAll(within(t)); err != nil {
		t.Fatal(err)
	}
	l := write(t, r)
	filler := filepath.Join(disk, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	for block := make([]byte, 4096); err == nil; _, err = f.Write(block) {
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Server("db1").Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.WaitStatus(within(t), "repld held back, or done", func(st *api.Status) bool {
		return strings.Contains(problemCodes(st.Problems), "journal_unwritable") || *st.Master != "db1"
	}); err != nil {
		t.Fatal(err)
	}
	t.Logf("while the disk is full: %s, %s", *status(t, r).Master, status(t, r).Health)
	grow()
	firstAck(t, l, 1)
	if err := r.Server("db1").StartAgain(within(t)); err != nil {
		t.Fatal(err)
	}
	settle(t, r, l)
}
