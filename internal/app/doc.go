// Package app puts repld together: configuration in, a running daemon out. It
// alone knows every other package; none imports it but cmd/repld.
//
// Start reading at [New], which builds everything in the order in which it is
// needed and notes how to undo it, then [App.Run]. service.go is what the
// control API can ask for; status.go turns what is known into what is shown.
package app
