package binlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/go-mysql-org/go-mysql/replication"
)

// Magic are the four bytes that a binary log file begins with.
var Magic = []byte(replication.BinLogFileHeader)

// Scanned is one event of a binary log file whose checksum, if its file has any,
// was verified.
type Scanned struct {
	replication.EventHeader
	// Raw is the whole event with header and checksum, nil if it is larger than
	// 64 KiB. It is valid until the next call.
	Raw []byte
	// Offset is where the event begins in what was scanned.
	Offset int64
	// Whole is true if the event completes a transaction; Transaction is that one.
	// Its File, Start and Pos are of no meaning.
	Whole       bool
	Transaction Transaction
	// Begins is true if the event, a GTID event, begins a transaction; Transaction
	// then holds its GTID, Flags and Written.
	Begins bool
	// Within is true if a transaction is under way after the event.
	Within bool
	// Format is true of the event that describes all that follow it.
	Format bool
}

// Scanner takes the bytes of a binary log apart, in pieces of any length:
// events of any size, in bounded memory, with their checksums verified, and
// bounds its transactions by the rules that a [Stream] has. The log begins with
// a format description event, after the file's [Magic]. The zero value is ready
// to use. After an error it is of no use any more.
type Scanner struct {
	group  grouper
	crc    bool
	format bool  // a format description was seen
	offset int64 // where the present event begins

	head [headerSize]byte
	buf  []byte // the present event, unless it is large
	n    uint32 // bytes of it that were seen
	ev   event
	sum  uint32
	tail [checksumSize]byte
}

// NewScanner prepares the scanning of bytes that begin at an offset, which is
// where an event begins. Without format, the raw format description event that
// is in force there, the first event must be one.
func NewScanner(offset int64, format []byte) (*Scanner, error) {
	s := &Scanner{}
	if format != nil {
		if _, _, err := s.Feed(format); err != nil {
			return nil, err
		}
	}
	s.offset = offset
	return s, nil
}

// Checksums tells whether the events carry a checksum.
func (s *Scanner) Checksums() bool { return s.crc }

// Offset is where the next event, or the one that was begun, begins.
func (s *Scanner) Offset() int64 { return s.offset }

// Partial tells whether an event was begun and is not complete.
func (s *Scanner) Partial() bool { return s.n > 0 }

// Within tells whether a transaction is under way.
func (s *Scanner) Within() bool { return s.group.open || s.n > 0 }

// Feed takes bytes up to the end of the present event and tells how many it
// took. The event is nil as long as it is not complete. An error wraps
// [ErrCorrupt].
func (s *Scanner) Feed(p []byte) (n int, e *Scanned, err error) {
	if s.n < headerSize {
		k := copy(s.head[s.n:], p)
		n, p = k, p[k:]
		s.n += uint32(k)
		if s.n < headerSize {
			return n, nil, nil
		}
		if err := s.begin(); err != nil {
			return n, nil, s.corrupt(err)
		}
	}
	take := p[:min(uint64(len(p)), uint64(s.ev.EventSize-s.n))]
	s.take(take)
	n += len(take)
	if s.n < s.ev.EventSize {
		return n, nil, nil
	}
	e, err = s.end()
	if err != nil {
		return n, nil, s.corrupt(err)
	}
	return n, e, nil
}

func (s *Scanner) corrupt(err error) error {
	return fmt.Errorf("%w at offset %d: %w", ErrCorrupt, s.offset, err)
}

// trailer is how many bytes the event's checksum takes.
func (s *Scanner) trailer() uint32 {
	if s.crc || s.ev.EventType == evFormat {
		return checksumSize
	}
	return 0
}

