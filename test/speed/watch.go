package speed

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/repld/repld/test/mariadb"
)

// watchEvery is how often a server is looked at: the precision of what is
// measured.
const watchEvery = 2 * time.Millisecond

// watcher looks at the slaves of a killed master, each by a connection that was
// open before: the measurement neither waits for repld nor for a login.
type watcher struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	opened chan *mariadb.Server // the one that is open
	ends   chan ending
	count  int
}

// ending is when a watch ended, and how.
type ending struct {
	at     time.Time
	master bool
	err    error
}

// watch begins to look at the slaves.
func watch(ctx context.Context, slaves []*mariadb.Server) (*watcher, error) {
	conns := make([]*sql.Conn, len(slaves))
	for i, s := range slaves {
		var err error
		if conns[i], err = s.Conn(ctx); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &watcher{cancel: cancel, opened: make(chan *mariadb.Server, 1), ends: make(chan ending, len(slaves)), count: len(slaves)}
	for i, s := range slaves {
		w.wg.Go(func() {
			defer conns[i].Close()
			w.ends <- w.follow(ctx, s, conns[i])
		})
	}
	return w, nil
}

func (w *watcher) close() {
	w.cancel()
	w.wg.Wait()
}

// wait gives when a slave was open, and when the last of the others read from it.
func (w *watcher) wait() (opened, following time.Time, err error) {
	for range w.count {
		e := <-w.ends
		switch {
		case e.err != nil:
			return opened, following, e.err
		case e.master:
			opened = e.at
		case e.at.After(following):
			following = e.at
		}
	}
	if opened.IsZero() {
		return opened, following, errors.New("no slave was opened")
	}
	return opened, following, nil
}

// follow looks at one slave until it is open itself, or reads from the one that is.
func (w *watcher) follow(ctx context.Context, s *mariadb.Server, conn *sql.Conn) ending {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var master *mariadb.Server
	for {
		select {
		case <-ctx.Done():
			return ending{err: fmt.Errorf("%s: neither opened nor following: %w", s.Name, ctx.Err())}
		case <-tick.C:
		}
		if master == nil {
			select {
			case master = <-w.opened:
				w.opened <- master // for the next one
			default:
				var readOnly bool
				if err := conn.QueryRowContext(ctx, "SELECT @@global.read_only").Scan(&readOnly); err != nil {
					return ending{err: fmt.Errorf("%s: %w", s.Name, err)}
				}
				if !readOnly {
					at := time.Now()
					w.opened <- s
					return ending{at: at, master: true}
				}
				continue
			}
		}
		reads, err := readsFrom(ctx, conn, master)
		if err != nil {
			return ending{err: fmt.Errorf("%s: %w", s.Name, err)}
		}
		if reads {
			return ending{at: time.Now()}
		}
	}
}

// readsFrom tells whether the IO thread is connected to the given master.
func readsFrom(ctx context.Context, conn *sql.Conn, master *mariadb.Server) (bool, error) {
	rows, err := conn.QueryContext(ctx, "SHOW SLAVE STATUS")
	if err != nil {
		return false, err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil || !rows.Next() {
		return false, errors.Join(err, rows.Err())
	}
	values := make([]sql.NullString, len(names))
	into := make([]any, len(names))
	for i := range values {
		into[i] = &values[i]
	}
	if err := rows.Scan(into...); err != nil {
		return false, err
	}
	row := map[string]string{}
	for i, n := range names {
		row[n] = values[i].String
	}
	return row["Master_Port"] == fmt.Sprint(master.Port) && row["Slave_IO_Running"] == "Yes", rows.Err()
}
