// Package failover decides who is master and carries it out.
//
// [Decide] is pure and total: a view, the open intent and the policy in, one
// [Action] out. [Loop] is the level-triggered cycle around it: observe, decide,
// journal, act, observe again. Effects go through [Server], one small interface
// with two implementations: real servers (internal/mysql) and the model that
// the explorer searches.
//
// Start reading at docs/guarantees.md, then decide.go, candidate.go, loop.go.
package failover
