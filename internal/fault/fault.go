// Package fault holds the one error type that reaches a user. Such an error
// has four parts: what failed (on which server, with the server's own error
// number), its cause, the state that things were left in, and what to do.
package fault

import (
	"errors"
	"fmt"
	"strings"
)

// Kind says how bad it is and decides the exit code of replctl.
type Kind int

// The kinds, with replctl's exit codes.
const (
	Failed      Kind = 1 // failed, rolled back, or nothing done
	Usage       Kind = 2 // usage or configuration
	Refused     Kind = 5 // refused by a safety rule
	Unreachable Kind = 6 // repld cannot be reached
	Partly      Kind = 7 // partly done, a person must act
	Unconfirmed Kind = 8 // not confirmed
	Timeout     Kind = 9 // the operation goes on in repld
)

// Error is an error that says what to do about it.
type Error struct {
	Kind Kind `json:"-"`
	// Code is a stable snake_case word, for example "access_denied".
	Code string `json:"code"`
	// What failed, as a sentence without a full stop. Never a secret.
	What string `json:"what"`
	// Server is the managed server's name or address, "" if none is concerned.
	Server string `json:"server,omitempty"`
	// Errno is the server's own error number, 0 if none.
	Errno uint16 `json:"server_errno,omitempty"`
	Cause string `json:"cause,omitempty"`
	// State says what things were left in.
	State string `json:"state,omitempty"`
	// Do says what to do, naming only commands that exist.
	Do string `json:"do,omitempty"`
	// Document is text for stdout that the user needs to act: the drop-in that
	// could not be written.
	Document string `json:"document,omitempty"`
	// Err is the error below, for errors.Is and errors.As.
	Err error `json:"-"`
}

// Error prints all parts, each but the first on a line of its own.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.What)
	if e.Server != "" {
		fmt.Fprintf(&b, " (server %s", e.Server)
		if e.Errno != 0 {
			fmt.Fprintf(&b, ", error %d", e.Errno)
		}
		b.WriteString(")")
	} else if e.Errno != 0 {
		fmt.Fprintf(&b, " (error %d)", e.Errno)
	}
	for _, part := range []struct{ label, text string }{{"cause", e.Cause}, {"state", e.State}, {"do", e.Do}} {
		if part.text != "" {
			// Indented, a command's output or a server's message of several
			// lines cannot be taken for the next part.
			fmt.Fprintf(&b, "\n%s: %s", part.label, strings.ReplaceAll(part.text, "\n", "\n  "))
		}
	}
	return b.String()
}

// Unwrap gives the error below.
func (e *Error) Unwrap() error { return e.Err }

// Brief tells in one line what went wrong, for the cause of another fault: an
// error's text, or what failed and why of a fault, without what it says of the
// state of things and what to do, which the other one knows better.
func Brief(err error) string {
	var f *Error
	switch {
	case err == nil:
		return ""
	case !errors.As(err, &f):
		return err.Error()
	}
	text := strings.Replace(err.Error(), f.Error(), f.What, 1)
	if f.Cause != "" {
		text += ": " + f.Cause
	}
	return text
}

// As finds the fault in an error's chain. An error without one is wrapped as
// a plain failure, so that nothing reaches a user without its parts.
func As(err error) *Error {
	if err == nil {
		return nil
	}
	var f *Error
	if errors.As(err, &f) {
		return f
	}
	return &Error{Kind: Failed, Code: "internal", What: err.Error(), Cause: "an error that was not foreseen",
		State: "replctl status shows how things are", Do: "look into repld's log; then run the command again", Err: err}
}