// begin has the header.
func (s *Scanner) begin() error {
	s.ev = event{}
	size := binary.LittleEndian.Uint32(s.head[9:])
	if size < headerSize {
		return fmt.Errorf("%w: of %d bytes", errMalformed, size)
	}
	if err := s.ev.Decode(s.head[:]); err != nil {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	switch {
	case size < headerSize+s.trailer():
		return fmt.Errorf("%w: %s of %d bytes", errMalformed, s.ev.EventType, size)
	case !s.format && s.ev.EventType != evFormat:
		return fmt.Errorf("%w: %s before any format description", errMalformed, s.ev.EventType)
	case size > keepSmall && (s.ev.EventType == evFormat || s.ev.EventType == evGTID):
		return fmt.Errorf("%w: %s of %d bytes", errMalformed, s.ev.EventType, size)
	}
	s.buf = s.buf[:0]
	if s.small() {
		s.buf = append(s.buf, s.head[:]...)
	} else {
		s.sum = crc32.ChecksumIEEE(s.head[:])
	}
	return nil
}

func (s *Scanner) small() bool { return s.ev.EventSize <= keepSmall }

// take takes bytes of the present event beyond its header.
func (s *Scanner) take(p []byte) {
	begin := s.n
	s.n += uint32(len(p))
	if s.small() {
		s.buf = append(s.buf, p...)
		return
	}
	body := s.ev.EventSize - s.trailer()
	if begin < body {
		k := min(uint32(len(p)), body-begin)
		s.sum = crc32.Update(s.sum, crc32.IEEETable, p[:k])
		begin, p = begin+k, p[k:]
	}
	if len(p) > 0 && s.trailer() > 0 {
		copy(s.tail[begin-body:], p)
	}
}

// end has the whole event.
func (s *Scanner) end() (*Scanned, error) {
	if s.small() {
		s.ev.raw = s.buf
		s.ev.body = s.buf[headerSize : s.ev.EventSize-s.trailer()]
	}
	if s.ev.EventType == evFormat {
		crc, _, err := s.ev.formatEvent()
		if err != nil {
			return nil, err
		}
		s.crc, s.format = crc, true
	}
	// A format description carries a checksum of its own, also where events have
	// none (MariaDB 10.11): with another length it could pass for one of those.
	if s.crc || s.ev.EventType == evFormat {
		if s.small() {
			at := len(s.buf) - checksumSize
			s.sum = crc32.ChecksumIEEE(s.buf[:at])
			copy(s.tail[:], s.buf[at:])
		}
		if s.sum != binary.LittleEndian.Uint32(s.tail[:]) {
			return nil, fmt.Errorf("%s of %d bytes: %w", s.ev.EventType, s.ev.EventSize, errChecksum)
		}
	}
	e := &Scanned{EventHeader: s.ev.EventHeader, Raw: s.ev.raw, Offset: s.offset, Format: s.ev.EventType == evFormat}
	if err := s.bound(e); err != nil {
		return nil, err
	}
	e.Within = s.group.open
	s.offset += int64(s.ev.EventSize)
	s.n = 0
	return e, nil
}

// bound follows the transactions.
func (s *Scanner) bound(e *Scanned) error {
	if s.group.open && (e.Format || e.EventType == evGTID) {
		// In a stream this would be an unfinished or a foreign one; a file that was
		// written by whole transactions has neither.
		return fmt.Errorf("%w: %s within %s", errMalformed, e.EventType, s.group.tx.GTID)
	}
	tx, done, err := s.group.add(&s.ev, s.group.tx.At)
	if err != nil {
		return err
	}
	switch {
	case e.EventType == evGTID:
		e.Begins, e.Transaction = true, s.group.tx
	case done:
		e.Whole, e.Transaction = true, tx
	}
	return nil
}

// ScanFile gives f each event of a binary log that r reads from the file's
// beginning. It returns the offset up to which all is whole: events, and
// transactions. At a regular end the error is nil; it wraps
// io.ErrUnexpectedEOF if the log ends within an event or a transaction, and
// [ErrCorrupt] at bytes that are no sound event.
func ScanFile(r io.Reader, f func(*Scanned) error) (int64, error) {
	head := make([]byte, len(Magic))
	if _, err := io.ReadFull(r, head); err != nil {
		return 0, noEOF(err)
	}
	if string(head) != string(Magic) {
		return 0, fmt.Errorf("%w at offset 0: the file begins with %x", ErrCorrupt, head)
	}
	s, _ := NewScanner(int64(len(Magic)), nil)
	return s.Scan(r, f)
}

// Scan is [ScanFile] from the scanner's present offset on.
func (s *Scanner) Scan(r io.Reader, f func(*Scanned) error) (whole int64, err error) {
	whole = s.offset
	buf := make([]byte, keepSmall)
	for {
		n, err := r.Read(buf)
		for p := buf[:n]; len(p) > 0; {
			k, e, err := s.Feed(p)
			if err != nil {
				return whole, err
			}
			p = p[k:]
			if e == nil {
				continue
			}
			if !e.Within {
				whole = s.offset
			}
			if err := f(e); err != nil {
				return whole, err
			}
		}
		switch {
		case errors.Is(err, io.EOF) && s.Within():
			return whole, fmt.Errorf("%w: the log ends within what begins at offset %d", io.ErrUnexpectedEOF, whole)
		case errors.Is(err, io.EOF):
			return whole, nil
		case err != nil:
			return whole, err
		}
	}
}
