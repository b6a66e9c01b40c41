package provision

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/repld/repld/internal/gtid"
)

// ErrantTx is one transaction that a former master has and the cluster has not.
type ErrantTx struct {
	GTID gtid.GTID `json:"gtid"`
	// File and Pos are where it begins in the server's binary log.
	File string `json:"file"`
	Pos  uint64 `json:"pos"`
	// BeforeRestart is true if the server was restarted after it was written, and
	// not between the fork and it: what was written after a restart, when semi-sync
	// is off, may have been answered OK at once.
	BeforeRestart bool `json:"before_restart"`
}

// ServerStart is a start of the server that its binary log shows after the fork.
type ServerStart struct {
	File string `json:"file"`
	// Created is the server's own time of the start, in seconds since 1970.
	Created uint32 `json:"created"`
}

// errantScan goes through the events of a binary log in order and keeps what
// lies behind the fork. It is a pure fold over events.
type errantScan struct {
	fork gtid.GTID
	has  gtid.State

	past     bool // the fork has been passed
	restarts []ServerStart
	extra    []ErrantTx
}

// newErrantScan scans for transactions behind fork that a server in state has
// does not hold. inFirst says whether the fork itself stands in what is going to
// be scanned; if it was purged, everything lies behind it.
func newErrantScan(fork gtid.GTID, has gtid.State, inFirst bool) *errantScan {
	return &errantScan{fork: fork, has: has, past: !inFirst || fork.IsZero()}
}

func (s *errantScan) restart(file string, created uint32) {
	if s.past {
		s.restarts = append(s.restarts, ServerStart{File: file, Created: created})
	}
}

func (s *errantScan) transaction(g gtid.GTID, file string, pos uint64) {
	if g == s.fork {
		s.past = true
		return
	}
	if !s.past || s.has.Contains(g) {
		return
	}
	// True for now: whether a restart follows is known at the end.
	s.extra = append(s.extra, ErrantTx{GTID: g, File: file, Pos: pos, BeforeRestart: len(s.restarts) == 0})
}

// result is the list of extra transactions; a log without any restart behind
// the fork proves nothing of them.
func (s *errantScan) result() []ErrantTx {
	out := make([]ErrantTx, len(s.extra))
	for i, tx := range s.extra {
		tx.BeforeRestart = tx.BeforeRestart && len(s.restarts) > 0
		out[i] = tx
	}
	return out
}

// AllBeforeRestart tells whether every extra transaction of a former master
// stands before the first restart behind the fork. Only then, and only if the
// cluster was armed when it broke and no holder has them, was nobody told OK for
// any of them. It is pure. It is false for an empty list: nothing is to be undone.
func AllBeforeRestart(list []ErrantTx) bool {
	for _, tx := range list {
		if !tx.BeforeRestart {
			return false
		}
	}
	return len(list) > 0
}

// Event types of a binary log that the scan looks at.
const (
	eventFormat = 15
	eventGTID   = 162
)

var errNoBinlog = errors.New("not a binary log file")

// file scans one whole binary log file. A last event that was cut by a crash
// ends it without an error, as the server itself takes it.
func (s *errantScan) file(name string, r io.Reader) error {
	in := bufio.NewReaderSize(r, 64<<10)
	magic := make([]byte, 4)
	if _, err := io.ReadFull(in, magic); err != nil || string(magic) != "\xfebin" {
		return fmt.Errorf("%s: %w", name, errNoBinlog)
	}
	pos := uint64(4)
	for {
		head := make([]byte, 19)
		if _, err := io.ReadFull(in, head); err != nil {
			return cutIsEnd(err)
		}
		size := binary.LittleEndian.Uint32(head[9:])
		if size < 19 {
			return fmt.Errorf("%s: an event of %d bytes at %d: %w", name, size, pos, errNoBinlog)
		}
		body := make([]byte, min(size-19, 64))
		if _, err := io.ReadFull(in, body); err != nil {
			return cutIsEnd(err)
		}
		if _, err := in.Discard(int(size) - 19 - len(body)); err != nil {
			return cutIsEnd(err)
		}
		s.event(name, pos, head, body)
		pos += uint64(size)
	}
}

func cutIsEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

func (s *errantScan) event(file string, pos uint64, head, body []byte) {
	switch head[4] {
	case eventFormat:
		// Version (2), server version (50), then the time of creation, which is zero
		// unless the server was just started.
		if len(body) >= 56 {
			if created := binary.LittleEndian.Uint32(body[52:]); created != 0 {
				s.restart(file, created)
			}
		}
	case eventGTID:
		if len(body) >= 12 {
			s.transaction(gtid.GTID{Domain: binary.LittleEndian.Uint32(body[8:]), Server: binary.LittleEndian.Uint32(head[5:]),
				Seq: binary.LittleEndian.Uint64(body)}, file, pos)
		}
	}
}
