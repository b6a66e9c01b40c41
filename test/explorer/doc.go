// Package explorer proves the decisions: it searches, breadth first, every
// state that a small cluster can reach, and checks every invariant of
// docs/guarantees.md in each of them.
//
// The servers are a model (world.go: what MariaDB does; effects.go: what each
// verb of failover.Server does to it). Everything that decides is the shipped
// code: health.Detect, failover.Decide, failover.Assess and the commands of
// topology. Time is a handful of facts ("the opening has expired"), from which
// view.go makes the times that the shipped code compares.
//
// It never stands for a test on real servers: what the model says of them is
// measured elsewhere, and a wrong model proves nothing.
//
// Start reading at world.go, then events.go, invariants.go and search.go.
package explorer
