package mysql

import (
	"bytes"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/gtid"
)

// probeReader reads the three results of one probe straight from the driver:
// it runs ten times a second for each server, so it keeps its buffers, looks
// columns up once per connection and parses a position only if its text has
// changed.
type probeReader struct {
	values  []driver.Value
	columns map[string]int
	width   int
	memo    map[string]*parsed
	semi    semiMemo
	state   struct {
		text  []byte
		value gtid.State
	}
}

// parsed is a position with the text that it was read from.
type parsed struct {
	text  []byte
	value gtid.Position
}

// reset forgets what belongs to one connection: another version of the server
// may have other columns, and a restarted one starts its counters anew.
func (r *probeReader) reset() { r.columns, r.width, r.semi = nil, 0, semiMemo{} }

// semiSyncEvery is how often the status of semi-sync is read from a server that
// is no armed master and whose IO thread is as it was: SHOW GLOBAL STATUS costs
// the server more than all the rest of a probe.
const semiSyncEvery = time.Second

// semiMemo is the status of semi-sync as last read, and what it belongs to.
type semiMemo struct {
	at    time.Time
	value health.SemiSync
	io    health.Thread
}

// read asks and reads all. answered is true once the server has answered the
// first statement.
func (r *probeReader) read(ctx context.Context, c *Conn, d *Dialect, o *health.Observation) (answered bool, err error) {
	before := r.semi
	full := before.value.MasterEnabled || time.Since(before.at) >= semiSyncEvery
	answered, err = r.ask(ctx, c, d, o, full)
	if err != nil || full {
		return answered, err
	}
	changed := o.SemiSync.MasterEnabled || o.SemiSync.SlaveEnabled != before.value.SlaveEnabled || ioThread(o) != before.io
	if changed {
		// Read again with the status, so that all of an observation is of one moment.
		o.Slave, o.Fetch, o.SemiSync = nil, nil, health.SemiSync{}
		return r.ask(ctx, c, d, o, true)
	}
	s := &o.SemiSync
	s.MasterOn, s.Clients, s.Waiting, s.SlaveOn = before.value.MasterOn, before.value.Clients, before.value.Waiting, before.value.SlaveOn
	s.YesTx, s.NoTx = before.value.YesTx, before.value.NoTx
	return answered, nil
}

func ioThread(o *health.Observation) health.Thread {
	if o.Slave == nil {
		return ""
	}
	return o.Slave.IO
}

// ask is one round trip.
func (r *probeReader) ask(ctx context.Context, c *Conn, d *Dialect, o *health.Observation, full bool) (answered bool, err error) {
	done, err := c.guard(ctx)
	if err != nil {
		return false, c.fail("probe", false, err)
	}
	statements := d.variables + "; " + d.slaves
	if full {
		statements = d.variables + "; " + d.semiSync + "; " + d.slaves
	}
	sent := time.Now()
	rows, err := c.query.QueryContext(context.Background(), statements, nil)
	if err == nil {
		answered = true
		err = r.readAll(rows, o, sent, full)
		if closeErr := rows.Close(); err == nil {
			err = closeErr
		}
	}
	if err == nil && full {
		r.semi = semiMemo{at: sent, value: o.SemiSync, io: ioThread(o)}
	}
	return answered, c.fail("probe", false, done(err))
}

func (r *probeReader) readAll(rows driver.Rows, o *health.Observation, sent time.Time, full bool) error {
	next, ok := rows.(driver.RowsNextResultSet)
	if !ok {
		return errors.New("the driver cannot read several results")
	}
	if err := r.variables(rows, o, sent); err != nil {
		return err
	}
	if err := next.NextResultSet(); err != nil {
		return err
	}
	if full {
		if err := r.semiSync(rows, &o.SemiSync); err != nil {
			return err
		}
		if err := next.NextResultSet(); err != nil {
			return err
		}
	}
	return r.slaves(rows, o)
}

// room gives n values to read a row into.
func (r *probeReader) room(n int) []driver.Value {
	if cap(r.values) < n {
		r.values = make([]driver.Value, n)
	}
	return r.values[:n]
}

