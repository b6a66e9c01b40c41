package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/repld/repld/test/rig"
)

// screen prints what a user would see: headings, commands as they would be
// typed, and their output. The rig's folder is called $D.
type screen struct {
	out     io.Writer
	dir     string
	chapter int
}

// head begins a chapter.
func (s *screen) head(title string) {
	s.chapter++
	fmt.Fprintf(s.out, "\n== %d. %s\n\n", s.chapter, title)
}

func (s *screen) say(format string, args ...any) {
	fmt.Fprintln(s.out, s.short(fmt.Sprintf(format, args...)))
}

// output prints what a command put out.
func (s *screen) output(text string) {
	w := &indenter{screen: s}
	fmt.Fprint(w, text)
	w.flush()
	fmt.Fprintln(s.out)
}

// background prints a command that a user would run beside the shell.
func (s *screen) background(command ...string) {
	fmt.Fprintf(s.out, "$ %s &\n", s.short(strings.Join(command, " ")))
}

// shell prints a command; what is too long for one line goes on after a
// backslash, an option and its value together.
func (s *screen) shell(command string, args ...string) {
	const width = 92
	line := "$ " + command
	for i := 0; i < len(args); i++ {
		word := quote(s.short(args[i]))
		if strings.HasPrefix(args[i], "--") && i+1 < len(args) && !strings.HasPrefix(args[i+1], "--") {
			i++
			word += " " + quote(s.short(args[i]))
		}
		if len(line)+1+len(word) > width {
			fmt.Fprintln(s.out, line+` \`)
			line = "     "
		}
		line += " " + word
	}
	fmt.Fprintln(s.out, line)
}

// quote makes one word for a shell of an argument, where that needs anything.
func quote(word string) string {
	if word != "" && !strings.ContainsAny(word, " \t\n'\"\\&;|<>()*?`") {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

func (s *screen) short(text string) string { return strings.ReplaceAll(text, s.dir, "$D") }

// replctl runs replctl, shows the command and its output as it comes, and gives
// an error unless it exits with one of the codes that are expected.
func (s *screen) replctl(ctx context.Context, r *rig.Rig, expected []int, args ...string) error {
	s.shell("replctl", args...)
	lines := &indenter{screen: s}
	cmd := r.Command(ctx, args...)
	cmd.Stdout, cmd.Stderr = lines, lines // one writer: written to by one goroutine
	err := cmd.Run()
	lines.flush()
	fmt.Fprintln(s.out)
	if cmd.ProcessState == nil {
		return fmt.Errorf("replctl %s: %w", args[0], err)
	}
	for _, code := range expected {
		if cmd.ProcessState.ExitCode() == code {
			return nil
		}
	}
	return fmt.Errorf("replctl %s: exit code %d, not %v (%w)", strings.Join(args, " "), cmd.ProcessState.ExitCode(), expected, err)
}

// indenter passes whole lines on, indented and with the folder's short name.
type indenter struct {
	screen *screen
	rest   []byte
}

func (w *indenter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		line, after, found := bytes.Cut(w.rest, []byte("\n"))
		if !found {
			return len(p), nil
		}
		w.print(string(line))
		w.rest = after
	}
}

func (w *indenter) flush() {
	if len(w.rest) > 0 {
		w.print(string(w.rest))
		w.rest = nil
	}
}

func (w *indenter) print(line string) {
	fmt.Fprintln(w.screen.out, strings.TrimRight("    "+w.screen.short(line), " "))
}
