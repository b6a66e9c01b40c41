package binlog

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/repld/repld/internal/gtid"
)

func ev(kind replication.EventType, size, pos uint32, body []byte) *event {
	return &event{EventHeader: replication.EventHeader{EventType: kind, ServerID: 1, EventSize: size, LogPos: pos}, body: body}
}

func gtidBody(seq uint64, flags Flags) []byte {
	b := binary.LittleEndian.AppendUint64(nil, seq)
	b = binary.LittleEndian.AppendUint32(b, 0)
	return append(b, byte(flags), 0, 0, 0, 0, 0, 0)
}

func rotateBody(file string, pos uint64) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, pos), file...)
}

func TestAGroupThatAFileCutsOffIsNoTransaction(t *testing.T) {
	for _, end := range []*event{
		ev(evFormat, 100, 104, nil),
		ev(evRotate, 50, 0, rotateBody("b.2", 4)),
	} {
		g := grouper{file: "b.1", pos: 4}
		for _, e := range []*event{ev(evGTID, 40, 44, gtidBody(7, FlagTransaction)), end, ev(evXID, 30, 74, nil)} {
			if tx, done, err := g.add(e, time.Time{}); done || err != nil {
				t.Errorf("%s gave %+v, %v", e.EventType, tx, err)
			}
		}
		if g.torn != 1 {
			t.Errorf("%d torn groups", g.torn)
		}
	}
}

func TestPositionsAreKeptWhereEventsDoNotCarryThem(t *testing.T) {
	const g4 = 1 << 32
	for _, c := range []struct {
		name       string
		from       uint64
		id, rows   uint32 // LogPos of the GTID event and of the rows
		xid        uint32
		start, end uint64
	}{
		{"all carry them", 1000, 1040, 1540, 1570, 1000, 1570},
		{"only GTID and XID", 1000, 1040, 0, 1570, 1000, 1570},
		{"none inside", 1000, 1040, 0, 0, 1000, 1570},
		{"skipped before", 4, 1040, 1540, 1570, 1000, 1570},
		{"over 4 GiB", g4 - 100, g4 - 60, 440, 470, g4 - 100, g4 + 470},
	} {
		g := grouper{file: "b.1", pos: c.from}
		var got Transaction
		for _, e := range []*event{ev(evGTID, 40, c.id, gtidBody(7, FlagTransaction)),
			ev(replication.WRITE_ROWS_EVENTv1, 500, c.rows, nil), ev(evXID, 30, c.xid, nil)} {
			tx, done, err := g.add(e, time.Unix(9, 0))
			if err != nil {
				t.Fatal(err)
			}
			if done {
				got = tx
			}
		}
		want := Transaction{GTID: gtid.GTID{Server: 1, Seq: 7}, Flags: FlagTransaction, At: time.Unix(9, 0),
			Written: time.Unix(0, 0), Began: time.Unix(0, 0), File: "b.1", Start: c.start, Pos: c.end, Bytes: 570, Events: 3}
		if got != want {
			t.Errorf("%s: %+v, want %+v", c.name, got, want)
		}
	}
}

func TestWhatEndsAGroup(t *testing.T) {
	query := func(text string) *event { return ev(evQuery, 60, 0, append([]byte("status db\x00"), text...)) }
	for _, c := range []struct {
		name  string
		flags Flags
		e     *event
		ends  bool
	}{
		{"statement", 0, query("INSERT INTO t VALUES ('COMMIT')"), false},
		{"a statement that ends like it", 0, query("COMMENT 'a COMMIT"), false},
		{"commit", 0, query("COMMIT"), true},
		{"rollback", 0, query("ROLLBACK"), true},
		{"rollback to a savepoint", 0, query("ROLLBACK TO `s`"), false},
		{"xid", FlagTransaction, ev(evXID, 30, 0, nil), true},
		{"xa prepare", FlagXAPrepared, ev(evXAPrepare, 30, 0, nil), true},
		{"standalone statement", FlagStandalone | FlagDDL, query("DROP TABLE t"), true},
		{"standalone compressed statement", FlagStandalone, ev(evQueryCompressed, 60, 0, nil), true},
		{"its insert id", FlagStandalone, ev(evIntvar, 30, 0, nil), false},
		{"its seed", FlagStandalone, ev(evRand, 30, 0, nil), false},
		{"its variable", FlagStandalone, ev(evUserVar, 30, 0, nil), false},
	} {
		g := grouper{file: "b.1", pos: 4}
		if _, _, err := g.add(ev(evGTID, 40, 44, gtidBody(1, c.flags)), time.Time{}); err != nil {
			t.Fatal(err)
		}
		if _, done, err := g.add(c.e, time.Time{}); err != nil || done != c.ends {
			t.Errorf("%s: ends %v, %v, want %v", c.name, done, err, c.ends)
		}
	}
}

func TestShortEventsAreErrors(t *testing.T) {
	for _, e := range []*event{
		ev(evGTID, 40, 0, []byte{1, 2, 3}),
		ev(evGTID, 40, 0, gtidBody(1, FlagGroupCommit)[:13]),
		ev(evRotate, 40, 0, []byte{4, 0, 0, 0, 0, 0, 0, 0}),
	} {
		g := grouper{file: "b.1", pos: 4}
		if _, _, err := g.add(e, time.Time{}); err == nil {
			t.Errorf("%s of %d bytes was taken", e.EventType, len(e.body))
		}
	}
	if _, _, err := ev(evFormat, 40, 0, nil).formatEvent(); err == nil {
		t.Error("an empty format description was taken")
	}
}
