package mysql

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"time"
)

// ErrManaged is wrapped by [TakeLock] if another repld holds the cluster.
var ErrManaged = errors.New("managed by another repld")

// lockPoll is how often the end of a killed session is looked for.
const lockPoll = 2 * time.Millisecond

// Lock is a cluster's named lock on one server, held by one open session. The
// server frees it when the session ends, whatever ends it.
type Lock struct {
	conn     *Conn
	id       uint64
	name     string
	sessions *Sessions
}

// lockName fits the server's limit of 64 characters.
func lockName(parts ...string) string {
	name := "repld"
	for _, p := range parts {
		name += "/" + p
	}
	if len(name) <= 64 {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "repld/" + hex.EncodeToString(sum[:24])
}

// TakeLock takes the lock of a cluster for one instance of repld. Two names are
// taken on one session: the cluster's, and the instance's own, so that a
// session which a crashed process of the same instance left behind is told
// from another repld: the former is killed, the latter is an error that wraps
// [ErrManaged]. A session that comes from another host is never ours.
func TakeLock(ctx context.Context, t Target, clusterID, instance string, sessions *Sessions) (*Lock, error) {
	c, err := Dial(ctx, t)
	if err != nil {
		return nil, err
	}
	l := &Lock{conn: c, name: lockName(clusterID), sessions: sessions}
	if err := l.take(ctx, lockName(clusterID, instance)); err != nil {
		_ = c.Close()
		return nil, err
	}
	sessions.add(l.id)
	return l, nil
}

func (l *Lock) take(ctx context.Context, mine string) error {
	for range 2 {
		row, err := l.conn.QueryRow(ctx, "SELECT CONNECTION_ID() AS id, GET_LOCK(?, 0) AS mine, GET_LOCK(?, 0) AS cluster", mine, l.name)
		if err != nil {
			return err
		}
		l.id = row.Uint("id")
		if row.Bool("mine") && row.Bool("cluster") {
			return nil
		}
		if err := l.evict(ctx, mine); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s: the lock of the cluster is taken again and again: %w", l.conn.target.Label(), ErrManaged)
}

// evict ends the session that holds the lock if it is one of this instance's,
// left by an earlier process.
func (l *Lock) evict(ctx context.Context, mine string) error {
	row, err := l.conn.QueryRow(ctx, "SELECT IS_USED_LOCK(?) AS cluster, IS_USED_LOCK(?) AS mine,"+
		" (SELECT HOST FROM information_schema.PROCESSLIST WHERE ID = IS_USED_LOCK(?)) AS holder,"+
		" (SELECT HOST FROM information_schema.PROCESSLIST WHERE ID = CONNECTION_ID()) AS self", l.name, mine, l.name)
	if err != nil {
		return err
	}
	holder := row.Uint("cluster")
	if holder == 0 || holder == l.id {
		return l.evictMine(ctx, row)
	}
	if holder != row.Uint("mine") || hostPart(row.String("holder")) != hostPart(row.String("self")) || l.sessions.has(holder) {
		return fmt.Errorf("%s: %w: session %d from %s holds the cluster's lock", l.conn.target.Label(), ErrManaged, holder, row.String("holder"))
	}
	return l.end(ctx, holder)
}

// evictMine is for a holder of the instance's name alone: a process that died
// between the two, or the one that is being killed.
func (l *Lock) evictMine(ctx context.Context, row *Row) error {
	if id := row.Uint("mine"); id != 0 && id != l.id && !l.sessions.has(id) {
		return l.end(ctx, id)
	}
	return nil
}

// end kills a session and waits until its locks are free.
func (l *Lock) end(ctx context.Context, id uint64) error {
	if err := kill(ctx, l.conn, id); err != nil {
		return err
	}
	for {
		row, err := l.conn.QueryRow(ctx, "SELECT ID AS id FROM information_schema.PROCESSLIST WHERE ID = ?", id)
		if err != nil || row == nil {
			return err
		}
		if err := pause(ctx, lockPoll); err != nil {
			return fmt.Errorf("%s: session %d does not end: %w", l.conn.target.Label(), id, err)
		}
	}
}

// hostPart is the host of host:port, as the process list has it.
func hostPart(s string) string {
	host, _, err := net.SplitHostPort(s)
	if err != nil {
		return s
	}
	return host
}

// Check asks whether the lock is still held; an error means that it is not, or
// that the server cannot be asked.
func (l *Lock) Check(ctx context.Context) error {
	row, err := l.conn.QueryRow(ctx, "SELECT COALESCE(IS_USED_LOCK(?) = CONNECTION_ID(), 0) AS held", l.name)
	if err != nil {
		return err
	}
	if !row.Bool("held") {
		return fmt.Errorf("%s: the cluster's lock is lost: %w", l.conn.target.Label(), ErrManaged)
	}
	return nil
}

// Close gives the lock back.
func (l *Lock) Close() error {
	l.sessions.drop(l.id)
	return l.conn.Close()
}
