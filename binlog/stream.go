package binlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/repld/repld/internal/gtid"
)

// The pause before a reconnect. It starts short, because a master that is just
// restarting should be seen at once, and grows while that is in vain. A
// connection that lasted less than settled counts as in vain too: two streams
// with one server_id would otherwise throw each other out without a pause.
const (
	retryFirst = 20 * time.Millisecond
	retryLast  = time.Second
	settled    = time.Second
)

// Start is where a stream begins.
type Start struct {
	after gtid.Position
	now   bool
}

// After begins with the transaction that follows a position; the empty
// position is the beginning of the log.
func After(p gtid.Position) Start { return Start{after: p} }

// Now begins with the first transaction that is written after the stream is
// connected for the first time.
func Now() Start { return Start{now: true} }

// Stream follows a server's binary log and tells a [Handler] what it sees.
type Stream struct {
	opts     Options
	handler  Handler
	recorder Recorder

	mu    sync.Mutex
	start Start
	// last is the last transaction told of each domain, since start.
	last    map[uint32]gtid.GTID
	link    *link
	closed  bool
	running bool
	cancel  context.CancelCauseFunc
	done    chan struct{}
}

// NewStream prepares a stream; nothing is opened before [Stream.Run].
func NewStream(o Options, start Start, h Handler) (*Stream, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if o.ServerID == 0 {
		return nil, errors.New("binlog: a stream needs a server_id of its own")
	}
	return &Stream{opts: o, handler: h, start: start, last: map[uint32]gtid.GTID{}, done: make(chan struct{})}, nil
}

// Record makes r keep what is received and say where each connection begins.
// It must be called before Run.
func (s *Stream) Record(r Recorder) { s.recorder = r }

// Run follows the log until ctx is done or [Stream.Close] is called, and
// reconnects in between for as long as it takes: whether a failure is final is
// the owner's judgement. It may be called once. When it returns, the connection
// is closed and the handler will not be called any more.
func (s *Stream) Run(ctx context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(ErrClosed)
	s.mu.Lock()
	if s.running || s.closed {
		s.mu.Unlock()
		return
	}
	s.running, s.cancel = true, cancel
	s.mu.Unlock()
	defer close(s.done)

	attempt, pause := 0, retryFirst
	for {
		began, up := time.Now(), false
		err := s.session(ctx, &up)
		over := ctx.Err() != nil
		if over && !up {
			return
		}
		now := time.Now()
		if up {
			attempt = 0
		} else {
			attempt++
		}
		if up && now.Sub(began) >= settled {
			pause = retryFirst
		}
		if errors.Is(err, ErrServerIDClash) {
			pause = retryLast
		}
		d := Disconnected{At: now, Err: err, Attempt: attempt}
		if over {
			d.Err = fail(s.opts, verbRead, ErrClosed)
			s.handler.Disconnected(d)
			return
		}
		d.Retry = now.Add(pause)
		s.handler.Disconnected(d)
		if !sleep(ctx, pause) {
			return
		}
		pause = min(2*pause, retryLast)
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Close closes the connection at once and waits until Run has returned: from
// then on nothing more is read from the server. It must not be called by the
// handler.
func (s *Stream) Close() {
	s.mu.Lock()
	s.closed = true
	if s.link != nil {
		_ = s.link.sock.Close() // Run, which owns the link, releases the rest
	}
	running, cancel := s.running, s.cancel
	s.mu.Unlock()
	if running {
		cancel(ErrClosed)
		<-s.done
	}
}

// Position is the last complete transaction of each domain that was told, over
// the position that the stream began after. It is false as long as a stream
// that begins now has not been connected.
func (s *Stream) Position() (gtid.Position, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.position(), !s.start.now
}

func (s *Stream) position() gtid.Position {
	p := s.start.after
	for _, g := range s.last {
		p = p.With(g)
	}
	return p
}

// begin registers an open link, unless the stream was closed meanwhile, and
// settles where to begin.
func (s *Stream) begin(l *link) (gtid.Position, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return gtid.Position{}, ErrClosed
	}
	s.link = l
	if s.start.now {
		s.start = Start{after: l.last}
	}
	return s.position(), nil
}

func (s *Stream) end(l *link) {
	s.mu.Lock()
	s.link = nil
	s.mu.Unlock()
	l.close()
}

// session is one connection, from the dial to its end. It sets up once the
// server has begun to send.
func (s *Stream) session(ctx context.Context, up *bool) error {
	l, err := connect(ctx, s.opts)
	if err != nil {
		return err
	}
	defer s.end(l)
	told, err := s.begin(l)
	if err != nil {
		return fail(s.opts, verbConnect, err)
	}
	rec, err := s.record(l, told)
	if err != nil {
		return fail(s.opts, verbKeep, err)
	}
	d, err := l.dump(request{after: rec.After, acker: rec.Acker, keep: keepSmall})
	if err == nil {
		d.pass = rec.piece
		err = s.follow(ctx, l, d, rec, up)
	}
	if kept := rec.end(); kept != nil && !errors.Is(err, ErrKeep) && ctx.Err() == nil {
		err = fail(s.opts, verbKeep, fmt.Errorf("%w: %w", ErrKeep, kept))
	}
	return err
}

// record asks the recorder where to begin; without one it is after what was
// told.
func (s *Stream) record(l *link, told gtid.Position) (*recording, error) {
	r := &recording{Record: Record{After: told}, acks: &acks{link: l}}
	if s.recorder == nil {
		return r, nil
	}
	got, err := s.recorder.Begin(Peer{Identity: l.identity, Version: l.version, ServerAt: l.last, Checksums: l.crc, Acknowledge: r.acks.send})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKeep, err)
	}
	if got.Sink != nil {
		r.Record = got
	}
	return r, nil
}

