package speed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/ledger"
	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/test/rig"
)

// Planned is what one switchover took. All times begin when a session on the
// old master, which asks for read_only every 2 ms, was first told that it is
// read-only, or was ended: the first thing that a client can notice.
type Planned struct {
	// Open is when the new master was first seen to accept writes, FirstAck when
	// a writer got the first OK from it.
	Open, FirstAck time.Duration
	// Outage is between the last OK of the old master and the first of the new one.
	Outage time.Duration
	// Steps are the steps of the operation in the history.
	Steps []api.Step
}

// Switchovers puts a healthy cluster under load and makes one server after the
// other the master, n times. The error is about the measurement, or that rows
// were lost, servers differ, or a writer met an error other than read-only or a
// closed connection.
func Switchovers(ctx context.Context, r *rig.Rig, n int) ([]*Planned, *ledger.Report, error) {
	if err := ledger.Install(ctx, r.Servers[0]); err != nil {
		return nil, nil, err
	}
	l, err := ledger.Start(ctx, ledger.Options{Locate: ledger.Writable(r.Servers...)})
	if err != nil {
		return nil, nil, err
	}
	defer l.Stop()
	var runs []*Planned
	for i := range n {
		if err := l.WaitCount(ctx, len(l.Acks())+tailRows); err != nil {
			return runs, nil, err
		}
		run, err := switchover(ctx, r, l, r.Servers[i%len(r.Servers)], r.Servers[(i+1)%len(r.Servers)])
		if err != nil {
			return runs, nil, fmt.Errorf("switchover %d: %w\nrepld's log ends:\n%s", i+1, err, r.LogTail(60))
		}
		runs = append(runs, run)
	}
	l.Stop()
	if bad := l.Unexpected(expected); bad != nil {
		return runs, nil, fmt.Errorf("a writer met an error that a switchover does not excuse: %w", bad)
	}
	var report *ledger.Report
	err = mariadb.Wait(ctx, func() error {
		if report, err = l.Compare(ctx, r.Servers); err != nil {
			return err
		}
		return report.Err()
	})
	return runs, report, err
}

// expected tells whether a client has to reckon with an error in a switchover:
// the server is read-only, or the connection was closed, or it is shutting out.
func expected(err error) bool {
	var e *mysql.MySQLError
	if !errors.As(err, &e) {
		return true // the connection ended
	}
	const readOnly, killed, interrupted = 1290, 1927, 1317
	return e.Number == readOnly || e.Number == killed || e.Number == interrupted
}

func switchover(ctx context.Context, r *rig.Rig, l *ledger.Ledger, from, to *mariadb.Server) (*Planned, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := r.WaitStatus(ctx, from.Name+" as a healthy master", func(st *api.Status) bool {
		return st.Health == "healthy" && *st.Master == from.Name
	}); err != nil {
		return nil, err
	}
	closed, err := seen(ctx, from, true)
	if err != nil {
		return nil, err
	}
	opened, err := seen(ctx, to, false)
	if err != nil {
		return nil, err
	}
	ordered := time.Now() // the new master may have been the master before
	if err := r.Ctl(ctx, "switchover", "--to", to.Name, "--yes").Err(); err != nil {
		return nil, err
	}
	ack, err := l.WaitAck(ctx, func(a ledger.Ack) bool { return a.Addr == to.Addr() && a.Before.After(ordered) })
	if err != nil {
		return nil, err
	}
	var last time.Time
	for _, a := range l.Acks() {
		if a.Addr == from.Addr() && a.After.After(last) && a.After.Before(ack.After) {
			last = a.After
		}
	}
	at, open := <-closed, <-opened
	ops, err := r.History(ctx)
	if err != nil {
		return nil, err
	}
	return &Planned{Open: open.Sub(at), FirstAck: ack.After.Sub(at), Outage: ack.After.Sub(last), Steps: ops[0].Steps}, nil
}

// seen tells, once, when a server was first seen read-only or not. A session that
// is ended counts as the server's being closed.
func seen(ctx context.Context, s *mariadb.Server, readOnly bool) (<-chan time.Time, error) {
	conn, err := s.Conn(ctx)
	if err != nil {
		return nil, err
	}
	at := make(chan time.Time, 1)
	go func() {
		defer conn.Close()
		for {
			var now bool
			err := conn.QueryRowContext(ctx, "SELECT @@global.read_only").Scan(&now)
			if err != nil || now == readOnly {
				at <- time.Now()
				return
			}
			time.Sleep(watchEvery)
		}
	}()
	return at, nil
}
