package mysql

import (
	"context"
	"time"

	"github.com/repld/repld/health"
)

// stallEvery is how often an open server is asked whether its writes are held
// up: reading the list of its sessions costs more than all the rest of a probe.
const stallEvery = time.Second

// stalls asks for the sessions that wait for what holds up every write of a
// server: space on a disk, or the end of a FLUSH TABLES WITH READ LOCK (or
// a backup). Locks on single tables are the clients' own business.
const stalls = "SELECT STATE AS state, COUNT(*) AS sessions, MAX(TIME_MS) AS ms FROM information_schema.PROCESSLIST WHERE STATE IN" +
	" ('Waiting for someone to free space', 'Waiting for global read lock', 'Waiting for backup lock', 'Waiting for commit lock')" +
	" GROUP BY STATE ORDER BY COUNT(*) DESC, MAX(TIME_MS) DESC LIMIT 1"

// lookForStall notes what holds up the writes of a server that should accept
// them. No write of its own could tell: it would only be held up too. The
// observation is complete without it: a question that fails is asked again.
func (p *Prober) lookForStall(ctx context.Context, o *health.Observation) {
	if o.ReadOnly {
		p.stall, p.stallAt = health.Stall{}, time.Time{}
		return
	}
	if time.Since(p.stallAt) < stallEvery {
		o.Stall = p.stall
		return
	}
	row, err := p.conn.QueryRow(ctx, stalls)
	if err != nil {
		if p.conn.lost {
			p.drop()
		}
		return
	}
	p.stall, p.stallAt = health.Stall{}, time.Now()
	if row != nil {
		p.stall = health.Stall{State: row.String("state"), Sessions: int(row.Uint("sessions")), Longest: time.Duration(row.Float("ms") * float64(time.Millisecond))}
	}
	o.Stall = p.stall
}
