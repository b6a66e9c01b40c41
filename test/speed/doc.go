// Package speed measures what repld promises about speed, on real servers and
// with the real programs: how soon a killed master is replaced under load, and
// what an idle repld costs. The benchmarks (test/bench) report what it measures
// and the end-to-end tests assert bounds on it, so that both mean the same.
//
// Everything is measured from outside: by connections of its own to the
// servers, by the writers' acknowledged commits, and by /proc. What repld says
// of itself in its history is reported beside it, not instead of it.
//
// Start reading at [Failover] and [Idle].
package speed