func (r *probeReader) variables(rows driver.Rows, o *health.Observation, sent time.Time) error {
	v := r.room(9)
	if err := rows.Next(v); err != nil {
		return err
	}
	got := time.Now()
	clock, err := unixMicro(text(v[0]))
	if err != nil {
		return err
	}
	o.ClockOffset = clock.Sub(sent.Add(got.Sub(sent) / 2))
	o.ReadOnly = yes(v[1])
	if o.SlavePos, err = r.position("slave", text(v[2])); err != nil {
		return err
	}
	if o.BinlogPos, err = r.position("binlog", text(v[3])); err != nil {
		return err
	}
	if o.BinlogState, err = r.binlogState(text(v[4])); err != nil {
		return err
	}
	o.SemiSync.MasterEnabled = yes(v[5])
	o.SemiSync.AfterSync = string(text(v[6])) == "AFTER_SYNC"
	o.SemiSync.SlaveEnabled = yes(v[7])
	o.SemiSync.Timeout = time.Duration(min(integer(v[8]), maxMillis)) * time.Millisecond
	return end(rows.Next(v))
}

// maxMillis is the longest duration in whole milliseconds; servers know longer
// ones.
const maxMillis = uint64(math.MaxInt64 / int64(time.Millisecond))

func (r *probeReader) semiSync(rows driver.Rows, s *health.SemiSync) error {
	v := r.room(2)
	for {
		if err := rows.Next(v); err != nil {
			return end(err)
		}
		switch value := text(v[1]); string(text(v[0])) {
		case "Rpl_semi_sync_master_status":
			s.MasterOn = string(value) == "ON"
		case "Rpl_semi_sync_master_clients":
			s.Clients = int(number(value))
		case "Rpl_semi_sync_master_wait_sessions":
			s.Waiting = int(number(value))
		case "Rpl_semi_sync_master_yes_tx":
			s.YesTx = number(value)
		case "Rpl_semi_sync_master_no_tx":
			s.NoTx = number(value)
		case "Rpl_semi_sync_slave_status":
			s.SlaveOn = string(value) == "ON"
		}
	}
}

func (r *probeReader) slaves(rows driver.Rows, o *health.Observation) error {
	if r.columns == nil {
		names := rows.Columns()
		r.width, r.columns = len(names), make(map[string]int, len(names))
		for i, n := range names {
			r.columns[n] = i
		}
	}
	v := r.room(r.width)
	for {
		if err := rows.Next(v); err != nil {
			return end(err)
		}
		name := string(r.at(v, "Connection_name"))
		if name != "" && name != RescueConnection {
			continue
		}
		s, err := r.slave(v, name)
		if err != nil {
			return err
		}
		if name == "" {
			o.Slave = s
		} else {
			o.Fetch = s
		}
	}
}

// slave reads one row of SHOW ALL SLAVES STATUS.
func (r *probeReader) slave(v []driver.Value, name string) (*health.SlaveStatus, error) {
	num := func(column string) uint64 { return r.num(v, column) }
	str := func(column string) string { return string(r.at(v, column)) }
	s := &health.SlaveStatus{
		SourceHost: str("Master_Host"), SourcePort: uint16(num("Master_Port")), SourceServerID: uint32(num("Master_Server_Id")),
		IO: thread(r.at(v, "Slave_IO_Running")), SQL: thread(r.at(v, "Slave_SQL_Running")),
		IOErrno: uint16(num("Last_IO_Errno")), IOError: str("Last_IO_Error"),
		SQLErrno: uint16(num("Last_SQL_Errno")), SQLError: str("Last_SQL_Error"),
		SQLState: str("Slave_SQL_Running_State"), UsingGTID: str("Using_Gtid"),
		SourceLogFile: str("Master_Log_File"), ReadPos: num("Read_Master_Log_Pos"),
		ExecLogFile: str("Relay_Master_Log_File"), ExecPos: num("Exec_Master_Log_Pos"),
		RelayLogFile: str("Relay_Log_File"), RelayLogPos: num("Relay_Log_Pos"), RelayLogSpace: num("Relay_Log_Space"),
		Heartbeats:      num("Slave_received_heartbeats"),
		HeartbeatPeriod: time.Duration(r.float(v, "Slave_heartbeat_period") * float64(time.Second)),
		TLS:             string(r.at(v, "Master_SSL_Allowed")) == "Yes" && string(r.at(v, "Master_SSL_Verify_Server_Cert")) == "Yes",
		Delay:           time.Duration(num("SQL_Delay")) * time.Second,
	}
	for _, rule := range []string{"Replicate_Do_DB", "Replicate_Ignore_DB", "Replicate_Do_Table", "Replicate_Ignore_Table",
		"Replicate_Wild_Do_Table", "Replicate_Wild_Ignore_Table", "Replicate_Do_Domain_Ids", "Replicate_Ignore_Domain_Ids"} {
		s.Filtered = s.Filtered || len(r.at(v, rule)) > 0
	}
	var err error
	s.Received, err = r.position("received "+name, r.at(v, "Gtid_IO_Pos"))
	return s, err
}

