package binlog

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"
)

// wireBuffer is what is read from the socket at once: under load several
// transactions, when idle a heartbeat.
const wireBuffer = 32 << 10

// maxPacket is the payload length that says "more of this follows".
const maxPacket = 1<<24 - 1

var errSequence = errors.New("packets out of order")

// timedConn gives every read from the socket its deadline, and remembers when
// the last one returned: that is when an event was received, at no cost for
// each event.
type timedConn struct {
	conn    net.Conn
	silence time.Duration
	at      time.Time
	until   time.Time // the deadline that is set
	// began and heard let others see at, as nanoseconds after began.
	began time.Time
	heard atomic.Int64
}

// lastByte is when the last bytes came in; any goroutine may ask. One huge
// event is a sign of life long before it is complete.
func (c *timedConn) lastByte() time.Time { return c.began.Add(time.Duration(c.heard.Load())) }

func (c *timedConn) Read(p []byte) (int, error) {
	// Moving a deadline costs as much as a small read, so it is moved in steps: a
	// connection is given up after 7/8 to 8/8 of the silence.
	if c.until.Sub(c.at) <= c.silence*7/8 {
		c.until = time.Now().Add(c.silence)
		if err := c.conn.SetReadDeadline(c.until); err != nil {
			return 0, err
		}
	}
	n, err := c.conn.Read(p)
	c.at = time.Now()
	if n > 0 {
		c.heard.Store(int64(c.at.Sub(c.began)))
	}
	return n, err
}

// wire reads the packets of a running dump. It does not use go-mysql's packet
// reader, which copies every packet twice, counts sequences where an acker must
// restart them, and hides which error broke the connection. Nothing of the dump
// can have been read ahead by that one: a server is silent until it is asked.
type wire struct {
	src  *timedConn
	br   *bufio.Reader
	seq  uint8
	left int  // bytes of the present packet not yet read
	more bool // the payload goes on in another packet
	anew bool // the next payload's first packet begins a count of its own
}

// newWire reads the answer to a command: its first packet has sequence 1.
func newWire(conn net.Conn, silence time.Duration) *wire {
	now := time.Now()
	src := &timedConn{conn: conn, silence: silence, at: now, until: now, began: now}
	return &wire{src: src, br: bufio.NewReaderSize(src, wireBuffer), seq: 1}
}

// next skips what is left of the present payload and starts the next one.
func (w *wire) next() error {
	if w.left > 0 || w.more {
		if _, err := io.Copy(io.Discard, w); err != nil {
			return err
		}
	}
	return w.header()
}

func (w *wire) header() error {
	head, err := w.br.Peek(4)
	if err != nil {
		// A close between packets is EOF; inside a packet's head it is not.
		if err == io.EOF && len(head) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	length := int(head[0]) | int(head[1])<<8 | int(head[2])<<16
	seq := head[3]
	if _, err := w.br.Discard(4); err != nil {
		return err
	}
	if w.anew && !w.more {
		w.seq, w.anew = seq, false
	}
	if seq != w.seq {
		return fmt.Errorf("%w: packet %d where %d was due", errSequence, seq, w.seq)
	}
	w.seq++
	w.left, w.more = length, length == maxPacket
	return nil
}

// Read reads from the present payload, over as many packets as it takes;
// io.EOF is the payload's end.
func (w *wire) Read(p []byte) (int, error) {
	for w.left == 0 {
		if !w.more {
			return 0, io.EOF
		}
		if err := w.header(); err != nil {
			return 0, noEOF(err)
		}
	}
	n, err := w.br.Read(p[:min(len(p), w.left)])
	w.left -= n
	return n, noEOF(err)
}

// noEOF keeps a broken connection apart from the end of a payload.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
