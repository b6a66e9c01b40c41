package provision

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/repld/repld/internal/fault"
)

// maxOutput is how much of a command's output an error shows: its end.
const maxOutput = 2000

// runCommand runs an argument list without a shell and gives the end of its
// output. The output goes to a file, not a pipe: a server that the command
// started keeps it open, and must not keep repld waiting. At the deadline the
// command alone is killed, never what it started.
func runCommand(ctx context.Context, argv []string, stdin string, limit time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	out, err := os.CreateTemp("", "repld-command-")
	if err != nil {
		return "", err
	}
	defer func() {
		_ = out.Close()
		_ = os.Remove(out.Name())
	}()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	if stdin == "" {
		cmd.Stdin = nil
	}
	cmd.Stdout, cmd.Stderr = out, out
	// A session of its own: what stops repld must not stop the server.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	text := tail(out.Name())
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return text, fmt.Errorf("%s did not end within %s", quoteArgs(argv), limit)
	case err != nil:
		return text, fmt.Errorf("%s: %w", quoteArgs(argv), err)
	}
	return text, nil
}

func tail(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	text = bytes.TrimSpace(text)
	if len(text) > maxOutput {
		text = append([]byte("… "), text[len(text)-maxOutput:]...)
	}
	return strings.ToValidUTF8(string(text), "?")
}

// withOutput joins an error and what the command said.
func withOutput(err error, output string) string {
	if output == "" {
		return fault.Brief(err) + " (it said nothing)"
	}
	return fault.Brief(err) + ": " + output
}

// RunRestart runs a server's restart command to its end, without a shell, and
// gives what it printed.
func RunRestart(ctx context.Context, argv []string, limit time.Duration) (string, error) {
	return runCommand(ctx, argv, "", limit)
}
