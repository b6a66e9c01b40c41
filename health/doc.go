// Package health observes the servers of a cluster and says how its master is.
//
// [Prober] is how one server is looked at; internal/mysql implements it.
// [Monitor] keeps a connection to each server, probes them all in parallel and
// on every event, and folds what comes back, with what the binlog stream says,
// into a [View]. [Detect] is pure: a view in, a [Verdict] out, with its
// evidence.
//
// Nothing here changes a server or decides a failover; package failover does,
// from the same view.
package health
