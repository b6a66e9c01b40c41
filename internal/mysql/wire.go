package mysql

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

// defaultStatementTimeout is the deadline of a statement whose context has
// none: nothing waits for ever on a server that froze.
const defaultStatementTimeout = 30 * time.Second

// wire is the socket below the driver. It keeps the first error that it met,
// which the driver replaces by "invalid connection": whether the other side
// closed the connection or never answered is what tells a dead server from a
// hung one.
type wire struct {
	net.Conn
	mu    sync.Mutex
	first error
	down  bool
	// turn counts the statements, so that the end of one's context that is heard
	// late does not end the next one.
	turn uint64
	// timed is true while the socket has a deadline of its own.
	timed bool
	// head is the beginning of the greeting, until it is known to be one.
	head []byte
	met  bool
}

// past, as a deadline, makes whatever waits on the socket return at once.
var past = time.Unix(1, 0)

func (w *wire) set(c net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Conn = c
}

func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if err == nil && !w.met {
		err = w.greeting(b[:n])
	}
	if err != nil {
		w.note(err)
	}
	return n, err
}

// greeting looks at the first bytes that the other side sends: a packet number
// 0 of protocol 10, or an error packet. Whatever else speaks first on its port
// (a mail server, say) would be taken for the length of a packet that never
// comes.
func (w *wire) greeting(b []byte) error {
	w.head = append(w.head, b[:min(len(b), 64)]...)
	if len(w.head) < 5 {
		return nil
	}
	w.met = true
	if w.head[3] == 0 && (w.head[4] == 10 || w.head[4] == 0xff) {
		w.head = nil
		return nil
	}
	return fmt.Errorf("%w: it said %q", errNotMySQL, printable(w.head))
}

// printable is the first line of what a stranger said.
func printable(b []byte) string {
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.ToValidUTF8(strings.TrimSpace(line), "?")
}

func (w *wire) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	if err != nil {
		w.note(err)
	}
	return n, err
}

func (w *wire) note(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.first == nil && !w.down {
		w.first = err
	}
}

// arm makes the end of ctx end whatever waits on the socket. The function that
// it returns takes that off again. The context's own timer is enough: setting
// the socket's deadline for each statement would double the timers.
func (w *wire) arm(ctx context.Context) (disarm func()) {
	_, bounded := ctx.Deadline()
	w.mu.Lock()
	w.turn++
	turn := w.turn
	switch {
	case w.Conn == nil:
	case !bounded:
		_ = w.Conn.SetDeadline(time.Now().Add(defaultStatementTimeout))
		w.timed = true
	case w.timed:
		_ = w.Conn.SetDeadline(time.Time{})
		w.timed = false
	}
	w.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { w.abort(turn) })
	return func() { stop() }
}

func (w *wire) abort(turn uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.turn == turn && w.Conn != nil {
		_ = w.Conn.SetDeadline(past)
		w.timed = true
	}
}

// shut closes the socket without a word to the server.
func (w *wire) shut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = true
	if w.Conn != nil {
		_ = w.Conn.Close()
	}
}

// cause replaces the driver's word for a broken connection by what happened.
func (w *wire) cause(ctx context.Context, err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var slow net.Error
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("given up: %w", context.Canceled)
	case errors.As(err, &slow) && slow.Timeout(),
		w.first != nil && errors.As(w.first, &slow) && slow.Timeout():
		return fmt.Errorf("no answer in time: %w", context.DeadlineExceeded)
	case w.first == nil || errors.Is(err, w.first):
		return err
	case isBroken(err):
		return w.first
	default:
		return fmt.Errorf("%w (%w)", err, w.first)
	}
}
