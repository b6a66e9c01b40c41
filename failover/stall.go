package failover

import (
	"fmt"
	"time"

	"github.com/repld/repld/health"
)

// stallNoticed is how long writes must be held up before status names it: every
// backup takes a global read lock for a moment.
const stallNoticed = 2 * time.Second

// stallAdvice says what ends a stall, by the server's word for it.
var stallAdvice = map[string]string{
	"Waiting for someone to free space": "free space on the disk of the binary log or of the data (PURGE BINARY LOGS hangs as well); it goes on by itself",
	"Waiting for global read lock":      "end the session that holds FLUSH TABLES WITH READ LOCK",
	"Waiting for backup lock":           "end the session that holds FLUSH TABLES WITH READ LOCK, or the backup",
	"Waiting for commit lock":           "end the session that holds FLUSH TABLES WITH READ LOCK, or the backup",
}

// stalled says that the master lives and lets nobody write. That is never a
// reason for a failover by itself: its data is whole, and whoever is promoted
// would have less.
func (d *decider) stalled(mv *health.ServerView) []Problem {
	s := mv.Last.Stall
	if s.State == "" || s.Longest < stallNoticed {
		return nil
	}
	return []Problem{{Code: "master_stalled", Server: d.c.Master, Do: stallAdvice[s.State], Text: fmt.Sprintf(
		"the master is alive and its writes are held up: %d sessions are in state %q, the longest for %v", s.Sessions, s.State, s.Longest.Round(time.Second))}}
}
