package failover

import (
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/topology"
)

// Endless is the semi-sync timeout of a master that never goes on without an
// acker: the lossless mode's, and semi_sync.server_timeout: never. It is not the
// largest number that a server takes: it must stay a sound time when it is added
// to the present one.
const Endless = 100 * 365 * 24 * time.Hour

// serverTimeout is how long the master of a cluster waits for an acker by
// itself before it goes on alone.
func serverTimeout(c *topology.Cluster, p Policy) time.Duration {
	if c.Durability == topology.Lossless {
		return Endless
	}
	return p.ServerTimeout
}

// armOpening tells whether a server is opened with semi-sync on. Lossless waits
// for an acker however long; semi-sync only if one can be expected.
func (d *decider) armOpening(ackers bool) bool {
	switch d.c.Durability {
	case topology.Async:
		return false
	case topology.Lossless:
		return true
	}
	return ackers
}

// unfenced holds back what no person ordered, where the old master could
// acknowledge writes beside a new one. Without ackers nothing keeps a master
// that refuses repld from serving others; with them, a hung one that wakes up is
// kept only while it is armed. (A dead one starts again closed.)
func (d *decider) unfenced() []Problem {
	switch {
	case d.p.AsyncWithoutFence:
		return nil
	case d.p.Hooks.Fence:
		return nil // its success is waited for before the opening, see awaitFence
	case d.c.Durability == topology.Async:
		return []Problem{{Code: "unfenced", Server: d.c.Master, Do: "replctl failover", Text: "durability is async: " + d.c.Master +
			" may still serve clients that repld cannot see, and nothing would stop it; failover.async_without_fence is false"}}
	case d.in.Verdict.State == health.StateHung && d.c.DurabilityState != topology.DurabilityArmed:
		return []Problem{{Code: "unfenced", Server: d.c.Master, Do: "replctl failover", Text: d.c.Master +
			" does not answer, may go on by itself, and would then tell its clients OK without an acker: durability is " + string(d.c.DurabilityState)}}
	}
	return nil
}

// unproved holds a lossless cluster back, also a person, while it is not proved
// that every commit waited for an acker until the master was lost.
func (d *decider) unproved() []Problem {
	since := d.in.Verdict.Since
	if since.IsZero() {
		since = d.now
	}
	if d.c.Durability != topology.Lossless || d.armedAt(since) || d.ordered() && d.in.Order.AcceptLoss != nil {
		return nil
	}
	return []Problem{{Code: "lossless_unproved", Server: d.c.Master, Do: "replctl failover --accept-loss N", Text: "durability is lossless, and " +
		d.c.Master + " is not known to have waited for an acker with every commit: it was " + string(d.c.DurabilityState)}}
}
