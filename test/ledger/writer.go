package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Server errors after which a commit certainly did not happen.
const (
	errReadOnlyOption = 1290 // the server runs with --read-only
	errReadOnlyMode   = 1836 // the server is in read-only mode
)

// writer is one connection that inserts row after row.
type writer struct {
	ledger *Ledger
	number int
	n      int
	ctx    context.Context

	db       *sql.DB
	conn     *sql.Conn
	addr     string
	serverID uint32
}

func (w *writer) run() {
	defer w.disconnect()
	for !w.ledger.stopping() {
		if w.conn == nil {
			if err := w.connect(); err != nil {
				w.ledger.trouble(err)
				w.disconnect()
				w.ledger.sleep(w.ledger.opts.RetryPause)
				continue
			}
		}
		if w.insert() {
			w.ledger.sleep(w.ledger.opts.Pause)
		} else {
			w.disconnect()
			w.ledger.sleep(w.ledger.opts.RetryPause)
		}
	}
}

// insert writes one row and records what came of it; false if the connection is
// to be given up.
func (w *writer) insert() bool {
	l := w.ledger
	id := l.nextID.Add(1)
	w.n++
	ctx, cancel := context.WithTimeout(w.ctx, l.opts.Timeout)
	defer cancel()
	before := time.Now()
	_, err := w.conn.ExecContext(ctx, "INSERT INTO ledger.`rows` (id, writer, n, payload) VALUES (?, ?, ?, ?)",
		id, w.number, w.n, payload(id, l.opts.Payload))
	after := time.Now()
	if err == nil {
		l.acknowledged(Ack{ID: id, Before: before, After: after, Addr: w.addr, ServerID: w.serverID})
		return true
	}
	var server *mysql.MySQLError
	refused := errors.As(err, &server) && (server.Number == errReadOnlyOption || server.Number == errReadOnlyMode)
	l.failed(id, fmt.Errorf("%s: insert %d: %w", w.addr, id, err), refused)
	return false
}

// payload differs from row to row, so that checksums notice exchanged rows.
func payload(id int64, size int) string {
	s := fmt.Sprintf("row %d ", id)
	return strings.Repeat(s, size/len(s)+1)[:size]
}

// connect finds the server that takes writes and opens the writer's connection.
func (w *writer) connect() error {
	l := w.ledger
	ctx, cancel := context.WithTimeout(w.ctx, l.opts.Timeout)
	defer cancel()
	at := w.number % len(l.opts.Sides)
	side := l.opts.Sides[at]
	l.locate[at].Lock()
	addr, err := side.Locate(ctx)
	l.locate[at].Unlock()
	if err != nil {
		return fmt.Errorf("locate the master: %w", err)
	}
	cfg := login(l.opts.User, l.opts.Password, addr, side.Dial)
	cfg.Timeout, cfg.TLS = l.opts.Timeout, l.opts.TLS
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return err
	}
	// A pool of one connection that is held: database/sql repeats nothing on it.
	w.db, w.addr = sql.OpenDB(connector), addr
	if w.conn, err = w.db.Conn(ctx); err != nil {
		w.conn = nil
		return fmt.Errorf("%s: connect: %w", addr, err)
	}
	if err := w.conn.QueryRowContext(ctx, "SELECT @@server_id").Scan(&w.serverID); err != nil {
		return fmt.Errorf("%s: read server_id: %w", addr, err)
	}
	return nil
}

// login is how an account reaches a server.
func login(user, password, addr string, dial Dialer) *mysql.Config {
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net, cfg.Addr = user, password, "tcp", addr
	cfg.DialFunc = dial
	// One packet a row, not a prepared statement with its second round trip.
	cfg.InterpolateParams = true
	cfg.Logger = &mysql.NopLogger{}
	return cfg
}

func (w *writer) disconnect() {
	if w.conn != nil {
		_ = w.conn.Close() // broken already, as a rule
	}
	if w.db != nil {
		_ = w.db.Close()
	}
	w.conn, w.db = nil, nil
}

// checkGrants refuses an account that read_only does not stop.
func (w *writer) checkGrants() error {
	ctx, cancel := context.WithTimeout(w.ctx, w.ledger.opts.Timeout)
	defer cancel()
	rows, err := w.conn.QueryContext(ctx, "SHOW GRANTS")
	if err != nil {
		return fmt.Errorf("%s: show grants: %w", w.addr, err)
	}
	defer rows.Close()
	for rows.Next() {
		var grant string
		if err := rows.Scan(&grant); err != nil {
			return fmt.Errorf("%s: show grants: %w", w.addr, err)
		}
		words, _, _ := strings.Cut(grant, " ON ")
		for _, bad := range []string{"ALL PRIVILEGES", "SUPER", "READ ONLY ADMIN", "READ_ONLY ADMIN"} {
			if strings.Contains(words, bad) && strings.Contains(grant, " ON *.* ") {
				return fmt.Errorf("%s: account %s has %s and could write to a read-only server", w.addr, w.ledger.opts.User, bad)
			}
		}
	}
	return rows.Err()
}

func (w *writer) highestID() (int64, error) {
	ctx, cancel := context.WithTimeout(w.ctx, w.ledger.opts.Timeout)
	defer cancel()
	var id int64
	err := w.conn.QueryRowContext(ctx, "SELECT COALESCE(MAX(id), 0) FROM ledger.`rows`").Scan(&id)
	if err != nil {
		return 0, fmt.Errorf("%s: read the table: %w", w.addr, err)
	}
	return id, nil
}
