package binlog_test

import (
	"bytes"
	"errors"
	"net"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/repld/repld/binlog"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/test/mariadb"
)

// flipping forwards to a server and, while on is set, changes one byte of every
// piece of its answers that contains the mark.
func flipping(t *testing.T, s *mariadb.Server, mark string, on *atomic.Bool) string {
	t.Helper()
	return listen(t, func(c net.Conn) {
		back, err := net.Dial("tcp", s.Addr())
		if err != nil {
			return
		}
		defer func() { _ = back.Close() }()
		done := make(chan struct{})
		go func() {
			defer close(done)
			buf := make([]byte, 64<<10)
			for {
				n, err := c.Read(buf)
				if err != nil {
					_ = back.Close()
					return
				}
				_, _ = back.Write(buf[:n])
			}
		}()
		buf := make([]byte, 64<<10)
		for {
			n, err := back.Read(buf)
			if err != nil {
				break
			}
			if i := bytes.Index(buf[:n], []byte(mark)); i >= 0 && on.Load() {
				buf[i] ^= 0x20
			}
			if _, err := c.Write(buf[:n]); err != nil {
				break
			}
		}
		_ = c.Close()
		<-done
	})
}

// TestADamagedEventIsNotTaken: neither a small one, which is kept, nor a large
// one, which is only passed over. Once the way is sound again the transaction
// is seen, once.
func TestADamagedEventIsNotTaken(t *testing.T) {
	for _, size := range []int{10, 5_000_000} {
		s := master(t, "binlog-format=ROW", "max-allowed-packet=64M")
		s.MustExec(t, "CREATE DATABASE d", "CREATE TABLE d.t (b LONGBLOB)")
		var on atomic.Bool
		o := options(s)
		o.Address = flipping(t, s, "MARK", &on)
		var r recorder
		run(t, o, binlog.After(gtid.Position{}), &r)
		mariadb.Eventually(t, soon, r.has(now(t, s)))
		on.Store(true)
		s.MustExec(t, "INSERT INTO d.t VALUES (CONCAT(REPEAT('x', "+strconv.Itoa(size)+"), 'MARK', REPEAT('x', "+strconv.Itoa(size)+")))")
		mariadb.Eventually(t, soon, r.look(func(r *recorder) error {
			for _, d := range r.lost {
				if errors.Is(d.Err, binlog.ErrCorrupt) {
					return nil
				}
			}
			return errors.New("no damage was told")
		}))
		if err := r.has(now(t, s))(); err == nil {
			t.Errorf("a damaged transaction of %d bytes was taken", size)
		}
		on.Store(false)
		mariadb.Eventually(t, soon, r.has(now(t, s)))
		compare(t, r.transactions(), listed(t, s))
	}
}
