package binlog_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/repld/repld/binlog"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/test/mariadb"
)

func TestProgressKnowsTheLagOfASlave(t *testing.T) {
	s := master(t)
	s.MustExec(t, "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY AUTO_INCREMENT)")
	base := now(t, s)
	var notified atomic.Int32
	p := binlog.NewProgress(0, func() { notified.Add(1) })
	if lag := p.Lag(base, time.Now(), time.Second); lag.Known {
		t.Errorf("before the stream: %+v", lag)
	}
	run(t, options(s), binlog.Now(), p)
	mariadb.Eventually(t, soon, func() error {
		if at := p.Snapshot(); !at.Connected || at.Last != base {
			return fmt.Errorf("%+v", at)
		}
		return nil
	})
	if lag := p.Lag(base, time.Now(), time.Second); lag != (binlog.Lag{Known: true}) {
		t.Errorf("a slave that has all: %+v", lag)
	}
	for range 3 {
		s.MustExec(t, "INSERT INTO d.t VALUES (NULL)")
	}
	last := now(t, s)
	mariadb.Eventually(t, soon, func() error {
		if at := p.Snapshot(); at.Last != last || at.Transactions != 3 {
			return fmt.Errorf("%+v", at)
		}
		return nil
	})
	written := time.Now()
	behind := gtid.GTID{Server: 1, Seq: last.Seq - 2}
	lag := p.Lag(behind, written.Add(time.Millisecond), time.Hour)
	if !lag.Known || lag.AtLeast || lag.Transactions != 2 || lag.Bytes == 0 || lag.Age < time.Millisecond || lag.Age > soon {
		t.Errorf("a slave that lacks two: %+v", lag)
	}
	if lag := p.Lag(gtid.GTID{Server: 1, Seq: base.Seq - 1}, written, time.Hour); !lag.AtLeast || lag.Transactions != 3 {
		t.Errorf("a slave that lacks what was never seen: %+v", lag)
	}
	if err := s.Freeze(); err != nil {
		t.Fatal(err)
	}
	mariadb.Eventually(t, soon, func() error {
		if lag := p.Lag(last, time.Now(), 500*time.Millisecond); lag.Known {
			return errors.New("the lag is said to be known though the master is silent")
		}
		return nil
	})
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	mariadb.Eventually(t, soon, func() error {
		if at := p.Snapshot(); at.Connected || !errors.Is(at.Err, binlog.ErrBroken) && !errors.Is(at.Err, binlog.ErrRefused) {
			return fmt.Errorf("%+v", at)
		}
		return nil
	})
	if notified.Load() < 2 {
		t.Errorf("notified %d times", notified.Load())
	}
}

// TestAHugeTransactionIsASignOfLife: while one is sent there are neither
// heartbeats nor transactions.
func TestAHugeTransactionIsASignOfLifeAndTakesNoMemory(t *testing.T) {
	s := master(t, "binlog-format=ROW", "max-allowed-packet=256M", "innodb-log-file-size=512M")
	s.MustExec(t, "CREATE DATABASE d", "CREATE TABLE d.t (b LONGBLOB)")
	p := binlog.NewProgress(0, nil)
	slow := options(s)
	run(t, slow, binlog.Now(), p)
	mariadb.Eventually(t, soon, func() error {
		if !p.Snapshot().Connected {
			return errors.New("not connected")
		}
		return nil
	})
	before := heap()
	s.MustExec(t, "INSERT INTO d.t VALUES (REPEAT('x', 100*1024*1024))")
	mariadb.Eventually(t, soon, func() error {
		if at := p.Snapshot(); at.Last != now(t, s) || at.Bytes < 100<<20 {
			return fmt.Errorf("%+v", at)
		}
		return nil
	})
	if grown := int64(heap()) - int64(before); grown > 16<<20 {
		t.Errorf("the heap grew by %d MiB for a transaction of 100 MiB", grown>>20)
	}
}
