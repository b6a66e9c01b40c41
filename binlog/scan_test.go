package binlog_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/repld/repld/binlog"
	"github.com/repld/repld/internal/gtid"
)

type scanned struct {
	txs    []binlog.Transaction
	events []binlog.Scanned
	whole  int64
	err    error
}

func scan(r io.Reader) (s scanned) {
	s.whole, s.err = binlog.ScanFile(r, func(e *binlog.Scanned) error {
		s.events = append(s.events, *e)
		if e.Whole {
			s.txs = append(s.txs, e.Transaction)
		}
		return nil
	})
	return s
}

// TestAFileIsScannedAsItWasRead: from a real server's log, over every kind of
// transaction, events larger than a packet, and with and without checksums.
func TestAFileIsScannedAsItWasRead(t *testing.T) {
	for _, more := range []string{"binlog-checksum=CRC32", "binlog-checksum=NONE", "log-bin-compress=ON"} {
		t.Run(more, func(t *testing.T) {
			s := master(t, "binlog-format=MIXED", more, "max-allowed-packet=64M")
			s.MustExec(t, kinds...)
			var log bytes.Buffer
			tail, err := binlog.ReadTail(context.Background(), options(s), gtid.Position{}, &log)
			if err != nil {
				t.Fatal(err)
			}
			got := scan(bytes.NewReader(log.Bytes()))
			if got.err != nil || got.whole != int64(log.Len()) || len(got.txs) != len(tail.Transactions) {
				t.Fatalf("%d transactions up to %d, %v; want %d up to %d", len(got.txs), got.whole, got.err, len(tail.Transactions), log.Len())
			}
			for i, want := range tail.Transactions {
				if tx := got.txs[i]; tx.GTID != want.GTID || tx.Bytes != want.Bytes || tx.Events != want.Events || tx.Flags != want.Flags || !tx.Began.Equal(want.Began) {
					t.Errorf("scanned %+v, read %+v", tx, want)
				}
			}
			small := log.Bytes()[:min(log.Len(), 20000)]
			want, slow := scan(bytes.NewReader(small)), scan(iotest.OneByteReader(bytes.NewReader(small)))
			if len(want.events) != len(slow.events) || want.whole != slow.whole {
				t.Errorf("byte by byte: %d events, want %d", len(slow.events), len(want.events))
			}
			damages(t, small, want, more != "binlog-checksum=NONE")
		})
	}
}

// damages cuts the log everywhere, and changes each byte of it in turn.
func damages(t *testing.T, log []byte, sound scanned, checksums bool) {
	t.Helper()
	for n := range log {
		got := scan(bytes.NewReader(log[:n]))
		if got.whole > int64(n) || len(got.txs) > len(sound.txs) {
			t.Fatalf("cut at %d: whole up to %d", n, got.whole)
		}
		if got.err == nil && got.whole != int64(n) || got.err != nil && !errors.Is(got.err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut at %d, whole up to %d: %v", n, got.whole, got.err)
		}
	}
	if !checksums {
		return
	}
	for n := range log {
		log[n] ^= 0x15
		got := scan(bytes.NewReader(log))
		log[n] ^= 0x15
		if got.err == nil {
			t.Fatalf("a changed byte at %d was not noticed", n)
		}
		for _, e := range got.events {
			if e.Offset <= int64(n) && int64(n) < e.Offset+int64(e.EventSize) {
				t.Fatalf("byte %d was changed, and its event at %d was given: %v", n, e.Offset, got.err)
			}
		}
	}
}

func FuzzScanner(f *testing.F) {
	f.Add([]byte("\xfebin"))
	f.Add(append([]byte("\xfebin"), bytes.Repeat([]byte{0, 0, 0, 0, 15, 1, 0, 0, 0, 100, 0, 0, 0}, 20)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		got := scan(bytes.NewReader(b))
		if got.whole > int64(len(b)) {
			t.Fatalf("whole up to %d of %d", got.whole, len(b))
		}
		if again := scan(iotest.OneByteReader(bytes.NewReader(b))); again.whole != got.whole || len(again.events) != len(got.events) {
			t.Fatalf("in pieces: up to %d, want %d", again.whole, got.whole)
		}
	})
}
