// Package topology is the model of what repld manages, and its memory: the
// clusters, their servers with their identities, the epochs and lineage of
// their masters, the intent that is being carried out, and the operations of
// the past.
//
// It never talks to a server and never decides anything. State changes only by
// the typed commands of command.go, each a deterministic function of the state
// before it, so that a log can carry them later; store.go keeps the state in a
// bbolt file and writes it before anything is done about it.
//
// Start reading at [Cluster], then [Intent], then [Store].
package topology