// follow reads events until the connection breaks.
func (s *Stream) follow(ctx context.Context, l *link, d *dump, rec *recording, up *bool) error {
	var g grouper
	told := ""
	for {
		e, err := d.next()
		if err != nil {
			return s.failRead(l.reason(ctx, err))
		}
		tx, done, err := g.add(e, d.receivedAt())
		if err != nil {
			return fail(s.opts, verbRead, err)
		}
		if !*up {
			*up, told = true, g.file
			s.handler.Connected(Connected{At: d.receivedAt(), Identity: l.identity, Version: l.version,
				After: rec.After, ServerAt: l.last, File: g.file, Heard: d.wire.src.lastByte})
		}
		if err := rec.take(e, tx, done); err != nil {
			return s.failRead(err)
		}
		if done && s.advance(tx.GTID) {
			s.handler.Transaction(tx)
		}
		if err := s.tell(e, &g, &told, d.receivedAt()); err != nil {
			return fail(s.opts, verbRead, err)
		}
	}
}

// tell passes on what is not a transaction. told is the last file told of.
func (s *Stream) tell(e *event, g *grouper, told *string, at time.Time) error {
	switch e.EventType {
	case evHeartbeat:
		file, err := e.heartbeatEvent()
		if err != nil {
			return err
		}
		s.handler.Heartbeat(Heartbeat{At: at, File: file, Pos: uint64(e.LogPos)})
	case evFormat:
		_, created, err := e.formatEvent()
		if err != nil {
			return err
		}
		if g.file != *told || created != 0 {
			*told = g.file
			s.handler.Rotated(Rotated{At: at, File: g.file, Restarted: created != 0})
		}
	}
	return nil
}

// failRead tells what could not be kept from what could not be read.
func (s *Stream) failRead(err error) error {
	if errors.Is(err, ErrKeep) {
		return fail(s.opts, verbKeep, err)
	}
	return fail(s.opts, verbRead, err)
}

// advance notes a transaction and tells whether it is new: a record may begin
// before what was told already.
func (s *Stream) advance(g gtid.GTID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.recorder != nil && g.Seq <= s.position().Of(g.Domain).Seq {
		return false
	}
	s.last[g.Domain] = g
	return true
}
