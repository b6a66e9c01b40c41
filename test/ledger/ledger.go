package ledger

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/repld/repld/test/mariadb"
)

// Options say who writes how, and where to.
type Options struct {
	// Writers is the number of connections that write; default 4.
	Writers int
	// User and Password are the account that writes; default the one that
	// [Install] makes. It must not be able to write to a read-only server.
	User, Password string
	// TLS encrypts the connections; nil means in clear text.
	TLS *tls.Config
	// Locate gives the address of the server that takes writes now. It is asked
	// at first and after each error, by one writer at a time.
	Locate func(ctx context.Context) (addr string, err error)
	// Sides are the places where the writers are, shared out among them in turn;
	// default one with Locate that dials from where this process is.
	Sides []Side
	// Timeout bounds each call, default 5 s; a commit that takes longer has an
	// unknown outcome.
	Timeout time.Duration
	// Pause is how long a writer waits after each acknowledged commit; default
	// not at all. RetryPause is how long it waits after an error; default 5 ms.
	Pause, RetryPause time.Duration
	// Payload is the number of bytes of each row's payload; default 100.
	Payload int
}

// Side is a place from which writers reach the servers, or some of them.
type Side struct {
	// Locate is as that of [Options].
	Locate func(ctx context.Context) (addr string, err error)
	// Dial connects from there; nil means from where this process is.
	Dial Dialer
}

// Dialer makes a connection, as that of a net.Dialer does.
type Dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// Ack is a commit that a server acknowledged.
type Ack struct {
	ID int64
	// Before the statement was sent, After the OK was received.
	Before, After time.Time
	// Addr and ServerID are those of the server that said OK.
	Addr     string
	ServerID uint32
}

// Ledger runs writers and remembers what they were told.
type Ledger struct {
	opts    Options
	nextID  atomic.Int64
	firstID int64 // rows up to it were there before the start
	stop    chan struct{}
	wg      sync.WaitGroup
	locate  []sync.Mutex // one for each side

	mu      sync.Mutex
	begun   time.Time
	ended   time.Time
	acks    []Ack
	unknown map[int64]error
	refused int
	last    error // the last error of any writer, for messages
}

// Start starts the writers on a database that [Install] has prepared. It fails
// if the account could write to a read-only server, because then it could not
// tell a fenced server from an open one. Stop it.
func Start(ctx context.Context, opts Options) (*Ledger, error) {
	if opts.Locate != nil {
		opts.Sides = append([]Side{{Locate: opts.Locate}}, opts.Sides...)
	}
	if len(opts.Sides) == 0 || slices.ContainsFunc(opts.Sides, func(s Side) bool { return s.Locate == nil }) {
		return nil, errors.New("ledger: no Locate")
	}
	opts.Writers = cmp.Or(opts.Writers, 4)
	opts.User = cmp.Or(opts.User, User)
	opts.Password = cmp.Or(opts.Password, Password)
	opts.Timeout = cmp.Or(opts.Timeout, 5*time.Second)
	opts.RetryPause = cmp.Or(opts.RetryPause, 5*time.Millisecond)
	opts.Payload = cmp.Or(opts.Payload, 100)
	l := &Ledger{opts: opts, stop: make(chan struct{}), unknown: map[int64]error{}, locate: make([]sync.Mutex, len(opts.Sides))}
	if err := l.begin(ctx); err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	l.begun = time.Now()
	for i := range opts.Writers {
		// The writers outlive ctx, which bounds only the start: Stop ends them.
		w := &writer{ledger: l, number: i, ctx: context.WithoutCancel(ctx)}
		l.wg.Go(w.run)
	}
	return l, nil
}

// begin checks the account and continues after the ids that are there already.
func (l *Ledger) begin(ctx context.Context) error {
	w := &writer{ledger: l, ctx: ctx}
	defer w.disconnect()
	if err := w.connect(); err != nil {
		return err
	}
	if err := w.checkGrants(); err != nil {
		return err
	}
	id, err := w.highestID()
	if err != nil {
		return err
	}
	l.firstID = id
	l.nextID.Store(id)
	return nil
}

