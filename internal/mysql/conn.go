package mysql

import (
	"context"
	"crypto/tls"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	sqldriver "github.com/go-sql-driver/mysql"
)

// Target says how to reach and enter a server.
type Target struct {
	// Name is how errors call the server; "" means its address.
	Name string
	// Address is host:port; an IPv6 host is in brackets. Socket, if set, is the
	// path of a unix socket and is used instead.
	Address string
	Socket  string
	User    string
	// Password is never part of an error or a log line.
	Password string
	// TLS is the configuration of an encrypted connection; nil connects in clear
	// text. Its ServerName must be set, or be derived by [TLSFor].
	TLS *tls.Config
}

// Label is the server's name for messages.
func (t Target) Label() string {
	switch {
	case t.Name != "":
		return t.Name
	case t.Socket != "":
		return t.Socket
	default:
		return t.Address
	}
}

// String never shows the password, whatever verb prints it.
func (t Target) String() string { return fmt.Sprintf("%s (%s as %s)", t.Label(), t.where(), t.User) }

// GoString is as [Target.String].
func (t Target) GoString() string { return t.String() }

func (t Target) where() string {
	if t.Socket != "" {
		return t.Socket
	}
	return t.Address
}

// Conn is one connection to one server. It is not safe for concurrent use. A
// connection whose statement was cut short by a deadline is closed; every
// later use of it fails.
type Conn struct {
	target Target
	raw    driver.Conn
	query  driver.QueryerContext
	exec   driver.ExecerContext
	wire   *wire
	// lost is set once a statement got no answer.
	lost bool
}

// sessionSettings make a session behave the same whatever the server's
// defaults are: global autocommit=0 would leave an INSERT uncommitted, a
// global sql_mode changes what a quote means, a small max_statement_time or
// wait_timeout would end what must be waited for.
var sessionSettings = map[string]string{
	"autocommit":         "1",
	"sql_mode":           "''",
	"time_zone":          "'+00:00'",
	"wait_timeout":       "28800",
	"max_statement_time": "0",
}

// Dial opens one connection within ctx's deadline. The error tells by
// [Classify] what was met; turn it into words for a user with [Explain].
func Dial(ctx context.Context, t Target) (*Conn, error) { return dial(ctx, t, false) }

func dial(ctx context.Context, t Target, multi bool) (*Conn, error) {
	w := &wire{}
	disarm := func() {}
	cfg := sqldriver.NewConfig()
	cfg.User, cfg.Passwd = t.User, t.Password
	cfg.Net, cfg.Addr = "tcp", t.Address
	if t.Socket != "" {
		cfg.Net, cfg.Addr = "unix", t.Socket
	} else {
		cfg.TLS = t.TLS
	}
	cfg.Logger = &sqldriver.NopLogger{}
	cfg.InterpolateParams = true
	cfg.CheckConnLiveness = false
	cfg.MultiStatements = multi
	cfg.Params = sessionSettings
	// Deadlines are put on the socket itself, here and in guard: the driver's own
	// way costs two switches of goroutines per statement and loses the cause of
	// an error.
	cfg.DialFunc = func(_ context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		w.set(c)
		disarm = w.arm(ctx)
		return w, nil
	}
	connector, err := sqldriver.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", t.Label(), err)
	}
	raw, err := connect(connector)
	disarm()
	if err != nil {
		w.shut()
		return nil, &ConnectError{Server: t.Label(), Where: t.where(), Err: w.cause(ctx, err)}
	}
	c := &Conn{target: t, raw: raw, wire: w}
	c.query, _ = raw.(driver.QueryerContext)
	c.exec, _ = raw.(driver.ExecerContext)
	if c.query == nil || c.exec == nil {
		_ = raw.Close()
		return nil, fmt.Errorf("connect to %s: the driver cannot run plain statements", t.Label())
	}
	return c, nil
}

// connect turns a panic into an error: the driver indexes into the greeting
// without checking its length, so that whatever else listens on the port could
// otherwise bring the process down.
func connect(c driver.Connector) (raw driver.Conn, err error) {
	defer func() {
		if p := recover(); p != nil {
			raw, err = nil, fmt.Errorf("%w: its greeting could not be read", errNotMySQL)
		}
	}()
	return c.Connect(context.Background())
}

