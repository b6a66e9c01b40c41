package topology

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/repld/repld/internal/gtid"
)

// Break is what was known when a master was lost. There is one for each lost
// master that is not back yet: it decides whether transactions that it alone has
// can have been acknowledged.
type Break struct {
	// Epoch and Master of the era that ended.
	Epoch  uint64 `json:"epoch"`
	Master string `json:"master"`
	// At is the first symptom.
	At time.Time `json:"at"`
	// Armed is true if the master was observed armed (semi-sync on, its status
	// ON, an acker connected) not longer than semi_sync.server_timeout before At
	// and nothing has degraded it since.
	Armed bool `json:"armed"`
	// ArmedSeen is the time of that observation.
	ArmedSeen time.Time `json:"armed_seen,omitzero"`
	// Endless is as in [Cluster].
	Endless bool `json:"endless,omitempty"`
	// Fork is the last transaction that the successor shares with the lost master.
	Fork gtid.GTID `json:"fork"`
	// Started is when the lost server's process had started, and NoTx how many
	// commits it had then answered without an ack, when it was last observed.
	Started time.Time `json:"started,omitzero"`
	NoTx    uint64    `json:"no_tx"`
	// Dead is true if its process was seen to have ended. One that only fell silent
	// may have gone on, and told clients OK alone once its own timeout had run out.
	// WaitsFrom is since when, at the earliest, a commit waited on it.
	Dead      bool      `json:"dead,omitempty"`
	WaitsFrom time.Time `json:"waits_from,omitzero"`
	// Contacted is true once the lost server was observed again; Quiet if it was
	// the same process then, still waited for acks, and had answered no further
	// commit without one: what it has alone was then never answered OK unless a
	// server in Unseen or Forgotten acknowledged it, for fencing ends those commits
	// without an answer. Ended is true if another process was found, which had
	// started before the timeout of the lost one could have run out.
	Contacted bool `json:"contacted,omitempty"`
	Quiet     bool `json:"quiet,omitempty"`
	Ended     bool `json:"ended,omitempty"`
	// GivenUp is true if a person let transactions be lost that may have been
	// acknowledged.
	GivenUp bool `json:"given_up,omitempty"`
	// Unseen lists servers that could hold more and were not reachable during
	// the failover; a server leaves the list when it has been examined.
	Unseen []string `json:"unseen,omitempty"`
	// Forgotten lists those of them that were removed, or whose data was given up,
	// before they could be examined: what they held will never be known.
	Forgotten []string `json:"forgotten,omitempty"`
}

// Loss is the evidence of a master's loss, nil if the server is no lost master,
// or is back.
func (c *Cluster) Loss(server string) *Break {
	for _, b := range c.Losses {
		if b.Master == server {
			return b
		}
	}
	return nil
}

// lose records a loss; of two losses of one server the later one counts, since
// it was back in between.
func (c *Cluster) lose(b Break) {
	c.back(b.Master)
	c.Losses = append(c.Losses, &b)
}

// back ends a loss: the lost master follows again, was seeded anew, or is gone.
func (c *Cluster) back(server string) {
	c.Losses = slices.DeleteFunc(slices.Clone(c.Losses), func(b *Break) bool { return b.Master == server })
}

// examined strikes a server, which holds nothing that the master lacks, off the
// lists of those that could not be asked.
func (c *Cluster) examined(server string) {
	for _, b := range c.Losses {
		b.Unseen = without(b.Unseen, server)
	}
}

// forget notes that a server's evidence is gone for good.
func (c *Cluster) forget(server string) {
	for _, b := range c.Losses {
		if slices.Contains(b.Unseen, server) {
			b.Unseen, b.Forgotten = without(b.Unseen, server), append(b.Forgotten, server)
		}
	}
}

func (b *Break) clone() *Break {
	d := *b
	d.Unseen, d.Forgotten = slices.Clone(b.Unseen), slices.Clone(b.Forgotten)
	return &d
}

// UnmarshalJSON reads a cluster, also one of a version that kept only the last
// loss, under "broken".
func (c *Cluster) UnmarshalJSON(text []byte) error {
	type plain Cluster
	var old struct {
		Broken *Break `json:"broken"`
	}
	if err := json.Unmarshal(text, (*plain)(c)); err != nil {
		return err
	}
	if err := json.Unmarshal(text, &old); err != nil {
		return err
	}
	if old.Broken != nil && c.Loss(old.Broken.Master) == nil {
		c.Losses = append(c.Losses, old.Broken)
	}
	return nil
}
