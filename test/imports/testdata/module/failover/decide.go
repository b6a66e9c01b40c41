package failover

import (
	"time"

	"github.com/repld/repld/topology"
)

type Clock interface{ Now() time.Time }

func Decide(c *topology.Cluster, k Clock) bool {
	return c.Age() > 0 && c.AgeAt(k.Now()) > 0 && helper() && harmless() && generic(1) == 1
}
