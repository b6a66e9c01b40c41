package binlog_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/repld/repld/binlog"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/test/mariadb"
)

// heap is what the process has ever taken from the system for its heap.
func heap() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapSys
}

// cpu is the processor time that this process's threads have used, as the
// scheduler counts it: getrusage counts in ticks, which a reader that wakes up a
// thousand times a second for microseconds does not fit.
func cpu() time.Duration {
	files, _ := filepath.Glob("/proc/self/task/*/schedstat")
	var sum time.Duration
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has just ended
		}
		var ns int64
		if _, err := fmt.Sscan(string(b), &ns); err == nil {
			sum += time.Duration(ns)
		}
	}
	return sum
}

func benchMaster(b *testing.B) *mariadb.Server {
	b.Helper()
	s := mariadb.Start(b, mariadb.Options{Config: append(mariadb.Replicating(1), "sync-binlog=0", "innodb-flush-log-at-trx-commit=0")})
	s.MustExec(b, replAccount, replGrant, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(200))",
		`CREATE PROCEDURE d.load_for(seconds DOUBLE, pause DOUBLE) BEGIN
			DECLARE until DOUBLE DEFAULT UNIX_TIMESTAMP(SYSDATE(6)) + seconds;
			WHILE UNIX_TIMESTAMP(SYSDATE(6)) < until DO
				INSERT INTO d.t (v) VALUES (REPEAT('v', 150));
				IF pause > 0 THEN DO SLEEP(pause); END IF;
			END WHILE; END`)
	return s
}

func benchStream(b *testing.B, o binlog.Options, start binlog.Start) (*binlog.Progress, *binlog.Stream) {
	b.Helper()
	p := binlog.NewProgress(0, nil)
	s, err := binlog.NewStream(o, start, p)
	if err != nil {
		b.Fatal(err)
	}
	go s.Run(context.Background())
	b.Cleanup(s.Close)
	mariadb.Eventually(b, soon, func() error {
		if at := p.Snapshot(); !at.Connected {
			return fmt.Errorf("not connected: %v", at.Err)
		}
		return nil
	})
	return p, s
}

// BenchmarkFollow tells what it costs to follow a master that commits at a
// steady pace: its transactions come one by one.
func BenchmarkFollow(b *testing.B) {
	s := benchMaster(b)
	p, _ := benchStream(b, options(s), binlog.Now())
	for b.Loop() {
		before, used, began := p.Snapshot(), cpu(), time.Now()
		done := make(chan error, 2)
		for range 2 {
			go func() { done <- s.Exec(context.Background(), "CALL d.load_for(3, 0.0012)") }()
		}
		if err := errors.Join(<-done, <-done); err != nil {
			b.Fatal(err)
		}
		took, after := time.Since(began), p.Snapshot()
		rate := float64(after.Transactions-before.Transactions) / took.Seconds()
		share := 100 * (cpu() - used).Seconds() / took.Seconds()
		b.ReportMetric(rate, "tx/s")
		b.ReportMetric(share, "%core")
		b.ReportMetric(1000*share/rate, "%core/1000tx/s")
	}
}

// BenchmarkIdle tells what heartbeats cost, for ten clusters at once.
func BenchmarkIdle(b *testing.B) {
	s := benchMaster(b)
	for i := range 10 {
		o := options(s)
		o.ServerID += uint32(i)
		benchStream(b, o, binlog.Now())
	}
	for b.Loop() {
		used, began := cpu(), time.Now()
		time.Sleep(3 * time.Second)
		b.ReportMetric(100*(cpu()-used).Seconds()/time.Since(began).Seconds()/10, "%core/cluster")
	}
}

// BenchmarkCatchUp tells how fast a binary log is read from its beginning.
func BenchmarkCatchUp(b *testing.B) {
	s := benchMaster(b)
	for range 4 {
		s.MustExec(b, "CALL d.load_for(1, 0)")
	}
	s.MustExec(b, "SET @x=1", "INSERT INTO d.t (v) VALUES ('last')")
	last, err := gtid.ParsePosition(s.MustValue(b, "SELECT @@gtid_binlog_pos"))
	if err != nil {
		b.Fatal(err)
	}
	id := uint32(1000)
	for b.Loop() {
		o := options(s)
		id++
		o.ServerID = id
		used, began := cpu(), time.Now()
		p, stream := benchStream(b, o, binlog.After(gtid.Position{}))
		mariadb.Eventually(b, time.Minute, func() error {
			if at := p.Snapshot(); at.Last != last.Of(0) {
				return fmt.Errorf("at %s", at.Last)
			}
			return nil
		})
		took, at := time.Since(began).Seconds(), p.Snapshot()
		stream.Close()
		b.ReportMetric(float64(at.Transactions)/took, "tx/s")
		b.ReportMetric(float64(at.Bytes)/took/1e6, "MB/s")
		b.ReportMetric((cpu()-used).Seconds()*1e6/float64(at.Transactions), "cpu-µs/tx")
	}
}
