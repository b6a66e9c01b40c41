// Package docs checks the documentation against the program: every stable code
// that the source can report is explained in docs/problems.md and every code
// explained there exists, links between pages lead somewhere, and the commands
// and tests that pages name exist.
//
// Start reading at [Codes].
package docs
