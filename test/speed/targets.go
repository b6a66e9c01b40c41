package speed

import (
	"slices"
	"time"
)

// What repld is held to on an ordinary machine. Tests, which run beside others
// on a shared one, assert [Slack] times these.
const (
	OpenMedian      = 200 * time.Millisecond
	OpenP99         = 600 * time.Millisecond
	FirstAckMedian  = 400 * time.Millisecond
	FollowingMedian = 400 * time.Millisecond
	// Of a switchover, from the closing of the old master.
	PlannedOpenMedian = 50 * time.Millisecond
	PlannedAckMedian  = 100 * time.Millisecond
	IdleRSS           = 25 << 20
	IdleCPU           = 0.005

	Slack = 5
)

// Quantile is the value that a share q (0 to 1) of the values does not exceed:
// 0.5 is the median. It is one of the values, never one in between.
func Quantile(values []time.Duration, q float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(q * float64(len(sorted)))
	if float64(rank) == q*float64(len(sorted)) && rank > 0 {
		rank--
	}
	return sorted[min(rank, len(sorted)-1)]
}
