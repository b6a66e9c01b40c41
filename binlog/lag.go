package binlog

import "time"

// Lag is how far a slave is behind its master, as a person asks.
type Lag struct {
	// Known is false if the age cannot be told: the master has been silent for
	// too long, or nothing of what the slave lacks was observed.
	Known bool
	// AtLeast is true if the slave lacks more than was observed: then the rest is
	// a lower bound.
	AtLeast bool
	// Age is how long ago the oldest transaction that the slave has not applied
	// was received; 0 only if it has applied all.
	Age                 time.Duration
	Transactions, Bytes uint64
}

// Heard is what is known of the master's own liveliness.
type Heard struct {
	// Connected is true if its binary log is being received.
	Connected bool
	// Last is the time of the last event or heartbeat.
	Last time.Time
}

// LagOf tells the lag, at a given time, of a slave that has applied up to seq on
// the ring's domain. A master that was not heard for longer than silence may
// have committed what nobody has seen: then the lag is unknown, whatever the
// slave has.
func LagOf(r *Ring, seq uint64, heard Heard, now time.Time, silence time.Duration) Lag {
	behind, covered := r.Behind(seq)
	lag := Lag{AtLeast: !covered, Transactions: behind.Transactions, Bytes: behind.Bytes}
	if !heard.Connected || now.Sub(heard.Last) > silence {
		return lag
	}
	if behind.Oldest.IsZero() {
		// Nothing observed is missing; before the base something may be.
		lag.Known = covered
		return lag
	}
	lag.Known = true
	// A slave that lacks something is never 0 behind.
	lag.Age = max(now.Sub(behind.Oldest), time.Nanosecond)
	return lag
}
