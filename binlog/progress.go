package binlog

import (
	"sync"
	"time"

	"github.com/repld/repld/internal/gtid"
)

// Progress is a [Handler] that keeps what is worth knowing of a master's
// stream: whether it lives, where it is, and how far behind it each slave is.
// It may be used by several goroutines.
type Progress struct {
	domain uint32
	notify func()

	mu   sync.Mutex
	at   Progressed
	ring *Ring
	// heard is when the last byte came in on the present connection.
	heard func() time.Time
}

// Progressed is a snapshot of a [Progress].
type Progressed struct {
	Connected bool
	// Since is when Connected last changed.
	Since time.Time
	// LastEvent is when the server was last heard of by the stream.
	LastEvent time.Time
	// Last is the last transaction seen in the domain, LastTx its time.
	Last   gtid.GTID
	LastTx time.Time
	// File and Pos are where the stream has arrived.
	File string
	Pos  uint64
	// Restarted is when a start of the server was last seen in its log.
	Restarted time.Time
	// Err is why the stream is not connected, nil if it is.
	Err error
	// Transactions and Bytes count what was seen of the domain.
	Transactions, Bytes uint64
}

// NewProgress makes a progress for a domain. notify, which may be nil, is called
// without any lock when the stream connects, breaks, or shows a restart: that is
// what a detector wants to hear of at once.
func NewProgress(domain uint32, notify func()) *Progress {
	if notify == nil {
		notify = func() {}
	}
	return &Progress{domain: domain, notify: notify}
}

// Snapshot is what is known now.
func (p *Progress) Snapshot() Progressed {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.at
	s.LastEvent = p.lastEvent()
	if p.ring != nil {
		s.Transactions, s.Bytes = p.ring.Totals()
	}
	return s
}

// Lag tells how far behind a slave is that has applied up to g, see [LagOf]. A
// position of another domain is unknown; whether g is on the lineage is the
// caller's to judge.
func (p *Progress) Lag(g gtid.GTID, now time.Time, silence time.Duration) Lag {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ring == nil || !g.IsZero() && g.Domain != p.domain {
		return Lag{}
	}
	return LagOf(p.ring, g.Seq, Heard{p.at.Connected, p.lastEvent()}, now, silence)
}

func (p *Progress) lastEvent() time.Time {
	if p.heard != nil {
		if t := p.heard(); t.After(p.at.LastEvent) {
			return t
		}
	}
	return p.at.LastEvent
}

// Connected implements [Handler], as do the others.
func (p *Progress) Connected(c Connected) {
	p.mu.Lock()
	p.at.Connected, p.at.Since, p.at.LastEvent, p.at.Err = true, c.At, c.At, nil
	p.at.File, p.heard = c.File, c.Heard
	if p.ring == nil {
		p.ring = NewRing(c.After.Of(p.domain).Seq, 0)
		p.at.Last = c.After.Of(p.domain)
	}
	p.mu.Unlock()
	p.notify()
}

// Transaction implements [Handler].
func (p *Progress) Transaction(tx Transaction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at.LastEvent, p.at.File, p.at.Pos = tx.At, tx.File, tx.Pos
	if tx.GTID.Domain != p.domain {
		return
	}
	p.at.Last, p.at.LastTx = tx.GTID, tx.At
	p.ring.Add(tx.GTID.Seq, tx.At, tx.Bytes)
}

// Heartbeat implements [Handler].
func (p *Progress) Heartbeat(h Heartbeat) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at.LastEvent, p.at.File, p.at.Pos = h.At, h.File, h.Pos
}

// Rotated implements [Handler].
func (p *Progress) Rotated(r Rotated) {
	p.mu.Lock()
	p.at.LastEvent, p.at.File = r.At, r.File
	if r.Restarted {
		p.at.Restarted = r.At
	}
	p.mu.Unlock()
	if r.Restarted {
		p.notify()
	}
}

// Disconnected implements [Handler].
func (p *Progress) Disconnected(d Disconnected) {
	p.mu.Lock()
	broke := p.at.Connected
	if broke {
		p.at.Since = d.At
	}
	p.at.Connected, p.at.Err = false, d.Err
	p.mu.Unlock()
	if broke {
		p.notify()
	}
}
