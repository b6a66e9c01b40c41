package failover

import (
	"strings"
	"testing"

	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// Only what provably nobody was told OK for is undone: each missing proof, by
// itself, keeps the server out and is named.
func TestMayUndoNeedsEveryProof(t *testing.T) {
	extra := []gtid.GTID{{Server: 1, Seq: 104}, {Server: 1, Seq: 105}}
	good := func() (*topology.Cluster, Tail, bool) {
		return &topology.Cluster{
			Losses:  []*topology.Break{{Master: "db3"}, {Master: "db1", Armed: true, Dead: true}},
			Servers: map[string]*topology.Server{"db1": {Name: "db1", Identity: topology.Identity{ServerID: 1}}},
		}, Tail{Extra: extra, BeforeRestart: 2}, true
	}
	c, tail, undo := good()
	if may, why := MayUndo(c, "db1", tail, undo); !may || !strings.Contains(why[0], "nobody was told OK") {
		t.Fatalf("with every proof: %v", why)
	}
	for name, spoil := range map[string]func(c *topology.Cluster, t *Tail, undo *bool){
		"rejoin.unacknowledged is keep":      func(_ *topology.Cluster, _ *Tail, undo *bool) { *undo = false },
		"is no master whose loss":            func(c *topology.Cluster, _ *Tail, _ *bool) { c.Losses = c.Losses[:1] },
		"it only fell silent":                func(c *topology.Cluster, _ *Tail, _ *bool) { c.Losses[1].Dead = false },
		"not known to wait for an acker":     func(c *topology.Cluster, _ *Tail, _ *bool) { c.Losses[1].Armed = false },
		"db3 could not be asked":             func(c *topology.Cluster, _ *Tail, _ *bool) { c.Losses[1].Unseen = []string{"db3"} },
		"a person let transactions be lost":  func(c *topology.Cluster, _ *Tail, _ *bool) { c.Losses[1].GivenUp = true },
		"db4 may have acknowledged, and":     func(c *topology.Cluster, _ *Tail, _ *bool) { c.Losses[1].Forgotten = []string{"db4"} },
		"1 of them were not written before":  func(_ *topology.Cluster, t *Tail, _ *bool) { t.BeforeRestart = 1 },
		"0-3-105 was not written by it":      func(_ *topology.Cluster, t *Tail, _ *bool) { t.Extra = []gtid.GTID{extra[0], {Server: 3, Seq: 105}} },
		"2 of them were not written before ": func(_ *topology.Cluster, t *Tail, _ *bool) { t.BeforeRestart = 0 },
	} {
		c, tail, undo := good()
		spoil(c, &tail, &undo)
		may, why := MayUndo(c, "db1", tail, undo)
		if may || !strings.Contains(strings.Join(why, "; "), name) {
			t.Errorf("%q: may %v, why %q", name, may, why)
		}
	}
	// One that fell silent, and was found to have ended soon after, told nobody.
	c, tail, undo = good()
	c.Losses[1].Dead, c.Losses[1].Ended = false, true
	if may, why := MayUndo(c, "db1", tail, undo); !may {
		t.Errorf("a server that ended soon: %v", why)
	}
	// A server that never restarted and was fenced while it waited told nobody.
	c, tail, undo = good()
	tail.BeforeRestart, c.Losses[1].Quiet = 0, true
	if may, why := MayUndo(c, "db1", tail, undo); !may {
		t.Errorf("a quiet server: %v", why)
	}
}
