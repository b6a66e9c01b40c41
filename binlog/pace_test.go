package binlog_test

import (
	"crypto/tls"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/repld/repld/binlog"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/test/mariadb"
)

// A server encrypts each event by itself, so a reader that pauses before each
// read above TLS falls behind for ever. It must keep up with writers that never
// rest: all is seen soon after the last commit (6,000 transactions at a pause for
// each of their events would take a minute and a half).
func TestTheStreamKeepsUpOverTLS(t *testing.T) {
	dir := t.TempDir()
	good, files := certificate(t, dir, "good", "127.0.0.1", time.Now().Add(time.Hour))
	s := master(t, files...)
	s.MustExec(t, "CREATE USER tls@'%' IDENTIFIED BY 'secret' REQUIRE SSL", "GRANT REPLICATION SLAVE ON *.* TO tls@'%'",
		"CREATE DATABASE p", "CREATE TABLE p.t (id INT AUTO_INCREMENT PRIMARY KEY)", "SET GLOBAL sync_binlog = 0",
		"SET GLOBAL innodb_flush_log_at_trx_commit = 0")
	o := options(s)
	o.User, o.TLS = "tls", &tls.Config{RootCAs: good}
	var r recorder
	run(t, o, binlog.Now(), &r)
	mariadb.Eventually(t, soon, r.connectedTimes(1))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := s.Exec(t.Context(), "BEGIN NOT ATOMIC FOR i IN 1..1500 DO INSERT INTO p.t VALUES (); END FOR; END"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	ended, last := time.Now(), now(t, s)
	mariadb.Eventually(t, soon, r.has(last))
	seen := r.transactions()
	if late := seen[len(seen)-1].At.Sub(ended); late > 5*time.Second {
		t.Errorf("the last of %d transactions was seen %v after it was committed", len(seen), late)
	}
	if want, err := gtid.Parse(last.String()); err != nil || seen[len(seen)-1].GTID != want {
		t.Error(fmt.Errorf("the last one seen is %s, not %s: %w", seen[len(seen)-1].GTID, want, err))
	}
}
