package binlog

import (
	"time"

	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// Handler is told what a [Stream] sees, one call after another, on the
// stream's own goroutine and in the order of the log. What takes long in it
// delays the reading: it must not wait for a server, nor call the stream's
// Close.
type Handler interface {
	// Connected tells that the server has begun to send its log.
	Connected(Connected)
	// Transaction tells of a transaction seen to its end. Each is told exactly
	// once, over all reconnects.
	Transaction(Transaction)
	// Heartbeat tells that the idle server lives.
	Heartbeat(Heartbeat)
	// Rotated tells that the log goes on in another file, or that the server was
	// started.
	Rotated(Rotated)
	// Disconnected tells, at the first sign of it, that a connection broke, or
	// that an attempt to connect failed.
	Disconnected(Disconnected)
}

// Connected is the beginning of a connection.
type Connected struct {
	At time.Time
	// Identity is who was found at the address; Version is @@version.
	Identity topology.Identity
	Version  string
	// After is the position after which the server sends.
	After gtid.Position
	// ServerAt is the server's gtid_binlog_pos just before: what lies between
	// After and it is on its way.
	ServerAt gtid.Position
	// File is the file in which the reading begins.
	File string
	// Heard tells, at any time and from any goroutine, when the last byte came in
	// on this connection. A huge transaction is a sign of life long before it is
	// complete, and keeps heartbeats away.
	Heard func() time.Time
}

// Heartbeat is a sign of life of an idle server: it has sent all up to Pos in
// File.
type Heartbeat struct {
	At   time.Time
	File string
	Pos  uint64
}

// Rotated is a change of file.
type Rotated struct {
	At   time.Time
	File string
	// Restarted is true if the file was begun by a starting server process, not by
	// a rotation, and not before the position that the stream has reached. It is
	// also told of the file in which the reading begins.
	Restarted bool
}

// Disconnected is the end of a connection.
type Disconnected struct {
	At time.Time
	// Err is a *fault.Error that wraps one of the package's error values.
	Err error
	// Attempt is 0 if an established stream broke, and n for the nth attempt in
	// a row that failed to establish one.
	Attempt int
	// Retry is when the next attempt is made; zero if the stream is closed.
	Retry time.Time
}
