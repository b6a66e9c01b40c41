package mysql

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// waitingForAck is how the process list calls a commit that waits for an acker.
const waitingForAck = "Waiting for semi-sync ACK"

// clients are the sessions that can write or wait: all but the server's own
// threads and those of repld's account, unless they wait for an acker: a row of
// repld.cluster on its way would hold read_only up like any other. Streams of
// the binary log are left out as long as commits wait: where
// rpl_semi_sync_master_wait_no_slave is off, the end of the last acker's stream
// answers OK to them all.
const clients = "SELECT ID AS id, COMMAND LIKE 'Binlog Dump%' AS stream, COALESCE(STATE, '') AS state" +
	" FROM information_schema.PROCESSLIST WHERE USER NOT IN ('system user', 'event_scheduler')" +
	" AND (USER <> SUBSTRING_INDEX(USER(), '@', 1) OR STATE LIKE '" + waitingForAck + "%') AND COMMAND NOT IN ('Daemon', 'Slave_IO', 'Slave_SQL', 'Slave_worker')"

// Fence implements [failover.Server].
func (s *Server) Fence(ctx context.Context) error {
	return s.do(ctx, "fence", func(c *effectConn) error { return s.fence(ctx, c) })
}

// fence goes in the one order in which nobody who waits is told OK:
//
//  1. read_only is asked for. It cannot take hold while a commit waits, but
//     while it is pending no new write begins, so that nobody can join a group
//     of commits unseen.
//  2. All connections are killed, never by KILL QUERY, those that wait for the
//     acknowledgement last (see killOnce), until read_only holds.
//  3. Events go off, and what came or survived meanwhile is killed.
//  4. Only then semi-sync goes off, which answers OK to whoever still waits.
func (s *Server) fence(ctx context.Context, c *effectConn) error {
	if err := s.silence(ctx, c, killStreams); err != nil {
		return err
	}
	row, err := c.QueryRow(ctx, "SELECT @@GLOBAL.rpl_semi_sync_master_enabled AS armed")
	if err != nil || !row.Bool("armed") {
		return err
	}
	return c.Exec(ctx, "SET GLOBAL rpl_semi_sync_master_enabled = 0")
}

// streams says what becomes of the sessions that read the binary log.
type streams bool

const (
	killStreams  streams = true
	spareStreams streams = false
)

// silence does steps 1 to 3 of fence: afterwards no client writes or waits.
func (s *Server) silence(ctx context.Context, c *effectConn, of streams) error {
	if err := s.readOnly(ctx, c, of); err != nil {
		return err
	}
	row, err := c.QueryRow(ctx, "SELECT @@GLOBAL.event_scheduler AS events")
	if err != nil {
		return err
	}
	if row.Bool("events") {
		if err := c.Exec(ctx, "SET GLOBAL event_scheduler = OFF"); err != nil {
			return err
		}
	}
	before, err := sessions(ctx, c)
	if err != nil {
		return err
	}
	old := make(map[uint64]bool, len(before))
	for _, x := range before {
		old[x.id] = !x.stream || of == killStreams
	}
	return killUntil(ctx, c, of, func(left []session) bool {
		for _, x := range left {
			if old[x.id] {
				return false
			}
		}
		return !anyWaits(left)
	})
}

// Shut implements [failover.Server]: a fencing that spares the streams, for the
// slaves shall receive the last transactions, and that also keeps privileged
// accounts out, by a global read lock. The lock is held by a connection of its
// own until the next Open or Attach, or until repld ends.
func (s *Server) Shut(ctx context.Context) error {
	return s.do(ctx, "shut", func(c *effectConn) error {
		if err := s.silence(ctx, c, spareStreams); err != nil {
			return err
		}
		s.mu.Lock()
		held := s.lock != nil
		s.mu.Unlock()
		if held {
			return nil
		}
		lock, err := s.connect(ctx)
		if err != nil {
			return err
		}
		if err := lock.Exec(ctx, "FLUSH TABLES WITH READ LOCK"); err != nil {
			s.discard(lock)
			return err
		}
		s.mu.Lock()
		s.lock = lock
		s.mu.Unlock()
		return nil
	})
}

