package binlog

import (
	"time"

	"github.com/repld/repld/internal/gtid"
)

// Transaction is one transaction of the binary log, seen to its end: an event
// group from its GTID event to its XID event, its COMMIT or ROLLBACK, its XA
// PREPARE, or, standing alone, its one statement.
type Transaction struct {
	GTID  gtid.GTID
	Flags Flags
	// CommitID is equal for the transactions of one group commit; 0 if the
	// transaction was committed by itself.
	CommitID uint64
	// At is when repld received the transaction's last bytes, on its own clock.
	At time.Time
	// Written is the server's timestamp of the transaction's first event, in
	// whole seconds: good for people, too coarse for lag.
	Written time.Time
	// Began is the same of the event after it, the beginning of the transaction's
	// first statement: replication keeps it, other than Written.
	Began time.Time
	// File and Pos are where the transaction ends in the master's binary log,
	// Start where it begins.
	File       string
	Start, Pos uint64
	// Bytes is the size of its events, Events their number.
	Bytes  uint64
	Events int
}

// grouper bounds transactions. It is pure: events in, transactions out.
type grouper struct {
	file string
	pos  uint64
	// open is true between a GTID event and the end of its group.
	open bool
	tx   Transaction
	// torn counts groups that were cut off by the end of a file: what a crash
	// left unfinished there. Nobody applies them.
	torn int
}

// add takes the next event, received at the given time. It returns true with
// the transaction that is complete by it.
func (g *grouper) add(e *event, at time.Time) (Transaction, bool, error) {
	switch e.EventType {
	case evHeartbeat:
		return Transaction{}, false, nil
	case evRotate:
		return Transaction{}, false, g.rotate(e)
	}
	if e.artificial() {
		return Transaction{}, false, nil
	}
	g.advance(e)
	begin := g.pos - uint64(e.EventSize)
	switch e.EventType {
	case evFormat:
		g.tear()
		return Transaction{}, false, nil
	case evGTID:
		// Within a file groups are whole and never interleaved: the next one ends
		// the one before, should its last event have been of a kind unknown here.
		tx, done := g.finish(begin, at)
		return tx, done, g.begin(e, begin)
	}
	if !g.open {
		return Transaction{}, false, nil
	}
	if g.tx.Events == 1 {
		g.tx.Began = time.Unix(int64(e.Timestamp), 0)
	}
	g.tx.Bytes += uint64(e.EventSize)
	g.tx.Events++
	if g.tx.Flags.Has(FlagStandalone) && e.prelude() || !g.tx.Flags.Has(FlagStandalone) && !e.closes() {
		return Transaction{}, false, nil
	}
	tx, done := g.finish(g.pos, at)
	return tx, done, nil
}

func (g *grouper) finish(end uint64, at time.Time) (Transaction, bool) {
	if !g.open {
		return Transaction{}, false
	}
	g.open = false
	g.tx.Pos, g.tx.At = end, at
	return g.tx, true
}

func (g *grouper) begin(e *event, begin uint64) error {
	id, flags, commit, err := e.gtidEvent()
	if err != nil {
		return err
	}
	g.open = true
	g.tx = Transaction{
		GTID: id, Flags: flags, CommitID: commit,
		Written: time.Unix(int64(e.Timestamp), 0),
		File:    g.file, Start: begin,
		Bytes: uint64(e.EventSize), Events: 1,
	}
	return nil
}

// rotate follows to the next file. The server announces each file twice: at the
// end of the one before and, artificially, at its beginning.
func (g *grouper) rotate(e *event) error {
	file, pos, err := e.rotateEvent()
	if err != nil {
		return err
	}
	if file != g.file {
		g.tear()
	}
	g.file, g.pos = file, pos
	return nil
}

// advance moves the position past the event. Events carry where they end, but
// only in 32 bits, and from MariaDB 11.4 on those inside a transaction carry 0.
func (g *grouper) advance(e *event) {
	next := g.pos + uint64(e.EventSize)
	if e.LogPos == 0 || uint32(next) == e.LogPos {
		g.pos = next
		return
	}
	// Events before the start position were skipped.
	g.pos = uint64(e.LogPos)
}

func (g *grouper) tear() {
	if g.open {
		g.torn++
	}
	g.open = false
}
