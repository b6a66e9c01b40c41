package mysql

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
)

// LoadText runs the statements of a dump on a server, by the client program,
// without writing a single one to the server's binary log. It returns when all
// of text was executed, or the first error that ended it. Cancelling ctx kills
// the program; the server rolls back the statement under way and keeps those
// before it.
func LoadText(ctx context.Context, into ClientLogin, text io.Reader) error {
	into, remove, err := into.withFile()
	if err != nil {
		return err
	}
	defer remove()
	options, err := into.optionFile("mariadb-client",
		// binary-mode: a line that looks like a client command inside a value is data.
		"batch", "binary-mode", "skip-reconnect", "skip-auto-rehash",
		"max-allowed-packet=1G", "default-character-set=utf8mb4",
		`init-command="SET SESSION sql_log_bin=0, SESSION max_statement_time=0, SESSION innodb_lock_wait_timeout=600"`)
	if err != nil {
		return err
	}
	var stderr limitedBuffer
	cmd := exec.CommandContext(ctx, "mariadb")
	childOf(cmd)
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	started, err := giveOptions(cmd, options)
	if err != nil {
		return err
	}
	err = cmd.Start()
	started()
	if err != nil {
		return fmt.Errorf("load: %w", err)
	}
	// First of all, in the stream itself: the initial command above is not checked
	// by the client, and a statement that fails in the stream ends the load.
	_, err = io.WriteString(in, "SET SESSION sql_log_bin=0;\n")
	if err == nil {
		_, err = io.CopyBuffer(struct{ io.Writer }{in}, text, make([]byte, 256<<10))
	}
	closeErr := in.Close()
	if ended := cmd.Wait(); ended != nil {
		// The client's own reason is the cause; that its input broke follows from it.
		return &ProgramError{Program: "mariadb", Message: stderr.String(), Err: ended}
	}
	if err = errors.Join(err, closeErr); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	return nil
}
