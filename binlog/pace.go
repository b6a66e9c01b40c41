package binlog

import (
	"net"
	"sync/atomic"
	"time"
)

// paceBusy is how long a reader that nobody waits for leaves a busy server
// alone between two reads of the socket, so that several transactions come with
// one wake-up: waking up costs far more than reading. It delays what is seen
// under load by as much, and the sight of a dead server too. An acker must not
// use it.
//
// paceBelow is the size of a read from which on there is work enough anyway:
// a reader that catches up is not slowed down.
const (
	paceBusy  = 4 * time.Millisecond
	paceBelow = 8 << 10
)

// pacedConn reads the socket ahead, below TLS: a server encrypts every event
// by itself, so above TLS each read would give one event, and a pause before
// each would make the reader slower than the server. One goroutine reads it.
type pacedConn struct {
	net.Conn
	// pace is the least time between two small reads, in nanoseconds; 0, as
	// during the login, reads at once.
	pace atomic.Int64

	buf  []byte
	rest []byte // of buf, not yet given out
	size int    // of the last read of the socket
	at   time.Time
	gap  time.Duration // between the last two
}

func newPacedConn(c net.Conn) *pacedConn {
	return &pacedConn{Conn: c, buf: make([]byte, wireBuffer), gap: time.Hour}
}

// Read gives what was read ahead, or reads the socket.
func (c *pacedConn) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		if pace := time.Duration(c.pace.Load()); c.gap < 2*pace && c.size < paceBelow {
			time.Sleep(pace)
		}
		n, err := c.Conn.Read(c.buf)
		now := time.Now()
		c.gap, c.at, c.size = now.Sub(c.at), now, n
		if n == 0 || err != nil {
			return copy(p, c.buf[:n]), err
		}
		c.rest = c.buf[:n]
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}
