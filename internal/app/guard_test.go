package app

import (
	"testing"
	"time"

	"github.com/repld/repld/internal/config"
)

// What is known of a server that answers is younger than two ordinary pauses and
// the longest probe, however the user has set them.
func TestTheQuietPauseKeepsWhatIsKnownFresh(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	for _, c := range []struct{ interval, timeout, hang, want time.Duration }{
		{100 * ms, s, 2 * s, 400 * ms},
		{100 * ms, 50 * ms, 2 * s, 150 * ms},
		{s, s, 2 * s, 500 * ms}, // shorter than the interval: the monitor never goes below that
		{100 * ms, s, 400 * ms, 100 * ms},
	} {
		got := quietPause(config.Failover{ProbeInterval: c.interval, ProbeTimeout: c.timeout, HangTimeout: c.hang})
		if got != c.want || max(got, c.interval) >= 2*c.interval+c.timeout {
			t.Errorf("probe_interval %v, probe_timeout %v, hang_timeout %v: %v, not %v", c.interval, c.timeout, c.hang, got, c.want)
		}
	}
}
