package binlog

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/repld/repld/internal/gtid"
)

// witnessed bounds the transactions that a witness remembers; on the busiest
// master that is minutes.
const witnessed = 1 << 16

// Witness proves, at set-up, that what is written to a server is seen in its
// binary log: open it, write, read the transaction's GTID from the session
// (@@last_gtid), and wait for that.
type Witness struct {
	stream *Stream
	done   chan struct{}

	mu    sync.Mutex
	up    bool
	err   error
	seen  map[gtid.GTID]Transaction
	order []gtid.GTID
	// changed is closed and replaced at each change.
	changed chan struct{}
}

// NewWitness opens a stream from now on. It returns once the server has begun
// to send; close it in any case. If the first connection fails, that is the
// error.
func NewWitness(ctx context.Context, o Options) (*Witness, error) {
	w := &Witness{seen: map[gtid.GTID]Transaction{}, changed: make(chan struct{}), done: make(chan struct{})}
	s, err := NewStream(o, Now(), w)
	if err != nil {
		return nil, err
	}
	w.stream = s
	go func() {
		defer close(w.done)
		s.Run(context.WithoutCancel(ctx)) // Close ends it
	}()
	err = w.wait(ctx, func() (bool, error) { return w.up, w.err })
	if err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Wait waits until the transaction is seen. Within the context's deadline it
// waits out reconnects; after it the error names what was last wrong.
func (w *Witness) Wait(ctx context.Context, g gtid.GTID) (Transaction, error) {
	var tx Transaction
	err := w.wait(ctx, func() (ok bool, err error) {
		tx, ok = w.seen[g]
		return ok, nil
	})
	if err != nil {
		return tx, fmt.Errorf("waiting for %s in the binary log of %s: %w", g, w.stream.opts.Address, err)
	}
	return tx, nil
}

// Close ends the stream.
func (w *Witness) Close() {
	w.stream.Close()
	<-w.done
}

func (w *Witness) wait(ctx context.Context, check func() (bool, error)) error {
	for {
		w.mu.Lock()
		ok, err := check()
		changed, last := w.changed, w.err
		w.mu.Unlock()
		if ok || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), last)
		}
	}
}

func (w *Witness) change(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	close(w.changed)
	w.changed = make(chan struct{})
}

// Connected implements [Handler], as do the others.
func (w *Witness) Connected(Connected) {
	w.change(func() { w.up, w.err = true, nil })
}

// Transaction implements [Handler].
func (w *Witness) Transaction(tx Transaction) {
	w.change(func() {
		if len(w.order) == witnessed {
			delete(w.seen, w.order[0])
			w.order = w.order[1:]
		}
		w.seen[tx.GTID] = tx
		w.order = append(w.order, tx.GTID)
	})
}

// Heartbeat implements [Handler].
func (w *Witness) Heartbeat(Heartbeat) {}

// Rotated implements [Handler].
func (w *Witness) Rotated(Rotated) {}

// Disconnected implements [Handler].
func (w *Witness) Disconnected(d Disconnected) {
	w.change(func() { w.err = d.Err })
}
