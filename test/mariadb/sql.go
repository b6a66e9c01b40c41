package mariadb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"
)

// statementTimeout bounds the statements of callers that set no deadline.
const statementTimeout = 30 * time.Second

// ErrNoRow is returned when a query that should give a row gives none.
var ErrNoRow = errors.New("no row")

// DB is a pool of connections of the administrator by the server's socket. It
// belongs to the server and is closed with it. Statements that change their
// session belong on a [Server.Conn].
func (s *Server) DB() (*sql.DB, error) {
	return s.pool(&s.db, 2)
}

// Conn is one connection of the administrator, for statements that belong to
// one session. Close it; the session ends with it.
func (s *Server) Conn(ctx context.Context) (*sql.Conn, error) {
	// No idle connections: a variable set in one session must not be found in
	// the next.
	db, err := s.pool(&s.sessions, -1)
	if err != nil {
		return nil, err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("server %s: connect: %w", s.Name, err)
	}
	return conn, nil
}

// pool opens a pool once.
func (s *Server) pool(db **sql.DB, idle int) (*sql.DB, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *db != nil {
		return *db, nil
	}
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net, cfg.Addr = s.AdminUser, s.AdminPassword, "unix", s.Socket
	cfg.Timeout = 5 * time.Second
	cfg.InterpolateParams = true
	// Broken connections are this package's daily work, not worth a message.
	cfg.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, fmt.Errorf("server %s: connect: %w", s.Name, err)
	}
	*db = sql.OpenDB(connector)
	(*db).SetMaxIdleConns(idle)
	return *db, nil
}

func (s *Server) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := s.Value(ctx, "SELECT 1")
	return err
}

// Exec runs statements one after the other in a session of their own.
func (s *Server) Exec(ctx context.Context, statements ...string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	conn, err := s.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, q := range statements {
		if _, err := conn.ExecContext(ctx, q); err != nil {
			return fmt.Errorf("server %s: %s: %w", s.Name, q, err)
		}
	}
	return nil
}

// Value is the first column of the query's first row; "NULL" for NULL.
func (s *Server) Value(ctx context.Context, query string, args ...any) (string, error) {
	var v sql.NullString
	ctx, cancel := bounded(ctx)
	defer cancel()
	db, err := s.DB()
	if err != nil {
		return "", err
	}
	if err := db.QueryRowContext(ctx, query, args...).Scan(&v); err != nil {
		return "", fmt.Errorf("server %s: %s: %w", s.Name, query, err)
	}
	return orNull(v), nil
}

// Row is the query's first row by column names, "NULL" for NULL; [ErrNoRow] if
// there is none.
func (s *Server) Row(ctx context.Context, query string, args ...any) (map[string]string, error) {
	rows, err := s.Rows(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("server %s: %s: %w", s.Name, query, ErrNoRow)
	}
	return rows[0], nil
}

// Rows are the query's rows by column names, "NULL" for NULL.
func (s *Server) Rows(ctx context.Context, query string, args ...any) ([]map[string]string, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	db, err := s.DB()
	if err != nil {
		return nil, err
	}
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, fmt.Errorf("server %s: %s: %w", s.Name, query, err)
	}
	defer rows.Close()
	out, err := scanAll(rows)
	if err != nil {
		return nil, fmt.Errorf("server %s: %s: %w", s.Name, query, err)
	}
	return out, nil
}

func scanAll(rows *sql.Rows) ([]map[string]string, error) {
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var out []map[string]string
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		targets := make([]any, len(columns))
		for i := range values {
			targets[i] = &values[i]
		}
		if err := rows.Scan(targets...); err != nil {
			return nil, err
		}
		row := make(map[string]string, len(columns))
		for i, c := range columns {
			row[c] = orNull(values[i])
		}
		out = append(out, row)
	}
	return out, rows.Err()
}

func orNull(v sql.NullString) string {
	if !v.Valid {
		return "NULL"
	}
	return v.String
}

// bounded gives ctx a deadline if it has none.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, statementTimeout)
}
