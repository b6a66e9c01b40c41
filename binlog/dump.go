package binlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
)

// errEnd is the regular end of a dump that was asked for without waiting.
var errEnd = errors.New("end of the binary log")

var errChecksum = errors.New("checksum of an event does not match")

const (
	// keepSmall is enough for every event that is looked into; larger ones, rows
	// and statements, are verified on the fly and never held in memory.
	keepSmall = 64 << 10
	// keepAll keeps every event whole.
	keepAll = 1<<32 - 1
	// growFrom is up to where an event's announced size is believed before its
	// bytes are there.
	growFrom = 1 << 20
)

// dump takes events out of a running COM_BINLOG_DUMP.
type dump struct {
	wire *wire
	// crc tells whether events end in a CRC32. It begins as what the server was
	// asked for and follows the format description of each file.
	crc  bool
	keep uint32
	// acker: each packet says whether its event is to be acknowledged.
	acker bool
	// pass, if set, is given the pieces of an event that is larger than keep, in
	// order, before its checksum is known.
	pass func(p []byte) error
	buf  []byte
	ev   event
}

// receivedAt is when the last event came in.
func (d *dump) receivedAt() time.Time { return d.wire.src.at }

// next reads one event and verifies its checksum. It returns errEnd at the end
// of a dump that does not wait, *mysql.MyError if the server gave the dump up,
// and io.EOF, a *net.OpError and the like if the connection broke.
func (d *dump) next() (*event, error) {
	if err := d.wire.next(); err != nil {
		return nil, err
	}
	var status [1]byte
	if _, err := io.ReadFull(d.wire, status[:]); err != nil {
		return nil, fmt.Errorf("packet without status: %w", noEOF(err))
	}
	switch status[0] {
	case mysql.OK_HEADER:
		wanted, err := d.ackWanted()
		if err != nil {
			return nil, err
		}
		e, err := d.event()
		if e != nil {
			e.ackWanted = wanted
		}
		return e, err
	case mysql.EOF_HEADER:
		return nil, errEnd
	case mysql.ERR_HEADER:
		return nil, d.serverError()
	}
	return nil, fmt.Errorf("%w: packet with status %#x", errMalformed, status[0])
}

// ackMagic begins the two bytes that precede each event sent to an acker.
const ackMagic = 0xef

// ackWanted reads whether the server waits for an acknowledgement of the event
// that follows. After such a packet it counts packets anew.
func (d *dump) ackWanted() (bool, error) {
	if !d.acker {
		return false, nil
	}
	var head [2]byte
	if _, err := io.ReadFull(d.wire, head[:]); err != nil {
		return false, fmt.Errorf("semi-sync header: %w", noEOF(err))
	}
	if head[0] != ackMagic {
		return false, fmt.Errorf("%w: semi-sync header %#x", errMalformed, head)
	}
	d.wire.anew = head[1] != 0
	return head[1] != 0, nil
}

func (d *dump) event() (*event, error) {
	var head [headerSize]byte
	if _, err := io.ReadFull(d.wire, head[:]); err != nil {
		return nil, fmt.Errorf("event header: %w", noEOF(err))
	}
	d.ev = event{}
	if err := d.ev.Decode(head[:]); err != nil {
		return nil, fmt.Errorf("event header: %w", err)
	}
	size := d.ev.EventSize
	trailer := uint32(0)
	if d.crc || d.ev.EventType == evFormat {
		trailer = checksumSize
	}
	if size < headerSize+trailer {
		return nil, fmt.Errorf("%w: %s of %d bytes", errMalformed, d.ev.EventType, size)
	}
	if size > d.keep && d.ev.EventType != evFormat {
		if err := d.passOver(head[:], size); err != nil {
			return nil, fmt.Errorf("%s of %d bytes: %w", d.ev.EventType, size, err)
		}
		return &d.ev, nil
	}
	if err := d.read(head[:], size); err != nil {
		return nil, fmt.Errorf("%s of %d bytes: %w", d.ev.EventType, size, noEOF(err))
	}
	d.ev.raw = d.buf
	if err := d.verify(); err != nil {
		return nil, fmt.Errorf("%s ending at position %d: %w", d.ev.EventType, d.ev.LogPos, err)
	}
	d.ev.body = d.buf[headerSize : size-trailer]
	return &d.ev, nil
}

// read fills d.buf with the whole event.
func (d *dump) read(head []byte, size uint32) error {
	if cap(d.buf) > keepSmall && size <= keepSmall {
		d.buf = nil // one huge event must not hold its memory for ever
	}
	d.buf = append(d.buf[:0], head...)
	rest := int(size) - headerSize
	if size <= growFrom {
		d.buf = append(d.buf, make([]byte, rest)...)
		_, err := io.ReadFull(d.wire, d.buf[headerSize:])
		return err
	}
	b := bytes.NewBuffer(d.buf)
	_, err := io.CopyN(b, d.wire, int64(rest))
	d.buf = b.Bytes()
	return err
}

// passOver reads an event without keeping it, handing it on in pieces.
func (d *dump) passOver(head []byte, size uint32) error {
	out := passer{pass: d.pass}
	rest := int64(size) - headerSize
	if !d.crc {
		if _, err := out.Write(head); err != nil {
			return err
		}
		_, err := io.CopyN(&out, d.wire, rest)
		return noEOF(err)
	}
	out.sum = crc32.NewIEEE()
	if _, err := out.Write(head); err != nil {
		return err
	}
	if _, err := io.CopyN(&out, d.wire, rest-checksumSize); err != nil {
		return noEOF(err)
	}
	var want [checksumSize]byte
	if _, err := io.ReadFull(d.wire, want[:]); err != nil {
		return noEOF(err)
	}
	if out.sum.Sum32() != binary.LittleEndian.Uint32(want[:]) {
		return errChecksum
	}
	out.sum = nil
	_, err := out.Write(want[:])
	return err
}

// passer sums up what is read and hands it on, either if wanted.
type passer struct {
	sum  hash.Hash32
	pass func(p []byte) error
}

func (w *passer) Write(p []byte) (int, error) {
	if w.sum != nil {
		w.sum.Write(p)
	}
	if w.pass != nil {
		if err := w.pass(p); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// verify checks the event in d.buf and follows a format description.
func (d *dump) verify() error {
	if d.ev.EventType == evFormat {
		crc, _, err := d.ev.formatEvent()
		if err != nil {
			return err
		}
		d.crc = crc
	}
	// A format description is not checked where events carry no checksum: in its
	// file it has one all the same, but where a server clears the time of creation
	// in it, for a dump that begins within the file, it leaves that as it was
	// (MariaDB 10.11).
	if !d.crc {
		return nil
	}
	at := len(d.buf) - checksumSize
	if crc32.ChecksumIEEE(d.buf[:at]) != binary.LittleEndian.Uint32(d.buf[at:]) {
		return errChecksum
	}
	return nil
}

// serverError reads the rest of an error packet.
func (d *dump) serverError() error {
	b, err := io.ReadAll(io.LimitReader(d.wire, keepSmall))
	if err != nil {
		return noEOF(err)
	}
	if len(b) < 2 {
		return fmt.Errorf("%w: error packet of %d bytes", errMalformed, len(b)+1)
	}
	e := &mysql.MyError{Code: binary.LittleEndian.Uint16(b), State: "HY000", Message: string(b[2:])}
	if len(b) >= 8 && b[2] == '#' {
		e.State, e.Message = string(b[3:8]), string(b[8:])
	}
	return e
}
