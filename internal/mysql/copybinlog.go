package mysql

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/repld/repld/internal/gtid"
)

// FilesFrom lists, in order, the binary log files of a server from the one that
// holds transaction g, or from the oldest if g lies before it. inFirst tells
// whether g is inside the first file listed; if not, it was purged.
func FilesFrom(ctx context.Context, c *Conn, g gtid.GTID) (files []string, inFirst bool, err error) {
	logs, err := c.Query(ctx, "SHOW BINARY LOGS")
	if err != nil {
		return nil, false, wrap("list binary logs", err)
	}
	for i := len(logs) - 1; i >= 0; i-- {
		name := logs[i].String("Log_name")
		files = append([]string{name}, files...)
		before, err := stateBefore(ctx, c, name)
		if err != nil {
			return nil, false, err
		}
		if g.IsZero() {
			// Nothing is common: all files, and the first is reached when nothing stands
			// before it.
			if before.IsEmpty() {
				return files, true, nil
			}
			continue
		}
		if !before.Contains(g) {
			return files, true, nil
		}
	}
	return files, false, nil
}

// stateBefore is what had been written before a binary log file was begun.
func stateBefore(ctx context.Context, c *Conn, file string) (gtid.State, error) {
	rows, err := c.Query(ctx, "SHOW BINLOG EVENTS IN "+QuoteString(file)+" LIMIT 5")
	if err != nil {
		return gtid.State{}, wrap("read binary log "+file, err)
	}
	for i := range rows {
		if rows[i].String("Event_type") == "Gtid_list" {
			st, err := gtid.ParseState(strings.Trim(rows[i].String("Info"), "[]"))
			return st, wrap("read binary log "+file, err)
		}
	}
	return gtid.State{}, fmt.Errorf("read binary log %s: it does not begin with a list of GTIDs", file)
}

// FetchBinlogs copies whole binary log files of a server, byte by byte, into a
// folder under their own names. The program that does it is no semi-sync slave:
// no commit is ever answered because of it.
func FetchBinlogs(ctx context.Context, from ClientLogin, files []string, dir string) error {
	if len(files) == 0 {
		return nil
	}
	from, remove, err := from.withFile()
	if err != nil {
		return err
	}
	defer remove()
	options, err := from.optionFile("mariadb-binlog", "read-from-remote-server", "raw")
	if err != nil {
		return err
	}
	args := append([]string{"--result-file=" + dir + string(os.PathSeparator)}, files...)
	cmd := exec.CommandContext(ctx, "mariadb-binlog", args...)
	childOf(cmd)
	var stderr limitedBuffer
	cmd.Stderr = &stderr
	started, err := giveOptions(cmd, options)
	if err != nil {
		return err
	}
	err = cmd.Start()
	started()
	if err != nil {
		return wrap("fetch binary logs", err)
	}
	if err := cmd.Wait(); err != nil {
		return &ProgramError{Program: "mariadb-binlog", Message: stderr.String(), Err: err}
	}
	for _, f := range files {
		if err := os.Chmod(filepath.Join(dir, f), 0o600); err != nil {
			return wrap("fetch binary logs", err)
		}
	}
	return nil
}

// ReadableBinlog writes binary log files as commented SQL, rows included, from a
// position in the first of them on.
func ReadableBinlog(ctx context.Context, files []string, start uint64, into string) error {
	out, err := os.OpenFile(into, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return wrap("write readable binary log", err)
	}
	args := append([]string{"--no-defaults", "-v", "--base64-output=decode-rows", fmt.Sprintf("--start-position=%d", start)}, files...)
	cmd := exec.CommandContext(ctx, "mariadb-binlog", args...)
	childOf(cmd)
	var stderr limitedBuffer
	cmd.Stdout, cmd.Stderr = out, &stderr
	err = cmd.Run()
	if err != nil {
		err = &ProgramError{Program: "mariadb-binlog", Message: stderr.String(), Err: err}
	} else {
		err = out.Sync()
	}
	if closeErr := out.Close(); err == nil {
		err = closeErr
	}
	return err
}
