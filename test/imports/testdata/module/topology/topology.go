package topology

import (
	"time"

	"github.com/repld/repld/health"
	_ "github.com/repld/repld/internal/gtid"
)

var _ = health.Limit

type Cluster struct{ Begun time.Time }

func (c *Cluster) Age() time.Duration { return time.Since(c.Begun) }

func (c *Cluster) AgeAt(now time.Time) time.Duration { return now.Sub(c.Begun) }
