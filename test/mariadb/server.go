package mariadb

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Bounds of what the kit does to a server when the caller gives none.
const (
	startTimeout = 60 * time.Second
	stopTimeout  = 60 * time.Second
	killTimeout  = 20 * time.Second
)

// Server is one MariaDB server. Its methods may be called from any goroutine,
// but starting and stopping one server at the same time is the caller's error.
type Server struct {
	Name string
	// Host and Port are where clients and other servers reach it.
	Host string
	Port int
	// Dir is the server's folder; the others lie in it.
	Dir, DataDir, Socket, PidFile, LogFile string
	// ConfigFile is the my.cnf; ConfigDir is the folder of drop-ins that it
	// includes last.
	ConfigFile, ConfigDir string
	// AdminUser and AdminPassword are an account with all privileges.
	AdminUser, AdminPassword string

	kit  *Kit
	opts Options

	mu       sync.Mutex
	proc     *child
	db       *sql.DB
	sessions *sql.DB
}

func newServer(k *Kit, opts Options) *Server {
	opts.Bind = cmp.Or(opts.Bind, "127.0.0.1")
	opts.Host = cmp.Or(opts.Host, "127.0.0.1")
	dir := filepath.Join(k.Dir, opts.Name)
	return &Server{
		Name: opts.Name, Host: opts.Host, Port: opts.Port, Dir: dir,
		DataDir: filepath.Join(dir, "data"), Socket: filepath.Join(dir, "mariadb.sock"),
		PidFile: filepath.Join(dir, "mariadb.pid"), LogFile: filepath.Join(dir, "error.log"),
		ConfigFile: filepath.Join(dir, "my.cnf"), ConfigDir: filepath.Join(dir, "conf.d"),
		AdminUser: AdminUser, AdminPassword: AdminPassword,
		kit: k, opts: opts,
	}
}

// Addr is host:port.
func (s *Server) Addr() string { return net.JoinHostPort(s.Host, strconv.Itoa(s.Port)) }

// DropInPath is where repld's drop-in belongs.
func (s *Server) DropInPath() string { return filepath.Join(s.ConfigDir, "99-repld.cnf") }

// PasswordFile is a file with the administrator's password, for command lines.
func (s *Server) PasswordFile() string { return s.kit.passwordFile() }

// RestartCommand is the command that restarts the server from outside, as a
// service manager would; the server outlives it and its caller.
func (s *Server) RestartCommand() []string { return []string{s.restartScript()} }

// StartAgain starts the server, which must not run, and waits until it answers.
func (s *Server) StartAgain(ctx context.Context) error {
	if pid := s.Pid(); pid != 0 {
		return fmt.Errorf("server %s: start: it runs as process %d", s.Name, pid)
	}
	c, err := s.startChild()
	if err != nil {
		return fmt.Errorf("server %s: start: %w", s.Name, err)
	}
	s.mu.Lock()
	s.proc = c
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return s.waitReady(ctx, c)
}

// waitReady waits until the server answers, or its process is gone.
func (s *Server) waitReady(ctx context.Context, c *child) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var died error
	err := Wait(ctx, func() error {
		select {
		case <-c.done:
			died = fmt.Errorf("server %s: start: it ended: %w; its log ends with:\n%s", s.Name, cmp.Or(c.err, errors.New("exit status 0")), s.LogTail(25))
			return nil
		default:
		}
		return s.ping(ctx)
	})
	if err != nil {
		return fmt.Errorf("server %s: start: %w; its log ends with:\n%s", s.Name, err, s.LogTail(25))
	}
	return died
}

// Kill ends the server as a crash does (SIGKILL) and waits until it is gone.
func (s *Server) Kill() error {
	pids := s.pids()
	if err := s.signal(syscall.SIGKILL); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
	defer cancel()
	if err := s.waitGone(ctx, pids, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill: %w", err)
	}
	return s.reaped(ctx)
}

// Stop ends the server in order (SIGTERM) and waits until it is gone. A frozen
// server must be thawed first.
func (s *Server) Stop(ctx context.Context) error {
	pids := s.pids()
	if err := s.signal(syscall.SIGTERM); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	if err := s.waitGone(ctx, pids, 0); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	return s.reaped(ctx)
}

// reaped waits until the process, if it was our child, has been waited for.
func (s *Server) reaped(ctx context.Context) error {
	s.mu.Lock()
	c := s.proc
	s.mu.Unlock()
	if c == nil {
		return nil
	}
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("server %s: process %d cannot be waited for: %w", s.Name, c.pid, ctx.Err())
	}
}

// Restart stops the server in order and starts it again.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.Stop(ctx); err != nil {
		return err
	}
	return s.StartAgain(ctx)
}

// Freeze stops the server's process (SIGSTOP): it accepts connections by the
// kernel's doing, but answers nothing.
func (s *Server) Freeze() error { return s.signal(syscall.SIGSTOP) }

// Thaw lets a frozen server go on (SIGCONT).
func (s *Server) Thaw() error { return s.signal(syscall.SIGCONT) }

// Close kills the server and ends the kit's connections to it; its folder stays
// until the kit is closed.
func (s *Server) Close() error {
	s.mu.Lock()
	pools := []*sql.DB{s.db, s.sessions}
	s.db, s.sessions = nil, nil
	s.mu.Unlock()
	for _, db := range pools {
		if db != nil {
			// It fails when the server was killed before; there is nothing to lose.
			_ = db.Close()
		}
	}
	return s.Kill()
}

// ErrorLog is the server's whole log.
func (s *Server) ErrorLog() string {
	b, err := os.ReadFile(s.LogFile)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// LogTail is the last lines of the server's log.
func (s *Server) LogTail(lines int) string {
	all := strings.Split(strings.TrimRight(s.ErrorLog(), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
