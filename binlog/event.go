package binlog

import (
	"bytes"
	"errors"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/repld/repld/internal/gtid"
)

// The events that bound transactions, tell where the stream is, or do not
// belong into a copy; MariaDB's numbers. All others are only counted.
const (
	evQuery           = replication.QUERY_EVENT
	evRotate          = replication.ROTATE_EVENT
	evIntvar          = replication.INTVAR_EVENT
	evRand            = replication.RAND_EVENT
	evUserVar         = replication.USER_VAR_EVENT
	evFormat          = replication.FORMAT_DESCRIPTION_EVENT
	evXID             = replication.XID_EVENT
	evHeartbeat       = replication.HEARTBEAT_EVENT
	evXAPrepare       = replication.XA_PREPARE_LOG_EVENT
	evGTID            = replication.MARIADB_GTID_EVENT
	evGTIDList        = replication.MARIADB_GTID_LIST_EVENT
	evCheckpoint      = replication.MARIADB_BINLOG_CHECKPOINT_EVENT
	evStartEncryption = replication.MARIADB_START_ENCRYPTION_EVENT
	evQueryCompressed = replication.MARIADB_QUERY_COMPRESSED_EVENT
)

const (
	headerSize   = replication.EventHeaderSize
	checksumSize = replication.BinlogChecksumLength
	artificial   = replication.LOG_EVENT_ARTIFICIAL_F
)

// Flags are the flags of a MariaDB GTID event: how its transaction was
// committed.
type Flags uint8

// The flags as the server defines them.
const (
	FlagStandalone  Flags = 1   // a statement by itself, such as DDL: no COMMIT follows
	FlagGroupCommit Flags = 2   // committed in a group with others, see Transaction.CommitID
	FlagTransaction Flags = 4   // can be rolled back: no table without transactions took part
	FlagParallel    Flags = 8   // may be applied in parallel
	FlagWaited      Flags = 16  // had to wait for a lock
	FlagDDL         Flags = 32  // contains DDL
	FlagXAPrepared  Flags = 64  // XA PREPARE
	FlagXACompleted Flags = 128 // XA COMMIT or XA ROLLBACK of a prepared transaction
)

// Has tells whether all of the given flags are set.
func (f Flags) Has(g Flags) bool { return f&g == g }

// errMalformed is about an event that is too short for what it says it is.
var errMalformed = errors.New("malformed event")

// event is one event of the stream. Its bytes are valid until the next one is
// read.
type event struct {
	replication.EventHeader
	// raw is the whole event with header and checksum; nil if it was larger than
	// the reader was told to keep: then it was verified and dropped.
	raw []byte
	// body is raw without header and checksum.
	body []byte
	// ackWanted: the server waits for an acknowledgement up to the event's end.
	ackWanted bool
}

func (e *event) artificial() bool { return e.Flags&artificial != 0 }

// closes tells whether the event ends a transaction that began without
// FlagStandalone, by the rules that the server's own dump thread has.
func (e *event) closes() bool {
	switch e.EventType {
	case evXID, evXAPrepare:
		return true
	case evQuery, evQueryCompressed:
		// The text follows the schema's terminating zero byte.
		return bytes.HasSuffix(e.body, []byte("\x00COMMIT")) || bytes.HasSuffix(e.body, []byte("\x00ROLLBACK"))
	}
	return false
}

// prelude tells whether the event only prepares the statement of a standalone
// group.
func (e *event) prelude() bool {
	switch e.EventType {
	case evIntvar, evRand, evUserVar, replication.TABLE_MAP_EVENT, replication.MARIADB_ANNOTATE_ROWS_EVENT:
		return true
	}
	return false
}

// gtidEvent decodes a GTID event: the transaction's name, its flags, and the
// group that it was committed in (0 if none).
func (e *event) gtidEvent() (gtid.GTID, Flags, uint64, error) {
	const fixed = 8 + 4 + 1
	if len(e.body) < fixed || Flags(e.body[12]).Has(FlagGroupCommit) && len(e.body) < fixed+8 {
		return gtid.GTID{}, 0, 0, errMalformed
	}
	var g replication.MariadbGTIDEvent
	if err := g.Decode(e.body); err != nil {
		return gtid.GTID{}, 0, 0, err
	}
	return gtid.GTID{Domain: g.GTID.DomainID, Server: e.ServerID, Seq: g.GTID.SequenceNumber}, Flags(g.Flags), g.CommitID, nil
}

// rotateEvent decodes the file and the position in it that follow.
func (e *event) rotateEvent() (file string, pos uint64, err error) {
	if len(e.body) < 9 {
		return "", 0, errMalformed
	}
	var r replication.RotateEvent
	if err := r.Decode(e.body); err != nil {
		return "", 0, err
	}
	return string(r.NextLogName), r.Position, nil
}

// heartbeatEvent decodes the file that the server has sent to its end; the
// position is in the header.
func (e *event) heartbeatEvent() (file string, err error) {
	h := replication.HeartbeatEvent{Version: 1}
	if err := h.Decode(e.body); err != nil {
		return "", err
	}
	return h.Filename, nil
}

// formatEvent decodes the event that opens a file: how events are checked from
// here on, and when the server process that created the file at its start did
// so, in seconds since 1970 (0 if the file was opened by a rotation, or before
// the position that the dump was asked to start after).
func (e *event) formatEvent() (crc bool, created uint32, err error) {
	const upToHeaderLength = 2 + 50 + 4 + 1
	if len(e.raw) < headerSize+upToHeaderLength+1+checksumSize {
		return false, 0, errMalformed
	}
	// This event alone is decoded with its checksum on.
	var f replication.FormatDescriptionEvent
	if err := f.Decode(e.raw[headerSize:]); err != nil {
		return false, 0, err
	}
	return f.ChecksumAlgorithm == replication.BINLOG_CHECKSUM_ALG_CRC32, f.CreateTimestamp, nil
}