// at is a column's text, nil if it is NULL or absent.
func (r *probeReader) at(v []driver.Value, column string) []byte {
	i, ok := r.columns[column]
	if !ok {
		return nil
	}
	return text(v[i])
}

func (r *probeReader) num(v []driver.Value, column string) uint64 {
	i, ok := r.columns[column]
	if !ok {
		return 0
	}
	switch n := v[i].(type) {
	case int64:
		return uint64(n)
	case uint64:
		return n
	}
	return number(text(v[i]))
}

func (r *probeReader) float(v []driver.Value, column string) float64 {
	i, ok := r.columns[column]
	if !ok {
		return 0
	}
	switch n := v[i].(type) {
	case float32:
		return float64(n)
	case float64:
		return n
	}
	f, err := strconv.ParseFloat(string(text(v[i])), 64)
	if err != nil {
		return 0
	}
	return f
}

// position parses a text, or gives what was parsed last time if it is the same.
func (r *probeReader) position(which string, text []byte) (gtid.Position, error) {
	if r.memo == nil {
		r.memo = make(map[string]*parsed)
	}
	m := r.memo[which]
	if m == nil {
		m = &parsed{}
		r.memo[which] = m
	}
	if bytes.Equal(m.text, text) {
		return m.value, nil
	}
	p, err := gtid.ParsePosition(string(text))
	if err != nil {
		return p, fmt.Errorf("%s position: %w", which, err)
	}
	m.text, m.value = append(m.text[:0], text...), p
	return p, nil
}

func (r *probeReader) binlogState(text []byte) (gtid.State, error) {
	if bytes.Equal(r.state.text, text) {
		return r.state.value, nil
	}
	s, err := gtid.ParseState(string(text))
	if err != nil {
		return s, fmt.Errorf("binary log state: %w", err)
	}
	r.state.text, r.state.value = append(r.state.text[:0], text...), s
	return s, nil
}

// text is a value as the driver read it; numbers have none.
func text(v driver.Value) []byte {
	b, _ := v.([]byte)
	return b
}

// yes reads a boolean variable.
func yes(v driver.Value) bool {
	if n, ok := v.(int64); ok {
		return n != 0
	}
	return isOn(string(text(v)))
}

// integer reads an unsigned variable, in whichever type the driver gives it.
func integer(v driver.Value) uint64 {
	switch n := v.(type) {
	case int64:
		return uint64(max(n, 0))
	case uint64:
		return n
	}
	return number(text(v))
}

func number(b []byte) uint64 {
	var n uint64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0
		}
		n = n*10 + uint64(c-'0')
	}
	return n
}

func thread(b []byte) health.Thread {
	switch string(b) {
	case "Yes":
		return health.ThreadYes
	case "Connecting", "Preparing":
		return health.ThreadConnecting
	default:
		return health.ThreadNo
	}
}

// unixMicro reads seconds with up to six decimals.
func unixMicro(b []byte) (time.Time, error) {
	whole, part, _ := bytes.Cut(b, []byte("."))
	if len(whole) == 0 || len(part) > 6 {
		return time.Time{}, fmt.Errorf("the server's clock reads %q", b)
	}
	micros := number(part)
	for range 6 - len(part) {
		micros *= 10
	}
	return time.Unix(int64(number(whole)), int64(micros)*1000), nil
}

// end turns the end of a result into no error.
func end(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
