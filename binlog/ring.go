package binlog

import (
	"sort"
	"time"
)

// defaultRing entries take at most 640 KiB and know the last 4,096 transactions
// one by one.
const defaultRing = 16 << 10

// bucket stands for one transaction, or for neighbours that were merged: those
// with sequence numbers from first to last.
type bucket struct {
	first, last uint64
	// at is when the oldest of them was received, after the ring's origin.
	at time.Duration
	// count and bytes are sums over the whole log up to and with the last one.
	count, bytes uint64
}

// Ring remembers when each transaction of one domain was received, so that for
// any slave it can say how far behind it is. Its memory is bounded: where it
// gets full, older neighbours are merged, again and again, so that what it knows
// becomes coarser with age and nothing is forgotten. It never understates.
//
// It is pure and not safe for use by several goroutines.
type Ring struct {
	origin  time.Time
	base    uint64
	buckets []bucket
	limit   int
}

// NewRing makes a ring for the transactions that follow the sequence number
// base, where the observation begins. limit bounds its entries; 0 is 16,384.
func NewRing(base uint64, limit int) *Ring {
	if limit == 0 {
		limit = defaultRing
	}
	return &Ring{base: base, limit: max(limit, 8)}
}

// Last is the highest sequence number known, the base if there is none since.
func (r *Ring) Last() uint64 {
	if len(r.buckets) == 0 {
		return r.base
	}
	return r.buckets[len(r.buckets)-1].last
}

// Totals are the number and the size of all transactions since the base.
func (r *Ring) Totals() (transactions, bytes uint64) {
	if len(r.buckets) == 0 {
		return 0, 0
	}
	b := r.buckets[len(r.buckets)-1]
	return b.count, b.bytes
}

// Add appends a transaction. Its sequence number must be higher than the last
// one's; otherwise it is not added and Add returns false. Times that go back
// count as the time before.
func (r *Ring) Add(seq uint64, at time.Time, bytes uint64) bool {
	if seq <= r.Last() {
		return false
	}
	if len(r.buckets) == r.limit {
		r.coarsen()
	}
	b := bucket{first: seq, last: seq, count: 1, bytes: bytes}
	if n := len(r.buckets); n == 0 {
		r.origin = at
	} else {
		prev := r.buckets[n-1]
		b.at = max(at.Sub(r.origin), prev.at)
		b.count += prev.count
		b.bytes += prev.bytes
	}
	r.buckets = append(r.buckets, b)
	return true
}

// coarsen merges neighbours until an eighth of the ring is free. The newest
// quarter stays as it is. Of the others, neighbours become one where together
// they are no more than a share of what lies after them: about 64 parts of
// limit, 0.4 % by default. The distance only grows, so the error stays below
// that share at every age, for the price of an entry count that grows with the
// logarithm of the log's length. The share is doubled where that is not enough.
func (r *Ring) coarsen() {
	total := r.buckets[len(r.buckets)-1].count
	for share := uint64(64); len(r.buckets) > r.limit-r.limit/8; share *= 2 {
		newest := len(r.buckets) - r.limit/4
		var before uint64 // transactions before the last of kept
		kept := r.buckets[:1]
		for i, b := range r.buckets[1:] {
			last := &kept[len(kept)-1]
			if i+1 < newest && (b.count-before)*uint64(r.limit) <= (total-b.count)*share {
				last.last, last.count, last.bytes = b.last, b.count, b.bytes
				continue
			}
			before = last.count
			kept = append(kept, b)
		}
		r.buckets = kept
	}
}

// Behind is what a slave has not applied.
type Behind struct {
	// Oldest is when the oldest of it was received; zero if there is none.
	Oldest time.Time
	// Transactions and Bytes are how much it is.
	Transactions, Bytes uint64
	// Exact is false if merged entries made one of these an upper bound: Oldest
	// may be too early, the others too high.
	Exact bool
}

// Behind tells what a slave that has applied everything up to seq has not
// applied. It returns false if seq lies before the ring's base: then the slave
// lacks transactions that the ring never saw, and the answer is a lower bound.
func (r *Ring) Behind(seq uint64) (Behind, bool) {
	if seq >= r.Last() {
		return Behind{Exact: true}, true
	}
	if len(r.buckets) == 0 {
		return Behind{Exact: true}, false
	}
	i := sort.Search(len(r.buckets), func(i int) bool { return r.buckets[i].last > seq })
	b := r.buckets[i]
	total := r.buckets[len(r.buckets)-1]
	var before bucket
	if i > 0 {
		before = r.buckets[i-1]
	}
	out := Behind{
		Oldest:       r.origin.Add(b.at),
		Transactions: total.count - before.count,
		Bytes:        total.bytes - before.bytes,
		Exact:        true,
	}
	if seq >= b.first {
		// Inside of merged entries: their first is applied. Of the others there are
		// no more than sequence numbers are left.
		out.Exact = false
		out.Transactions = total.count - b.count + min(b.count-before.count-1, b.last-seq)
	}
	return out, seq >= r.base
}
