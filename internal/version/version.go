// Package version says which build this is. The values are set by the linker
// (see the Makefile) and never change while a program runs.
package version

import "fmt"

// Set by the linker; a plain go build leaves them as they are here.
var (
	// Version is the release, or the nearest one with the number of commits since.
	Version = "dev"
	// Commit is the source's commit, with -dirty if it had been changed.
	Commit = "unknown"
	// Date is when the commit was made, RFC 3339 in UTC.
	Date = "unknown"
)

// String is one line for people, for example "0.1.0 (commit 1a2b3c4, 2026-03-01T12:00:00Z)".
func String() string {
	return fmt.Sprintf("%s (commit %s, %s)", Version, Commit, Date)
}
