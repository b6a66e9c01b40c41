package failover

import (
	"fmt"
	"strings"

	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// Tail is what was found behind the fork in a former master's binary log.
type Tail struct {
	// Extra are the transactions after the fork, in the order of the log.
	Extra []gtid.GTID
	// BeforeRestart is how many of them, from the first, were written by the
	// server process that broke; what a later process wrote, nobody watched.
	BeforeRestart int
}

// MayUndo says whether the extra transactions of a returned master may be
// undone without asking: provably nobody was told OK for them. The reasons are
// given either way. That holds if
//
//   - the loss of the server is recorded, and every one of its
//     commits waited for an acker when it broke,
//   - every server that could have acknowledged has been asked since, and none
//     of them has the transactions (else they were promoted), and
//   - all of them were written before the process that broke ended: a commit
//     that waits for its ack when the server dies is never answered, while a
//     restarted server may have answered anything; or the process never ended
//     and was found, and fenced, while it still waited for acks (Break.Quiet).
func MayUndo(c *topology.Cluster, server string, t Tail, undo bool) (bool, []string) {
	var no []string
	add := func(format string, args ...any) { no = append(no, fmt.Sprintf(format, args...)) }
	if !undo {
		add("rejoin.unacknowledged is keep")
	}
	b := c.Loss(server)
	switch {
	case b == nil:
		add("it is no master whose loss is recorded")
	default:
		if !b.Armed {
			add("its commits were not known to wait for an acker when it broke")
		}
		if b.GivenUp {
			add("a person let transactions be lost at its failover, and these may be among them")
		}
		if len(b.Unseen) > 0 {
			add("%s could not be asked, or was given up, during the failover and may have acknowledged", strings.Join(b.Unseen, ", "))
		}
		if len(b.Forgotten) > 0 {
			add("%s may have acknowledged, and was removed, or its data given up, before it could be asked", strings.Join(b.Forgotten, ", "))
		}
	}
	quiet := b != nil && b.Quiet
	if n := len(t.Extra) - t.BeforeRestart; n > 0 && !quiet {
		add("%d of them were not written before a restart that ended their commits unanswered, and may have been acknowledged", n)
	}
	if s := c.Servers[server]; s != nil {
		for _, g := range t.Extra {
			if g.Server != s.Identity.ServerID {
				add("%s was not written by it", g)
				break
			}
		}
	}
	if len(no) > 0 {
		return false, no
	}
	return true, []string{fmt.Sprintf("nobody was told OK for any of the %d transactions: each was waiting for an acker when the server died or was fenced", len(t.Extra))}
}

// awaited lists the servers that must be asked before it is judged whether what
// a returned master has alone can have been acknowledged: those that could not be
// asked during its failover and are still out, while all else speaks for undoing
// it. One that is back and has extra transactions itself is not waited for: it
// says enough.
func (d *decider) awaited(name string) []string {
	b := d.c.Loss(name)
	if b == nil || !b.Armed || b.GivenUp || !d.p.UndoUnacknowledged || len(b.Forgotten) > 0 {
		return nil
	}
	var out []string
	for _, n := range b.Unseen {
		if s := d.c.Servers[n]; s == nil || d.v.Servers[n].Reachable() && (len(s.Diverged) > 0 || len(d.errant(n)) > 0) {
			return nil
		}
		out = append(out, n)
	}
	return out
}
