// Package hook runs the programs by which a user's own machinery takes part in
// a change of master: one program at a time, bounded in time and output.
//
// It knows nothing of clusters, never runs a shell, and never lets a program see
// more of repld's environment than where programs and the home directory are.
//
// Start reading at [Run]; [Queue] runs notifications in order, beside the rest.
package hook
