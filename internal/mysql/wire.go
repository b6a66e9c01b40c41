package mysql

import (
	"bytes"
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

// greeting looks at the first packet that the other side sends: number 0, of
// protocol 10 or an error. Whatever else speaks first on its port (a mail
// server, say) would be taken for the length of a packet that never comes, and
// a packet that is too short would be read beyond its end by the driver.
func (w *wire) greeting(b []byte) error {
	w.head = append(w.head, b...)
	if len(w.head) < 5 {
		return nil
	}
	length := int(w.head[0]) | int(w.head[1])<<8 | int(w.head[2])<<16
	body := w.head[4:]
	sound := w.head[3] == 0 && length <= maxGreeting && (body[0] == 10 || body[0] == 0xff)
	if sound && len(body) < length {
		return nil // more is to come
	}
	if sound && body[0] == 10 {
		end := bytes.IndexByte(body, 0)
		sound = end > 0 && length >= end+1+greetingAfterVersion
	}
	w.met = true
	if sound {
		w.head = nil
		return nil
	}
	return fmt.Errorf("%w: it greets with %q", errNotMySQL, printable(w.head[:min(len(w.head), 64)]))
}

// maxGreeting bounds the first packet. greetingAfterVersion is the least that
// follows the version in it: connection id, scramble and filler, capabilities,
// character set and status, capabilities, length and reserve, and the rest of
// the scramble.
const (
	maxGreeting          = 1024
	greetingAfterVersion = 4 + 8 + 1 + 2 + 3 + 2 + 1 + 10 + 13
)

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
