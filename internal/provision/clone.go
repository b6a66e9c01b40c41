package provision

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/internal/mysql"
)

// Endpoint is one side of a copy: how repld's own connections and the programs
// that it starts reach and enter a server.
type Endpoint struct {
	Target mysql.Target
	// CAFile, or CAPEM as text, is the authority for the programs, and CertFile and
	// KeyFile the client pair; they are needed unless Target names a socket.
	CAFile, CertFile, KeyFile string
	CAPEM                     []byte
}

func (e Endpoint) login() mysql.ClientLogin {
	return mysql.ClientLogin{Address: e.Target.Address, Socket: e.Target.Socket, User: e.Target.User, Password: e.Target.Password,
		CAFile: e.CAFile, CAPEM: e.CAPEM, CertFile: e.CertFile, KeyFile: e.KeyFile}
}

// Progress is how far a copy has come.
type Progress struct {
	// Phase is survey, copy, accounts or done.
	Phase string
	// Bytes of the dump that were loaded; Estimate is the server's own estimate of
	// what it holds, index included, from which the dump's length differs.
	Bytes, Estimate uint64
	// Attempt counts from 1.
	Attempt int
}

// Copier makes one server's data that of another, over the network, while the
// other one goes on writing: schemas with all that belongs to them, accounts,
// and the position from which replication continues. Nothing of it enters the
// target's binary log, whose old content is dropped at the end.
//
// A copy that ends early, by whatever, leaves the target with a record of what
// was begun ([mysql.CopyState]); the next one starts anew and replaces exactly
// that.
type Copier struct {
	From, To Endpoint
	// ClusterID and Source go into the record on the target.
	ClusterID, Source string
	// Only limits the copy to these schemas; nil means all.
	Only []string
	// Replace allows to drop schemas of the target that no earlier copy made.
	Replace bool
	// Check is called first of all, with the connection to the source; it may be nil.
	Check func(context.Context, *mysql.Conn) error
	// Before is called right before the target is changed for the first time, when
	// the source has shown that it delivers; an error ends the copy. It may be nil.
	Before func(context.Context, *mysql.Conn) error
	// Finishing is called with the copy's position right before the target is
	// marked as whole; an error ends the copy, unfinished. It may be nil.
	Finishing func(context.Context, gtid.Position) error
	// Keep names the accounts of the target that stay as they are although the
	// source has them too.
	Keep func(user, host string) bool
	// Progress is called now and then, from Run's own goroutine; it may be nil.
	Progress func(Progress)
	Log      *slog.Logger
}

// Copied is the result of a copy.
type Copied struct {
	// At is the position of the copy: replication continues after it.
	At    gtid.Position
	Bytes uint64
	// Kept are accounts of both servers that were left as they are on the target;
	// Events were made not to run there.
	Kept   []mysql.AccountName
	Events []string
	// Replaced are schemas of the target that were dropped.
	Replaced []string
	Attempts int
}

// copyAttempts is how often a copy is made anew by itself: a schema change on
// the source during the copy makes it worthless, and is seldom followed by
// another one.
const copyAttempts = 4

// copyTimeout bounds a whole copy. It is not there for a slow one, but so that
// no statement is without a deadline.
const copyTimeout = 14 * 24 * time.Hour

// errChanged is wrapped by the failure of a copy during which something that no
// snapshot covers was changed on the source.
var errChanged = errors.New("changed on the source during the copy")

// Run makes the copy. Its errors are faults that say what the target was left
// as.
func (c *Copier) Run(ctx context.Context) (Copied, error) {
	ctx, cancel := context.WithTimeout(ctx, copyTimeout)
	defer cancel()
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	for attempt := 1; ; attempt++ {
		run := copyRun{Copier: c, attempt: attempt}
		out, err := run.once(ctx)
		if err == nil {
			out.Attempts = attempt
			c.report(Progress{Phase: "done", Bytes: out.Bytes, Attempt: attempt})
			return out, nil
		}
		run.remember(ctx, err)
		if attempt == copyAttempts || !worthAnother(ctx, err) {
			return Copied{}, run.fault(ctx, err)
		}
		c.Log.Warn("copy is made anew", "server", c.To.Target.Label(), "attempt", attempt, "err", err)
		if err := pause(ctx, time.Duration(attempt)*time.Second); err != nil {
			return Copied{}, run.fault(ctx, err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// worthAnother tells whether the same copy may succeed when made again: the
// source's schema changed (1412, 1146, 1049), a deadlock or a lock timeout, or a
// program's connection was lost.
func worthAnother(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	if errors.Is(err, errChanged) {
		return true
	}
	var p *mysql.ProgramError
	if !errors.As(err, &p) {
		return false
	}
	switch p.Errno() {
	case 1412, 1146, 1049, 1205, 1213, 2006, 2013:
		return true
	}
	return false
}

func (c *Copier) report(p Progress) {
	if c.Progress != nil {
		c.Progress(p)
	}
}