// unlock ends the connection that holds the global read lock, if there is one.
func (s *Server) unlock() {
	s.mu.Lock()
	lock := s.lock
	s.lock = nil
	s.mu.Unlock()
	if lock != nil {
		s.discard(lock)
	}
}

// readOnly asks for read_only on a second connection, and kills on the first
// until it holds.
func (s *Server) readOnly(ctx context.Context, c *effectConn, of streams) error {
	row, err := c.QueryRow(ctx, "SELECT @@GLOBAL.read_only AS ro")
	if err != nil || row.Bool("ro") {
		return err
	}
	second, err := s.connect(ctx)
	if err != nil {
		return err
	}
	result := make(chan error, 1)
	go func() { result <- second.Exec(ctx, "SET GLOBAL read_only = 1") }()
	err = killUntilReadOnly(ctx, c, of, second.facts.ConnectionID, result)
	s.release(second)
	return err
}

// killUntilReadOnly kills as soon as the session that asks for read_only has
// to wait, until it has its answer, which comes by ctx's end at the latest.
func killUntilReadOnly(ctx context.Context, c *effectConn, of streams, asking uint64, result <-chan error) error {
	const waits = "SELECT COALESCE(STATE LIKE 'Waiting for%', 0) AS pending FROM information_schema.PROCESSLIST WHERE ID = ?"
	var failed error
	pending := false
	for {
		select {
		case err := <-result:
			if err != nil && failed != nil {
				return fmt.Errorf("%w (while setting read_only: %w)", err, failed)
			}
			return err
		case <-time.After(2 * time.Millisecond):
		}
		if failed != nil {
			continue
		}
		if !pending {
			var row *Row
			row, failed = c.QueryRow(ctx, waits, asking)
			pending = row != nil && row.Bool("pending")
		}
		if pending {
			failed = killOnce(ctx, c, of)
		}
	}
}

// session is a row of the process list.
type session struct {
	id      uint64
	stream  bool
	waiting bool
}

func sessions(ctx context.Context, c *effectConn) ([]session, error) {
	rows, err := c.Query(ctx, clients)
	if err != nil {
		return nil, err
	}
	out := make([]session, len(rows))
	for i := range rows {
		out[i] = session{id: rows[i].Uint("id"), stream: rows[i].Bool("stream"),
			waiting: strings.HasPrefix(rows[i].String("state"), waitingForAck)}
	}
	return out, nil
}

func anyWaits(list []session) bool {
	for _, x := range list {
		if x.waiting {
			return true
		}
	}
	return false
}

// killOnce kills every client, and streams too if no commit waits. The commit
// that waits for the acknowledgement leads a group: its end lets the others of
// the group go on, and those of them that are not yet killed are told OK. So it
// is killed after them.
func killOnce(ctx context.Context, c *effectConn, of streams) error {
	list, err := sessions(ctx, c)
	if err != nil {
		return err
	}
	waits := anyWaits(list)
	for _, leaders := range []bool{false, true} {
		for _, x := range list {
			if x.waiting != leaders || x.stream && (waits || of == spareStreams) {
				continue
			}
			if err := kill(ctx, c.Conn, x.id); err != nil {
				return err
			}
		}
	}
	return nil
}

// killUntil kills again and again until the sessions that are left satisfy enough.
func killUntil(ctx context.Context, c *effectConn, of streams, enough func(left []session) bool) error {
	for {
		if err := killOnce(ctx, c, of); err != nil {
			return err
		}
		left, err := sessions(ctx, c)
		if err != nil {
			return err
		}
		if enough(left) {
			return nil
		}
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return fmt.Errorf("%s: %d sessions do not end: %w", c.target.Label(), len(left), err)
		}
	}
}
