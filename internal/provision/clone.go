package provision

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/internal/mysql"
)

// Endpoint is one side of a copy: how repld's own connections and the programs
// that it starts reach and enter a server.
type Endpoint struct {
	Target mysql.Target
	// CAFile, CertFile and KeyFile are for the programs; they are needed unless
	// Target names a socket.
	CAFile, CertFile, KeyFile string
}

func (e Endpoint) login() mysql.ClientLogin {
	return mysql.ClientLogin{Address: e.Target.Address, Socket: e.Target.Socket, User: e.Target.User, Password: e.Target.Password,
		CAFile: e.CAFile, CertFile: e.CertFile, KeyFile: e.KeyFile}
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

// copyRun is one attempt.
type copyRun struct {
	*Copier
	attempt int
	// begun is set once the target is about to be changed.
	begun   bool
	state   mysql.CopyState
	dropped []string
	bytes   uint64
}

// once makes one attempt, in an order that matters: nothing on the target is
// touched before the source has shown that it delivers, and the position is set
// last, as the mark that the copy is whole.
func (r *copyRun) once(ctx context.Context) (Copied, error) {
	from, to, done, err := r.dial(ctx)
	if err != nil {
		return Copied{}, err
	}
	defer done()
	r.report(Progress{Phase: "survey", Attempt: r.attempt})
	holdings, err := mysql.Survey(ctx, from)
	if err != nil {
		return Copied{}, err
	}
	holdings.Schemas = slices.DeleteFunc(holdings.Schemas, func(s mysql.SchemaInfo) bool { return r.Only != nil && !slices.Contains(r.Only, s.Name) })
	schemas := names(holdings.Schemas)
	before, accounts, err := mysql.TakePrint(ctx, from, schemas)
	if err != nil {
		return Copied{}, err
	}
	dump, err := mysql.StartDump(ctx, r.From.login(), schemas)
	if err != nil {
		return Copied{}, err
	}
	text, err := beginsWell(dump)
	if err != nil {
		return Copied{}, errors.Join(err, dump.Close())
	}
	out, err := r.load(ctx, from, to, dump, text, schemas, holdings.Bytes())
	if err != nil {
		return Copied{}, err
	}
	after, _, err := mysql.TakePrint(ctx, from, schemas)
	if err != nil {
		return Copied{}, err
	}
	if changed := before.Changed(after); len(changed) > 0 {
		return Copied{}, fmt.Errorf("%s: %w", shorten(changed), errChanged)
	}
	return out, r.complete(ctx, to, accounts, &out)
}

// load makes room on the target and loads the dump there.
func (r *copyRun) load(ctx context.Context, from, to *mysql.Conn, dump *mysql.Dump, text io.Reader, schemas []string, estimate uint64) (Copied, error) {
	at, err := mysql.PositionAt(ctx, from, dump.At)
	if err == nil {
		err = r.makeRoom(ctx, to, schemas)
	}
	if err != nil {
		return Copied{}, errors.Join(err, closeQuietly(dump))
	}
	counted := &countingReader{r: text, report: func(n uint64) {
		r.bytes = n
		r.report(Progress{Phase: "copy", Bytes: n, Estimate: estimate, Attempt: r.attempt})
	}}
	loadErr := mysql.LoadText(ctx, r.To.login(), counted)
	dumpErr := dump.Close()
	switch {
	case loadErr != nil && !dump.Ended():
		// The dump was cut because nobody took it any more.
		return Copied{}, loadErr
	case dumpErr != nil:
		return Copied{}, dumpErr
	case loadErr != nil:
		return Copied{}, loadErr
	}
	return Copied{At: at, Bytes: counted.n, Replaced: r.dropped}, nil
}

// makeRoom drops what the copy replaces and records that it has begun. What it
// may drop is checked here once more, at the last moment before.
func (r *copyRun) makeRoom(ctx context.Context, to *mysql.Conn, schemas []string) error {
	holdings, err := mysql.Survey(ctx, to)
	if err != nil {
		return err
	}
	earlier, err := mysql.ReadCopyState(ctx, to)
	if err != nil {
		return err
	}
	if foreign := foreignSchemas(holdings, earlier); len(foreign) > 0 && !r.Replace {
		return foreignDataFault(r.To.Target.Label(), foreign)
	}
	drop := names(holdings.Schemas)
	drop = slices.DeleteFunc(drop, func(s string) bool { return s == mysql.OwnSchema })
	r.state = mysql.CopyState{ClusterID: r.ClusterID, Source: r.Source, Schemas: union(schemas, drop), Begun: time.Now().UTC()}
	r.begun, r.dropped = true, drop
	if err := mysql.WriteCopyState(ctx, to, r.state); err != nil {
		return err
	}
	return mysql.PrepareCopy(ctx, to, drop)
}

// complete brings what is not in the dump and marks the copy as whole.
func (r *copyRun) complete(ctx context.Context, to *mysql.Conn, accounts mysql.Accounts, out *Copied) error {
	r.report(Progress{Phase: "accounts", Bytes: out.Bytes, Attempt: r.attempt})
	var err error
	if out.Events, err = mysql.DisableEvents(ctx, to); err != nil {
		return err
	}
	if out.Kept, err = mysql.WriteAccounts(ctx, to, accounts, r.Keep); err != nil {
		return err
	}
	return mysql.FinishCopy(ctx, to, out.At)
}

func (r *copyRun) dial(ctx context.Context) (from, to *mysql.Conn, done func(), err error) {
	dial := func(t mysql.Target) (*mysql.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		return mysql.Dial(ctx, t)
	}
	if from, err = dial(r.From.Target); err != nil {
		return nil, nil, nil, err
	}
	if to, err = dial(r.To.Target); err != nil {
		return nil, nil, nil, errors.Join(err, from.Close())
	}
	return from, to, func() { _, _ = from.Close(), to.Close() }, nil
}

// beginsWell reads the beginning of a dump, far enough to know that the source
// delivers; of a short dump, all of it.
func beginsWell(dump io.Reader) (io.Reader, error) {
	buffered := bufio.NewReaderSize(dump, 256<<10)
	if _, err := buffered.Peek(256 << 10); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the dump: %w", err)
	}
	return buffered, nil
}

// closeQuietly ends a dump that is of no use any more; that it was cut is not
// the news.
func closeQuietly(d *mysql.Dump) error {
	_ = d.Close()
	return nil
}

// countingReader counts what passes and reports it a few times per second.
type countingReader struct {
	r      io.Reader
	n      uint64
	report func(uint64)
	last   time.Time
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += uint64(n)
	if now := time.Now(); err != nil || now.Sub(c.last) >= 250*time.Millisecond {
		c.last = now
		c.report(c.n)
	}
	return n, err
}

func names(list []mysql.SchemaInfo) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = s.Name
	}
	return out
}

func union(a, b []string) []string {
	out := slices.Concat(a, b)
	slices.Sort(out)
	return slices.Compact(out)
}

// shorten joins a list for a message, the first few in full.
func shorten(list []string) string {
	const most = 5
	if len(list) <= most {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
}
