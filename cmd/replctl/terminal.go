package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/repld/repld/internal/fault"
)

func isTerminal(f *os.File) bool {
	if f == nil {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// plainOutput tells whether w should get no colours: it is no terminal, or the
// user said so.
func (c *cli) plainOutput(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || !isTerminal(f) {
		return true
	}
	noColor, _ := c.env("NO_COLOR")
	term, _ := c.env("TERM")
	return noColor != "" || term == "dumb"
}

// secret reads a password without showing it.
func (c *cli) secret(ctx context.Context, prompt string) (string, error) {
	fd := int(c.stdin.Fd())
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return "", noPassword(fmt.Sprintf("there is no terminal to ask on: %v", err))
	}
	silent := *before
	silent.Lflag &^= unix.ECHO
	silent.Lflag |= unix.ICANON | unix.ISIG
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &silent); err != nil {
		return "", noPassword(fmt.Sprintf("the terminal cannot be silenced: %v", err))
	}
	defer func() {
		_ = unix.IoctlSetTermios(fd, unix.TCSETS, before)
		c.print(c.stderr, "\n")
	}()
	c.print(c.stderr, prompt)
	type answer struct {
		text string
		err  error
	}
	// As in ask: the read cannot be cancelled, the process is about to end.
	read := make(chan answer, 1)
	go func() {
		text, err := bufio.NewReader(c.stdin).ReadString('\n')
		read <- answer{text, err}
	}()
	select {
	case <-ctx.Done():
		return "", noPassword("interrupted")
	case a := <-read:
		if a.err != nil && !errors.Is(a.err, io.EOF) {
			return "", noPassword(a.err.Error())
		}
		return trimNewline(a.text), nil
	}
}

// trimNewline takes one line ending off, as an editor leaves it in a file; any
// other blank belongs to the password.
func trimNewline(s string) string {
	return strings.TrimSuffix(strings.TrimSuffix(s, "\n"), "\r")
}

func noPassword(cause string) error {
	return &fault.Error{Kind: fault.Usage, Code: "no_password", What: "the administrator's password is missing", Cause: cause,
		State: "nothing was changed", Do: "give --admin-password-file, set REPLCTL_ADMIN_PASSWORD, or use --admin-socket"}
}
