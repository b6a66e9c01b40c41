// Package ledger proves that a cluster lost nothing: its writers insert unique
// rows and remember each commit that a server acknowledged, with the time and
// the server; at the end the rows are looked for on every server, and all
// tables of all servers are compared by checksum, since positions alone miss
// what a slave has skipped in silence.
//
// What happened to a commit whose connection broke is unknown: the row may be
// there or not, and is never written again under the same id. Only the answer
// OK makes a row a promise.
//
// Start reading at [Ledger], then [Ledger.Compare] and [Report].
package ledger
