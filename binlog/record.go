package binlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// Recorder keeps what a [Stream] receives; the vault is one. It is asked at
// each connection, on the stream's own goroutine.
type Recorder interface {
	// Begin says what is to be received on a connection that is open, and where it
	// is to be kept. On an error the connection is closed and tried again later.
	Begin(Peer) (Record, error)
}

// Peer is the server that a recording begins from.
type Peer struct {
	Identity topology.Identity
	Version  string
	// ServerAt is its gtid_binlog_pos just before.
	ServerAt gtid.Position
	// Checksums tells whether its events carry one. Without, what is kept cannot
	// be verified after a crash.
	Checksums bool
	// Acknowledge tells the server, if the stream is an acker, that everything up
	// to the end of a transaction is durable. Any goroutine may call it; from when
	// the record's Sink is to be closed it does nothing.
	Acknowledge func(Transaction) error
}

// Record is what is received and kept on one connection.
type Record struct {
	// Sink takes what comes; nil: nothing is kept, and the stream goes on from
	// where it was.
	Sink Sink
	// After is the position after which the server is asked to send. It may lie
	// before Have, so that what is there already, and may not have been
	// acknowledged, is acknowledged again.
	After gtid.Position
	// Have is the last transaction that is durable already: up to it nothing is
	// given to Sink. The stream's [Handler] is told what is new to it all the same.
	Have gtid.GTID
	// Acker makes the connection one whose acknowledgement lets commits return.
	Acker bool
}

// Sink takes the bytes of a log, event by event. One goroutine calls it. After
// an error of it the connection is closed, and Sink with it.
type Sink interface {
	// Format takes the event that describes all that follow it. Where those carry
	// no checksum, its own may be wrong: a server that clears the time of creation
	// in it leaves the checksum as it was (MariaDB 10.11).
	Format(raw []byte) error
	// Append takes the next bytes, as they stand in the log with their checksums:
	// an event, or the next piece of a large one, whose checksum may yet prove
	// wrong. It does not keep p. It may wait for the disk.
	Append(p []byte) error
	// Commit tells that with what was appended tx is complete. ack asks for
	// [Peer].Acknowledge once it is durable.
	Commit(tx Transaction, ack bool) error
	// Abandon drops what was appended since the last Commit.
	Abandon() error
	// Close waits until what was committed is durable, or cannot be any more.
	Close() error
}

// recording is one connection's.
type recording struct {
	Record
	acks *acks
	// described: the event that describes all others was given to the sink.
	described bool
	// open: a transaction is under way; skipping: it is one that Have covers.
	open, skipping bool
	// wanted: the server waits for an acknowledgement of something that belongs to
	// the transaction that is not complete yet. A server that has stopped waiting
	// asks for one of every event.
	wanted bool
}

// take keeps an event, and completes the transaction that ends with it.
func (r *recording) take(e *event, tx Transaction, done bool) error {
	if r.Sink == nil {
		return nil
	}
	if done && e.EventType == evGTID {
		// Only the next one showed where it ends.
		if err := r.complete(tx); err != nil {
			return err
		}
		done = false
	}
	if err := r.follow(e); err != nil {
		return err
	}
	r.wanted = r.wanted || e.ackWanted
	if e.raw != nil && r.keeps(e) {
		if err := r.keep(r.Sink.Append(e.raw)); err != nil {
			return err
		}
	}
	if !done {
		return nil
	}
	return r.complete(tx)
}

// keep marks an error as one of keeping, not of the server.
func (r *recording) keep(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrKeep, err)
}

// follow looks at where an event stands, and keeps format descriptions.
func (r *recording) follow(e *event) error {
	switch e.EventType {
	case evFormat:
		if r.open && !r.skipping {
			// A file ended within a transaction: the server's crash left it unfinished.
			if err := r.keep(r.Sink.Abandon()); err != nil {
				return err
			}
		}
		r.open, r.described = false, true
		return r.keep(r.Sink.Format(e.raw))
	case evGTID:
		id, _, _, err := e.gtidEvent()
		if err != nil {
			return err
		}
		if !r.described {
			return fmt.Errorf("%w: the log begins with %s", errMalformed, e.EventType)
		}
		r.open, r.skipping = true, !r.Have.IsZero() && id.Domain == r.Have.Domain && id.Seq <= r.Have.Seq
		if r.skipping && id.Seq == r.Have.Seq && id != r.Have {
			return fmt.Errorf("%w: the server has %s where %s was received before", ErrDiverged, id, r.Have)
		}
	}
	return nil
}

// keeps tells whether an event stands in the log, belongs into a copy, and is
// not there yet. What the server made up for this connection is known by its
// flag alone: positions may be 0 on events that are real.
func (r *recording) keeps(e *event) bool {
	switch e.EventType {
	case evHeartbeat, evStartEncryption, evFormat:
		return false
	case evRotate, evGTIDList, evCheckpoint:
		// They speak of files of the server, which the copy does not have.
		return false
	}
	return !e.artificial() && r.open && !r.skipping
}

// piece keeps a part of an event that is too large to be held.
func (r *recording) piece(p []byte) error {
	if r.Sink == nil || !r.open || r.skipping {
		return nil
	}
	return r.keep(r.Sink.Append(p))
}

// complete ends the transaction under way.
func (r *recording) complete(tx Transaction) error {
	wanted := r.wanted
	r.open, r.wanted = false, false
	if !r.skipping {
		return r.keep(r.Sink.Commit(tx, wanted))
	}
	if !wanted {
		return nil
	}
	// It is durable, but whether its acknowledgement arrived nobody knows.
	return r.acks.send(tx)
}

// end closes the record: nothing is acknowledged any more, then what was not
// complete is dropped.
func (r *recording) end() error {
	r.acks.close()
	if r.Sink == nil {
		return nil
	}
	return errors.Join(r.Sink.Abandon(), r.Sink.Close())
}

// ackWithin bounds the sending of an acknowledgement.
const ackWithin = 5 * time.Second

// acks sends acknowledgements on the connection that the dump comes by.
type acks struct {
	mu   sync.Mutex
	link *link
}

// send tells the server that everything up to the end of tx is durable: the
// server's packet for it is the magic byte, the position and the file.
func (a *acks) send(tx Transaction) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.link == nil {
		return nil
	}
	b := make([]byte, 4, 4+1+8+len(tx.File)) // head: length, sequence 0
	b = append(b, ackMagic)
	b = binary.LittleEndian.AppendUint64(b, tx.Pos)
	b = append(b, tx.File...)
	n := len(b) - 4
	b[0], b[1], b[2] = byte(n), byte(n>>8), byte(n>>16)
	if err := a.link.sock.SetWriteDeadline(time.Now().Add(ackWithin)); err != nil {
		return fmt.Errorf("acknowledging %s: %w", tx.GTID, err)
	}
	if _, err := a.link.conn.Conn.Conn.Write(b); err != nil {
		// Half of one may be on its way: the connection is of no use any more.
		_ = a.link.sock.Close()
		a.link = nil
		return fmt.Errorf("acknowledging %s: %w", tx.GTID, err)
	}
	return nil
}

// close makes send do nothing.
func (a *acks) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.link = nil
}
