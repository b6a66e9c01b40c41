package binlog

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-mysql-org/go-mysql/client"

	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// socket remembers why it broke: go-mysql's handshake reports only "connection
// was bad".
type socket struct {
	net.Conn
	mu  sync.Mutex
	err error
}

func (s *socket) note(err error) {
	if err == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

func (s *socket) broke() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *socket) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	s.note(err)
	return n, err
}

func (s *socket) Write(p []byte) (int, error) {
	n, err := s.Conn.Write(p)
	s.note(err)
	return n, err
}

// link is an open connection that has not yet asked for the dump.
type link struct {
	opts Options
	sock *socket
	conn *client.Conn
	// release detaches the socket from the context; it waits if the context is
	// just closing it.
	release  func()
	paced    *pacedConn
	identity topology.Identity
	version  string
	// last is @@gtid_binlog_pos when the connection was made.
	last gtid.Position
	crc  bool
}

// connect opens a connection, logs in, and reads who is there. The socket is
// closed as soon as ctx is done, whatever is going on on it.
func connect(ctx context.Context, o Options) (*link, error) {
	l := &link{opts: o}
	deadline := time.Now().Add(o.DialTimeout)
	dialer := func(ctx context.Context, network, address string) (net.Conn, error) {
		d := net.Dialer{Deadline: deadline}
		c, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		if err := c.SetDeadline(deadline); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		l.paced = newPacedConn(c)
		l.sock = &socket{Conn: l.paced}
		l.release = closeWhenDone(ctx, c)
		return l.sock, nil
	}
	options := func(c *client.Conn) error {
		c.SetAttributes(map[string]string{"program_name": "repld"})
		if o.TLS != nil {
			c.SetTLSConfig(o.TLS)
		}
		return nil
	}
	err := guarded(func() (err error) {
		l.conn, err = client.ConnectWithDialer(ctx, "tcp", o.Address, o.User, o.Password, "", dialer, options)
		return err
	})
	if err == nil {
		err = guarded(l.ask)
	}
	if err != nil {
		err = l.reason(ctx, err)
		l.close()
		return nil, fail(o, verbConnect, err)
	}
	return l, nil
}

// guarded turns a panic of go-mysql's decoding, which trusts that a server is
// on the other side, into an error.
func guarded(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", ErrNotServer, r)
		}
	}()
	return f()
}

// reason prefers what is behind an error: the caller's wish to stop, then the
// error of the socket.
func (l *link) reason(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ErrClosed, context.Cause(ctx))
	}
	if l.sock != nil {
		if broke := l.sock.broke(); broke != nil && !errors.Is(err, broke) {
			return fmt.Errorf("%w: %w", err, broke)
		}
	}
	return err
}

// close closes the socket at once; it may be called more than once.
func (l *link) close() {
	if l.sock != nil {
		_ = l.sock.Close() // nothing is lost: this side only reads
		l.release()
	}
}

// closeWhenDone closes c when ctx is done. The returned function ends that and
// leaves no goroutine behind.
func closeWhenDone(ctx context.Context, c net.Conn) (release func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		_ = c.Close()
	})
	return sync.OnceFunc(func() {
		if !stop() {
			<-done
		}
	})
}
