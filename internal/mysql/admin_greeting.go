package mysql

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"
)

// Greeting connects to a server without logging in and gives the id of that
// connection, which only the very server at the other end has among its
// sessions. The connection stays open until done is called.
func Greeting(ctx context.Context, address string) (id uint64, done func(), err error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return 0, nil, &ConnectError{Server: address, Where: address, Err: err}
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(defaultStatementTimeout)
	}
	id, err = connectionID(conn, deadline)
	if err != nil {
		_ = conn.Close()
		return 0, nil, &ConnectError{Server: address, Where: address, Err: err}
	}
	return id, func() { _ = conn.Close() }, nil
}

func connectionID(conn net.Conn, deadline time.Time) (uint64, error) {
	if err := conn.SetReadDeadline(deadline); err != nil {
		return 0, err
	}
	var packet bytes.Buffer
	if _, _, err := readGreeting(io.TeeReader(conn, &packet)); err != nil {
		return 0, err
	}
	body := packet.Bytes()[4:]
	end := bytes.IndexByte(body, 0)
	if end < 0 || len(body) < end+5 {
		return 0, fmt.Errorf("%w: its greeting is too short", errNotMySQL)
	}
	return uint64(binary.LittleEndian.Uint32(body[end+1:])), nil
}
