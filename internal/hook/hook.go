package hook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// MaxOutput is how many bytes of what a program prints are kept: the last ones.
const MaxOutput = 4096

// inherited are the variables of repld's own environment that a program gets. A
// whole environment may hold secrets.
var inherited = []string{"PATH", "HOME", "LANG"}

// drainFor is how long output is still read after the program ended: a process
// that it left in the background may hold it open for ever.
const drainFor = 500 * time.Millisecond

// Call is one run of a program.
type Call struct {
	// Argv is the program and its arguments; no shell looks at them.
	Argv []string
	// Env are further variables, NAME=value.
	Env []string
	// Stdin is what the program can read.
	Stdin []byte
	// Timeout ends the program and all of its process group with SIGKILL.
	Timeout time.Duration
}

// Errors that [Run] wraps.
var (
	// ErrTimeout: the program did not end in time and was killed.
	ErrTimeout = errors.New("it did not end in time and was killed")
	// ErrNotStarted: the program could not be started.
	ErrNotStarted = errors.New("it could not be started")
)

// Run runs a program to its end and returns the last [MaxOutput] bytes of what it
// printed, standard output and error together. The error is nil if it exited
// with 0; it wraps [ErrTimeout], [ErrNotStarted], the context's error, or is an
// *exec.ExitError.
func Run(ctx context.Context, c Call) (output string, err error) {
	if len(c.Argv) == 0 {
		return "", fmt.Errorf("%w: no program is named", ErrNotStarted)
	}
	limited, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	cmd := exec.CommandContext(limited, c.Argv[0], c.Argv[1:]...)
	cmd.Env = append(environment(), c.Env...)
	cmd.Stdin = bytes.NewReader(c.Stdin)
	var out tail
	cmd.Stdout, cmd.Stderr = &out, &out
	// A group of its own, so that what the program has started ends with it, and
	// so that a Ctrl-C for repld does not end it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = drainFor
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("%s: %w: %w", c.Argv[0], ErrNotStarted, err)
	}
	err = cmd.Wait()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it exited with 0 and left something in the background
	}
	var exit *exec.ExitError
	switch {
	case err == nil || errors.As(err, &exit) && exit.Exited():
	case ctx.Err() != nil:
		err = fmt.Errorf("%s: %w", c.Argv[0], context.Cause(ctx))
	case limited.Err() != nil:
		err = fmt.Errorf("%s: %w after %v", c.Argv[0], ErrTimeout, c.Timeout)
	}
	return out.String(), err
}

func environment() []string {
	var out []string
	for _, name := range inherited {
		if v, ok := os.LookupEnv(name); ok {
			out = append(out, name+"="+v)
		}
	}
	return out
}

// Check says why a program cannot be run, nil if it can: it is to be an absolute
// path or a name found in PATH, and an executable file.
func Check(argv []string) error {
	if len(argv) == 0 {
		return errors.New("no program is named")
	}
	name := argv[0]
	if strings.ContainsRune(name, filepath.Separator) && !filepath.IsAbs(name) {
		return fmt.Errorf("%q is neither an absolute path nor a name to be found in PATH", name)
	}
	if _, err := exec.LookPath(name); err != nil {
		var not *exec.Error
		if errors.As(err, &not) {
			err = not.Err
		}
		return fmt.Errorf("the program %q cannot be run: %w", name, err)
	}
	return nil
}

// tail keeps the last MaxOutput bytes. exec writes from one goroutine at a time,
// since both streams are the same writer.
type tail struct {
	kept []byte
	cut  bool
}

// Write implements io.Writer; it never fails.
func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	if over := len(p) - MaxOutput; over > 0 {
		p, t.cut = p[over:], true
	}
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - MaxOutput; over > 0 {
		t.kept, t.cut = append([]byte(nil), t.kept[over:]...), true
	}
	return n, nil
}

// String is the text that is kept, without the characters that would play with
// a terminal.
func (t *tail) String() string {
	text := strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(t.kept), "�"))
	text = strings.TrimSpace(text)
	if t.cut {
		text = "… " + text
	}
	return text
}
