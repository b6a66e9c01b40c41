// Package netns puts each server, repld and the clients of a test into a network
// namespace of its own, joined by one switch, so that any of them can be cut off
// from any other, two-way or one-way, and healed again.
//
// A cut drops packets without a word, as a broken network does: nobody is told
// that a connection has ended, and nobody's dial is refused. Nothing else of a
// network is imitated: no delay, no loss, no reordering.
//
// The namespaces, and the bridge and cables in them, have no names outside: only
// this process's open files hold them, so that the kernel removes all of them
// when the process and what it started are gone, however they went. Nothing of
// the machine's own network is read, changed or used, and no packet leaves the
// namespaces.
//
// Start reading at [New] and [Network.CutOff]; tests begin with [Start].
package netns
