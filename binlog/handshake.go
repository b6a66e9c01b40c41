package binlog

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/repld/repld/internal/gtid"
)

// Flags of COM_BINLOG_DUMP.
const (
	dumpNoWait   uint16 = 1 // end at the end of the log
	dumpAnnotate uint16 = 2 // with the statements behind row events, as a slave asks for
)

// capabilityGTID tells the server that GTID events are understood; without it
// they would be replaced by dummies.
const capabilityGTID = 4

// whoVariables identify the server, and say where its log ends and how its
// events are checked. They are read by name: older servers lack some.
const whoVariables = "'server_id','server_uid','hostname','port','datadir','version','gtid_binlog_pos','binlog_checksum'"

// ask reads who is there and refuses anyone but the recorded server.
func (l *link) ask() error {
	r, err := l.conn.Execute("SHOW GLOBAL VARIABLES WHERE Variable_name IN (" + whoVariables + ")")
	if err != nil {
		return fmt.Errorf("reading variables: %w", err)
	}
	vars := make(map[string]string, r.RowNumber())
	for i := range r.RowNumber() {
		name, err := r.GetString(i, 0)
		if err != nil {
			return fmt.Errorf("reading variables: %w", err)
		}
		if vars[strings.ToLower(name)], err = r.GetString(i, 1); err != nil {
			return fmt.Errorf("reading variable %s: %w", name, err)
		}
	}
	id, err := strconv.ParseUint(vars["server_id"], 10, 32)
	if err != nil {
		return fmt.Errorf("server_id: %w", err)
	}
	port, err := strconv.ParseUint(vars["port"], 10, 16)
	if err != nil {
		return fmt.Errorf("port: %w", err)
	}
	l.identity.ServerID, l.identity.Port = uint32(id), uint16(port)
	l.identity.UID, l.identity.Hostname, l.identity.DataDir = vars["server_uid"], vars["hostname"], vars["datadir"]
	l.version = vars["version"]
	l.crc = vars["binlog_checksum"] == "CRC32"
	if l.last, err = gtid.ParsePosition(vars["gtid_binlog_pos"]); err != nil {
		return fmt.Errorf("gtid_binlog_pos: %w", err)
	}
	return l.verify()
}

func (l *link) verify() error {
	want := l.opts.Identity
	if want == nil {
		return nil
	}
	is := l.identity
	if want.ServerID == 0 {
		is.ServerID = 0
	}
	if want.UID == "" {
		is.UID = ""
	}
	if want.Hostname == "" {
		is.Hostname = ""
	}
	if want.Port == 0 {
		is.Port = 0
	}
	if want.DataDir == "" {
		is.DataDir = ""
	}
	if diff := want.Differs(is); len(diff) > 0 {
		return fmt.Errorf("%w: %s", ErrForeign, strings.Join(diff, ", "))
	}
	return nil
}

// request is what a dump is asked for.
type request struct {
	after gtid.Position
	// noWait: the server ends the dump at the end of its log and the link is
	// nobody: it has no server_id, so that it can end nobody else's dump.
	noWait bool
	// acker: the server lets commits return by what this link acknowledges.
	acker bool
	// keep is the largest event that is kept whole.
	keep uint32
}

// dump asks for everything after a position and hands over the socket.
func (l *link) dump(r request) (*dump, error) {
	id, flags := l.opts.ServerID, dumpAnnotate
	if r.noWait {
		id, flags = 0, dumpAnnotate|dumpNoWait
	}
	// The checksum is taken from the server's present setting so that every event
	// arrives as it stands in the log.
	checksum := "NONE"
	if l.crc {
		checksum = "CRC32"
	}
	// A Position prints digits, dashes and commas only.
	set := fmt.Sprintf("SET @master_heartbeat_period=%d, @master_binlog_checksum='%s', @mariadb_slave_capability=%d, "+
		"@slave_connect_state='%s', @slave_gtid_strict_mode=1",
		l.opts.Heartbeat.Nanoseconds(), checksum, capabilityGTID, r.after)
	if r.acker {
		// Whoever sets this before the dump is one; there is no way to end it but to
		// close the connection.
		set += ", @rpl_semi_sync_slave=1"
	}
	if _, err := l.conn.Execute(set); err != nil {
		return nil, fail(l.opts, verbConnect, fmt.Errorf("preparing the dump: %w", err))
	}
	if id != 0 {
		if err := l.register(id); err != nil {
			return nil, fail(l.opts, verbRegister, err)
		}
	}
	if err := l.send(dumpCommand(id, flags)); err != nil {
		return nil, fail(l.opts, verbDump, err)
	}
	if err := l.sock.SetDeadline(time.Time{}); err != nil {
		return nil, fail(l.opts, verbDump, err)
	}
	// From here on go-mysql's connection is not read again: see wire. What is
	// inside of it is the socket, or the TLS session over it.
	if !r.noWait && !r.acker {
		l.paced.pace.Store(int64(paceBusy))
	}
	return &dump{wire: newWire(l.conn.Conn.Conn, l.opts.Silence), crc: l.crc, keep: r.keep, acker: r.acker}, nil
}

// register shows the stream in SHOW SLAVE HOSTS.
func (l *link) register(id uint32) error {
	host, user := l.opts.Host, l.opts.User
	b := []byte{mysql.COM_REGISTER_SLAVE}
	b = binary.LittleEndian.AppendUint32(b, id)
	b = append(append(b, byte(len(host))), host...)
	b = append(append(b, byte(len(user))), user...)
	b = append(b, 0)                           // no password: the server would show it
	b = binary.LittleEndian.AppendUint16(b, 0) // port: nobody connects back
	b = append(b, make([]byte, 4+4)...)        // rank and master's id, both unused
	if err := l.send(b); err != nil {
		return err
	}
	_, err := l.conn.ReadOKPacket()
	return err
}

// dumpCommand is COM_BINLOG_DUMP; the position is given by the session's
// @slave_connect_state, so the file is empty.
func dumpCommand(id uint32, flags uint16) []byte {
	b := []byte{mysql.COM_BINLOG_DUMP}
	b = binary.LittleEndian.AppendUint32(b, 4)
	b = binary.LittleEndian.AppendUint16(b, flags)
	return binary.LittleEndian.AppendUint32(b, id)
}

// send writes one command; go-mysql wants room for the packet's head.
func (l *link) send(command []byte) error {
	l.conn.ResetSequence()
	return l.conn.WritePacket(append(make([]byte, 4), command...))
}
