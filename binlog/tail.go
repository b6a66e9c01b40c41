package binlog

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/repld/repld/internal/gtid"
)

// Tail is what lies behind a position in a server's binary log.
type Tail struct {
	// After is the position behind which the tail was read.
	After gtid.Position
	// Transactions are those of the tail, in the log's order.
	Transactions []Transaction
	// Restarts are the starts of the server process within the tail.
	Restarts []Restart
	// Files are the binary log files that were read.
	Files []string
	// Written is how many bytes were written.
	Written int64
	// Torn counts groups that a crash left unfinished at the end of a file; they
	// are in the bytes written, not among the transactions.
	Torn int
}

// Restart is a start of the server process: what stands before it was written
// before the server died or was stopped.
type Restart struct {
	// Before is the index of the first transaction after the start; it is the
	// number of transactions if none followed, and 0 if the start lies between the
	// position and the first transaction.
	Before int
	// File is the file that the starting process began.
	File string
}

// BeforeRestart are the transactions that stand before the first restart; all
// if there was none.
func (t *Tail) BeforeRestart() []Transaction {
	if len(t.Restarts) == 0 {
		return t.Transactions
	}
	return t.Transactions[:t.Restarts[0].Before]
}

// ReadTail reads everything that follows a position up to the present end of
// the server's binary log, and writes it to w as one binary log file, as
// mariadb-binlog reads it: each event byte by byte as the server has it, with its
// checksum. The caller syncs and closes w.
//
// It is never an acker and it registers no server_id: it disturbs no other
// stream, and no commit that waits on the server is told OK because of it.
//
// On an error it returns what it has read so far along with it. An error of the
// server that says that the position is unknown to it wraps [ErrNotInBinlog],
// [ErrDiverged] or [ErrPurged].
func ReadTail(ctx context.Context, o Options, after gtid.Position, w io.Writer) (*Tail, error) {
	t := &tailer{tail: Tail{After: after}, w: w}
	o, err := o.withDefaults()
	if err != nil {
		return &t.tail, err
	}
	l, err := connect(ctx, o)
	if err != nil {
		return &t.tail, err
	}
	defer l.close()
	d, err := l.dump(request{after: after, noWait: true, keep: keepAll})
	if err != nil {
		return &t.tail, err
	}
	for {
		e, err := d.next()
		if errors.Is(err, errEnd) {
			t.tail.Torn = t.torn
			return &t.tail, nil
		}
		if err != nil {
			return &t.tail, fail(o, verbRead, l.reason(ctx, err))
		}
		if err := t.add(e, d); err != nil {
			return &t.tail, fail(o, verbRead, err)
		}
	}
}

// tailer collects a tail.
type tailer struct {
	grouper
	tail Tail
	w    io.Writer
	// announced is the file that the one before named as its successor when it
	// was rotated. A file whose server died or was stopped names none.
	announced string
}

func (t *tailer) add(e *event, d *dump) error {
	before := t.file
	tx, done, err := t.grouper.add(e, d.receivedAt())
	if err != nil {
		return err
	}
	if done {
		t.tail.Transactions = append(t.tail.Transactions, tx)
	}
	switch e.EventType {
	case evRotate:
		t.rotated(e, before)
	case evFormat:
		if err := t.format(e); err != nil {
			return err
		}
	}
	return t.write(e)
}

func (t *tailer) rotated(e *event, before string) {
	if !e.artificial() {
		t.announced = t.file
		return
	}
	if before != t.file || len(t.tail.Files) == 0 {
		t.tail.Files = append(t.tail.Files, t.file)
	}
	if n := len(t.tail.Files); n > 1 && t.announced != t.file {
		t.restart()
	}
}

// format takes the beginning of a file. The server itself clears the time of
// creation where the file begins before the position asked for.
func (t *tailer) format(e *event) error {
	_, created, err := e.formatEvent()
	if err != nil {
		return err
	}
	if created != 0 {
		t.restart()
	}
	return nil
}

// restart notes a start of the server, once for each file: two signs tell of
// it, either of which counts, because a restart that is missed could make a
// transaction look unacknowledged that was acknowledged.
func (t *tailer) restart() {
	if n := len(t.tail.Restarts); n > 0 && t.tail.Restarts[n-1].File == t.file {
		return
	}
	t.tail.Restarts = append(t.tail.Restarts, Restart{Before: len(t.tail.Transactions), File: t.file})
}

// write copies what stands in the log: not what the server made up for this
// connection, and not the key of an encrypted log, which arrives in clear.
func (t *tailer) write(e *event) error {
	if e.artificial() || e.EventType == evHeartbeat || e.EventType == evStartEncryption {
		return nil
	}
	if t.tail.Written == 0 {
		if e.EventType != evFormat {
			return fmt.Errorf("%w: the log begins with %s", errMalformed, e.EventType)
		}
		if err := t.put(replication.BinLogFileHeader); err != nil {
			return err
		}
	}
	return t.put(e.raw)
}

func (t *tailer) put(b []byte) error {
	n, err := t.w.Write(b)
	t.tail.Written += int64(n)
	if err != nil {
		return fmt.Errorf("writing the copy: %w", err)
	}
	return nil
}
