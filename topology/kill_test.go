package topology

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/internal/gtid"
)

const writerEnv = "REPLD_TEST_STATE_WRITER"

// TestMain lets the test binary be the process that is killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv(writerEnv); dir != "" {
		if err := write(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// write applies commands for ever and prints the number of each that was
// confirmed.
func write(dir string) error {
	s, err := Open(dir+"/state.db", dir+"/key")
	if err != nil {
		return err
	}
	if s.Cluster("main") == nil {
		if err := s.Apply(CreateCluster{Name: "main", ID: "c"}, PutServer{"main", member(0)},
			FoundEra{Cluster: "main", Master: "db1", Era: gtid.Era{Epoch: 1, Server: 1, First: 1}}); err != nil {
			return err
		}
	}
	for n := s.Cluster("main").MasterSeen.Seq + 1; ; n++ {
		cmds := []Command{NoteSeen{Cluster: "main", GTID: gtid.GTID{Server: 1, Seq: n}}}
		if n%3 == 0 { // with backups going on beside it
			cmds = append(cmds, MarkJoining{"main", "db1", n%2 == 0})
		}
		if err := s.Apply(cmds...); err != nil {
			return err
		}
		fmt.Println(n)
	}
}

// Guarantee: when Apply has returned, SIGKILL at any moment loses nothing, and
// the file opens without a repair.
func TestWhatWasConfirmedSurvivesAKill(t *testing.T) {
	dir := t.TempDir()
	confirmed := uint64(0)
	for round := range 15 {
		last, err := killed(dir, time.Duration(rand.IntN(60_000))*time.Microsecond)
		if err != nil {
			t.Fatal(err)
		}
		confirmed = max(confirmed, last)
		s, err := Open(dir+"/state.db", dir+"/key")
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if got := s.Cluster("main").MasterSeen.Seq; got < confirmed {
			t.Fatalf("round %d: %d was confirmed, the file knows %d", round, confirmed, got)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if confirmed < 15 {
		t.Errorf("only %d changes were confirmed", confirmed)
	}
	t.Logf("%d changes confirmed", confirmed)
}

// killed runs a writer, kills it some time after its first confirmation, and
// gives the last one.
func killed(dir string, after time.Duration) (uint64, error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), writerEnv+"="+dir)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	last, timer := uint64(0), (*time.Timer)(nil)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		n, err := strconv.ParseUint(lines.Text(), 10, 64)
		if err != nil {
			break // cut off in the middle of a line
		}
		last = n
		if timer == nil {
			timer = time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
			defer timer.Stop()
		}
	}
	_ = cmd.Wait()
	if timer == nil {
		return 0, fmt.Errorf("the writer ended by itself: %s", stderr.String())
	}
	return last, nil
}
