package explorer

import (
	"time"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// mode is the durability that the cluster was made with.
func (e *Explorer) mode() topology.Durability {
	if e.Bounds.Mode == "" {
		return topology.SemiSync
	}
	return e.Bounds.Mode
}

// founded records what repld had arranged on the first master. In async nothing
// is promised, and one that is out of repld's reach can acknowledge alone: of the
// one writer remains that repld never makes a second one knowingly.
func (e *Explorer) founded() []topology.Command {
	seen := topology.NoteSeen{Cluster: clusterName, GTID: gtid.GTID{Server: 1, Seq: 1}}
	if e.mode() == topology.Async {
		return []topology.Command{seen}
	}
	seen.Armed = now
	return []topology.Command{topology.SetDurabilityState{Cluster: clusterName, State: topology.DurabilityArmed, At: tOpenedAt,
		Endless: e.mode() == topology.Lossless}, seen}
}

// serverTimeout is how long a server waits for an acker by itself.
func (e *Explorer) serverTimeout() time.Duration {
	if e.mode() == topology.Lossless {
		return failover.Endless
	}
	return e.Policy.ServerTimeout
}
