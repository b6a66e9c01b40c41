package binlog_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/repld/repld/binlog"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/test/mariadb"
)

// A transaction carries the time of its writing into the binary log of whoever
// replicates it, whatever its kind and the format of the log: by it two
// transactions of one name are told apart.
func TestATransactionHasOneTimeOnAllServers(t *testing.T) {
	for _, format := range []string{"ROW", "STATEMENT", "MIXED"} {
		t.Run(format, func(t *testing.T) {
			m := master(t, "binlog-format="+format, "max-allowed-packet=64M")
			m.MustExec(t, "SET sql_log_bin=0", "GRANT ALL ON *.* TO repl@'%'")
			s := mariadb.Start(t, mariadb.Options{Config: append(mariadb.Replicating(2), "log-slave-updates", "slave-parallel-threads=4", "max-allowed-packet=64M", "slave-max-allowed-packet=64M")})
			s.MustExec(t, "SET sql_log_bin=0", replAccount, replGrant, "SET sql_log_bin=1")
			if err := s.Follow(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			m.MustExec(t, "CREATE DATABASE pace", "CREATE TABLE pace.t (id INT)")
			begun := time.Now()
			m.MustExec(t, kinds...)
			m.MustExec(t, "BEGIN", "INSERT INTO pace.t VALUES (1)", "SELECT SLEEP(1.2)", "INSERT INTO pace.t SELECT SLEEP(1.2)", "COMMIT")
			m.MustExec(t, "INSERT INTO pace.t SELECT SLEEP(1.2)")
			if time.Since(begun) < 3*time.Second {
				t.Fatal("all within one second prove nothing")
			}
			if err := s.CatchUp(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			_, mine := readAll(t, m)
			_, theirs := readAll(t, s)
			times := map[gtid.GTID]time.Time{}
			for _, tx := range theirs {
				times[tx.GTID] = tx.Began
			}
			if len(times) < 40 {
				t.Errorf("only %d transactions to compare", len(times))
			}
			for _, tx := range mine {
				// (What only concerns temporary tables is not in both logs.)
				if at, both := times[tx.GTID]; both && !at.Equal(tx.Began) {
					t.Errorf("%v began at %v, on the slave at %v", tx.GTID, tx.Began, at)
				}
			}
			last := mine[len(mine)-1].GTID
			before := position(t, fmt.Sprintf("0-1-%d", last.Seq-1))
			for _, server := range []*mariadb.Server{m, s} {
				tx, err := binlog.Find(t.Context(), options(server), before, last)
				if err != nil || tx.GTID != last || !tx.Began.Equal(mine[len(mine)-1].Began) {
					t.Errorf("%+v, %v", tx, err)
				}
			}
			if _, err := binlog.Find(t.Context(), options(s), before, gtid.GTID{Server: 1, Seq: last.Seq + 1}); !errors.Is(err, binlog.ErrNotInBinlog) {
				t.Errorf("beyond the end: %v", err)
			}
		})
	}
}

func readAll(t *testing.T, s *mariadb.Server) (*binlog.Tail, []binlog.Transaction) {
	t.Helper()
	tail, _ := readTail(t, options(s), gtid.Position{})
	return tail, tail.Transactions
}