// Target is what the connection was dialled with.
func (c *Conn) Target() Target { return c.target }

// TLS tells whether the connection is encrypted.
func (c *Conn) TLS() bool { return c.target.TLS != nil && c.target.Socket == "" }

// Close ends the connection. It does not wait for the server.
func (c *Conn) Close() error {
	if c.lost {
		_ = c.raw.Close() // ends the driver's goroutine; the socket is closed already
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	disarm := c.wire.arm(ctx)
	_ = c.raw.Close() // a connection that the server has closed already is closed
	disarm()
	c.wire.shut()
	return nil
}

// Secret is a string argument of a statement that must not show in an error.
type Secret string

// Exec runs one statement. Arguments replace the ?s, escaped by the driver;
// they may be string, [Secret], bool, int, int64, uint32, uint64 or nil.
func (c *Conn) Exec(ctx context.Context, statement string, args ...any) error {
	named, secret, err := arguments(args)
	if err != nil {
		return c.fail(statement, secret, err)
	}
	done, err := c.guard(ctx)
	if err != nil {
		return c.fail(statement, secret, err)
	}
	_, err = c.exec.ExecContext(context.Background(), statement, named)
	return c.fail(statement, secret, done(err))
}

// Query runs one statement and reads all its rows.
func (c *Conn) Query(ctx context.Context, statement string, args ...any) ([]Row, error) {
	named, secret, err := arguments(args)
	if err != nil {
		return nil, c.fail(statement, secret, err)
	}
	done, err := c.guard(ctx)
	if err != nil {
		return nil, c.fail(statement, secret, err)
	}
	rows, err := c.query.QueryContext(context.Background(), statement, named)
	if err != nil {
		return nil, c.fail(statement, secret, done(err))
	}
	out, err := readRows(rows)
	if closeErr := rows.Close(); err == nil {
		err = closeErr
	}
	return out, c.fail(statement, secret, done(err))
}

// QueryRow runs one statement and gives its first row, nil if there is none.
func (c *Conn) QueryRow(ctx context.Context, statement string, args ...any) (*Row, error) {
	rows, err := c.Query(ctx, statement, args...)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}

// guard puts ctx's deadline and end on the socket for one statement. The
// function it returns takes them off again and gives the statement's true
// error.
func (c *Conn) guard(ctx context.Context) (func(error) error, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	disarm := c.wire.arm(ctx)
	return func(err error) error {
		disarm()
		var fromServer *sqldriver.MySQLError
		if err == nil || errors.As(err, &fromServer) {
			return err
		}
		if errors.Is(err, driver.ErrSkip) {
			return errors.New("not sent: the arguments do not fit the statement")
		}
		c.lost = true
		c.wire.shut()
		return c.wire.cause(ctx, err)
	}, nil
}

func (c *Conn) fail(statement string, secret bool, err error) error {
	if err == nil {
		return nil
	}
	return &StatementError{Server: c.target.Label(), Statement: digest(statement), Err: redact(err, secret)}
}

// digest is a statement's first words: enough to recognise it, and never a value.
func digest(statement string) string {
	words := strings.Fields(statement)
	if len(words) > 6 {
		words = append(words[:6], "…")
	}
	return strings.Join(words, " ")
}

func arguments(args []any) (named []driver.NamedValue, secret bool, err error) {
	for i, a := range args {
		var v driver.Value
		switch a := a.(type) {
		case nil:
		case Secret:
			v, secret = string(a), true
		case string:
			v = a
		case bool:
			v = a
		case int:
			v = int64(a)
		case int64:
			v = a
		case uint16:
			v = int64(a)
		case uint32:
			v = int64(a)
		case uint64:
			v = a
		default:
			return nil, secret, fmt.Errorf("argument %d: type %T is not one of those that can be sent", i+1, a)
		}
		named = append(named, driver.NamedValue{Ordinal: i + 1, Value: v})
	}
	return named, secret, nil
}