// Stop lets each writer finish its statement and waits for them.
func (l *Ledger) Stop() {
	l.mu.Lock()
	first := l.ended.IsZero()
	if first {
		l.ended = time.Now()
		close(l.stop)
	}
	l.mu.Unlock()
	l.wg.Wait()
}

// Acks are the acknowledged commits so far, in the order of their OK.
func (l *Ledger) Acks() []Ack {
	l.mu.Lock()
	defer l.mu.Unlock()
	acks := slices.Clone(l.acks)
	slices.SortFunc(acks, func(a, b Ack) int { return a.After.Compare(b.After) })
	return acks
}

// WaitAck waits for a commit that match accepts, for example the first one on
// another server, and returns it.
func (l *Ledger) WaitAck(ctx context.Context, match func(Ack) bool) (Ack, error) {
	seen := 0
	var found Ack
	err := mariadb.Wait(ctx, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		for ; seen < len(l.acks); seen++ {
			if match(l.acks[seen]) {
				found = l.acks[seen]
				return nil
			}
		}
		return fmt.Errorf("ledger: no such commit among %d (last error of a writer: %v)", seen, l.last)
	})
	return found, err
}

// WaitCount waits until n commits in all were acknowledged.
func (l *Ledger) WaitCount(ctx context.Context, n int) error {
	count := 0
	_, err := l.WaitAck(ctx, func(Ack) bool { count++; return count >= n })
	return err
}

// FirstAckAfter is the earliest commit that was acknowledged after t on
// any server but the one with the given server_id (0: on any); false if none.
func (l *Ledger) FirstAckAfter(t time.Time, but uint32) (Ack, bool) {
	for _, a := range l.Acks() {
		if a.After.After(t) && (but == 0 || a.ServerID != but) {
			return a, true
		}
	}
	return Ack{}, false
}

// LateAcks are the commits that the server with this server_id acknowledged
// after t although they were sent after t, too: there must be none after another
// server was opened. (A commit that was sent before may be answered late and
// rightly, by a server that was frozen with a slave's acknowledgement unread. If it
// is answered wrongly, its row is lost, and found so.)
func (l *Ledger) LateAcks(serverID uint32, t time.Time) []Ack {
	var late []Ack
	for _, a := range l.Acks() {
		if a.ServerID == serverID && a.Before.After(t) {
			late = append(late, a)
		}
	}
	return late
}

// LongestOutage is the longest time without an acknowledged commit between the
// start and the stop, or now if it is not stopped, and when that time began.
func (l *Ledger) LongestOutage() (time.Duration, time.Time) {
	acks := l.Acks()
	l.mu.Lock()
	last, end := l.begun, l.ended
	l.mu.Unlock()
	if end.IsZero() {
		end = time.Now()
	}
	var longest time.Duration
	var since time.Time
	for _, a := range append(acks, Ack{After: end}) {
		if gap := a.After.Sub(last); gap > longest {
			longest, since = gap, last
		}
		last = a.After
	}
	return longest, since
}

func (l *Ledger) acknowledged(a Ack) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acks = append(l.acks, a)
}

// failed records a commit that was not acknowledged; sure if it certainly did
// not happen.
func (l *Ledger) failed(id int64, err error, sure bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = err
	if sure {
		l.refused++
		return
	}
	l.unknown[id] = err
}

// Unexpected gives an error of a commit that was neither acknowledged nor
// refused, if it is none of those that ok accepts; nil if there is none.
func (l *Ledger) Unexpected(ok func(error) bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, err := range l.unknown {
		if !ok(err) {
			return err
		}
	}
	return nil
}

func (l *Ledger) trouble(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = err
}

func (l *Ledger) stopping() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

// sleep pauses a writer unless the ledger is being stopped.
func (l *Ledger) sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-l.stop:
	case <-time.After(d):
	}
}
