package mariadb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Options say how a server is made. The zero value is a plain server.
type Options struct {
	// Name is the server's folder and what messages call it; default db1, db2, …
	Name string
	// Config are lines for the [mariadbd] section of its my.cnf, for example
	// "log-bin" or "server-id=2".
	Config []string
	// Args are further arguments of mariadbd, which override every file.
	Args []string
	// Port to listen on; default a free one.
	Port int
	// Bind is the address to listen on and Host the one that Addr names; default
	// both 127.0.0.1.
	Bind, Host string
	// Prefix runs the server by another command, for example
	// {"ip", "netns", "exec", "blue"}, which must execute it in its own place.
	Prefix []string
	// Env are variables for the server, as NAME=value.
	Env []string
	// Anonymous keeps the anonymous accounts and the test database that an
	// installation without further care has.
	Anonymous bool
}

// Replicating are the lines of a server that can be a master or a slave, for
// tests that need replication but not repld's own set-up of it.
func Replicating(serverID int) []string {
	return []string{
		fmt.Sprintf("server-id=%d", serverID), "log-bin=binlog", "relay-log=relay",
		"log-slave-updates=1", "gtid-strict-mode=1", "skip-slave-start=1",
		"sync-binlog=1", "innodb-flush-log-at-trx-commit=1", "binlog-format=MIXED",
	}
}

// lay makes the server's folder: data, option file and restart script.
func (s *Server) lay(ctx context.Context) error {
	template, err := s.kit.template(ctx, s.opts.Anonymous)
	if err != nil {
		return err
	}
	if err := s.copy(ctx, template); err != nil {
		return fmt.Errorf("server %s: prepare: %w", s.Name, err)
	}
	return nil
}

// copy fills the folder from the template.
func (s *Server) copy(ctx context.Context, template string) error {
	if len(s.Socket) > 107 {
		return fmt.Errorf("path of the socket is too long for the system: %s", s.Socket)
	}
	if err := errors.Join(os.MkdirAll(s.ConfigDir, 0o755), os.Mkdir(s.tmpDir(), 0o755)); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, "cp", "-a", "--reflink=auto", template, s.DataDir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("copy of the template: %w: %s", err, out)
	}
	if s.kit.user == "mysql" {
		// The folder too: the socket, the log and the pid file are made in it.
		out, err := exec.CommandContext(ctx, "chown", "-R", "mysql:", s.Dir).CombinedOutput()
		if err != nil {
			return fmt.Errorf("chown: %w: %s", err, out)
		}
	}
	// Not writable by others, or the server ignores it.
	if err := os.WriteFile(s.ConfigFile, s.myCnf(), 0o644); err != nil {
		return err
	}
	return os.WriteFile(s.restartScript(), s.restartText(), 0o755)
}

// myCnf is the option file of a user who has not set up replication.
func (s *Server) myCnf() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# The server's own settings.\n[mariadbd]\n")
	fmt.Fprintf(&b, "datadir=%s\nsocket=%s\npid-file=%s\nlog-error=%s\n", s.DataDir, s.Socket, s.PidFile, s.LogFile)
	// Servers that share a tmpdir remove each other's temporary tables on start.
	fmt.Fprintf(&b, "tmpdir=%s\n", s.tmpDir())
	fmt.Fprintf(&b, "port=%d\nbind-address=%s\n", s.Port, s.opts.Bind)
	for _, lines := range [][]string{smallServer[:], s.opts.Config} {
		for _, line := range lines {
			fmt.Fprintln(&b, line)
		}
	}
	fmt.Fprintf(&b, "\n# Drop-ins come last and win.\n!includedir %s/\n", s.ConfigDir)
	return b.Bytes()
}

// argv is the command that runs the server.
func (s *Server) argv() []string {
	argv := append([]string(nil), s.opts.Prefix...)
	if len(s.opts.Env) > 0 {
		argv = append(append(argv, "env"), s.opts.Env...)
	}
	argv = append(argv, s.kit.binaries.server, s.marker())
	if s.kit.user != "" {
		argv = append(argv, "--user="+s.kit.user)
	}
	return append(argv, s.opts.Args...)
}

func (s *Server) tmpDir() string { return filepath.Join(s.Dir, "tmp") }

func (s *Server) restartScript() string { return filepath.Join(s.Dir, "restart") }

// restartText is a script that does what a service manager does on restart.
func (s *Server) restartText() []byte {
	return fmt.Appendf(nil, `#!/bin/sh
# Restarts this server: ends it, waits until it is gone, starts it again and
# returns when it answers. Exit code 1 with the end of its log if it does not.
# A zombie that nobody waits for is gone, unless its threads still hold files.
running() {
	stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
	case "${stat##*) }" in
	Z* | X*) [ "$(ls "/proc/$1/task" 2>/dev/null | wc -l)" -gt 1 ] ;;
	esac
}
pid=$(cat %[2]s 2>/dev/null)
if [ -n "$pid" ] && grep -qzxF -e %[1]s "/proc/$pid/cmdline" 2>/dev/null; then
	kill -TERM "$pid"
	tries=0
	while running "$pid"; do
		tries=$((tries + 1))
		if [ "$tries" -gt 1200 ]; then
			echo "the server did not stop within 60 s" >&2
			exit 1
		fi
		sleep 0.05
	done
fi
cd %[7]s || exit 1
setsid %[3]s </dev/null >>%[4]s 2>&1 &
pid=$!
tries=0
until %[5]s --no-defaults --connect-timeout=5 --socket=%[6]s ping >/dev/null 2>&1; do
	tries=$((tries + 1))
	if ! running "$pid" || [ "$tries" -gt 1200 ]; then
		echo "the server did not start; its log ends with:" >&2
		tail -n 20 %[4]s >&2
		exit 1
	fi
	sleep 0.05
done
`, quote(s.marker()), quote(s.PidFile), quoteAll(s.argv()), quote(s.LogFile), quote(s.kit.binaries.admin), quote(s.Socket), quote(s.Dir))
}

// quote makes one word of s for a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func quoteAll(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = quote(w)
	}
	return strings.Join(quoted, " ")
}
