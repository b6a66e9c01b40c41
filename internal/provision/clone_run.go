package provision

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/repld/repld/internal/mysql"
)

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
	if r.Check != nil {
		if err := r.Check(ctx, from); err != nil {
			return Copied{}, err
		}
	}
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
	if r.Before != nil {
		if err := r.Before(ctx, to); err != nil {
			return err
		}
	}
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
	if r.Finishing != nil {
		if err := r.Finishing(ctx, out.At); err != nil {
			return err
		}
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
