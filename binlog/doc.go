// Package binlog reads the binary log of a master as a slave would: it is
// repld's second witness that the master lives, the first to notice that it
// died, and the measure of how far each slave is behind.
//
// It never changes a server. It is an acker, by which a commit may be told OK,
// only where a [Recorder] makes it one, and acknowledges only what that has on
// disk. It looks at headers and at the few events that bound a transaction,
// never into rows. The dump handshake is the only SQL outside internal/mysql.
//
// The way of an event: dial.go opens the connection and handshake.go asks for
// the dump; dump.go takes events out of the packets of wire.go and verifies
// their checksums; group.go, which is pure, bounds transactions; stream.go
// keeps it going over restarts of the server and hands what happens to a
// [Handler], and, by record.go, the bytes of the log to a [Sink]. tail.go takes
// its raw events from dump.go.
//
// ring.go and lag.go are pure as well: transactions in, "how far behind is a
// slave that has applied up to here" out.
//
// Start reading at [Stream] and [Handler], then [Ring]. [ReadTail] saves what
// lies behind a position in a server's binary log; [Witness] proves at set-up
// that what is written is seen.
package binlog
