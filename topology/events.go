package topology

import (
	"slices"
	"time"
)

// Events is what must be known of a master's scheduled events when it is gone.
// No slave can tell: there every event is SLAVESIDE_DISABLED, also one that its
// owner had disabled.
type Events struct {
	// On tells whether the event scheduler runs.
	On bool `json:"on,omitempty"`
	// Enabled are the events that run while it does, ordered by schema and name.
	Enabled []Event `json:"enabled,omitempty"`
}

// Event names a scheduled event.
type Event struct {
	Schema string `json:"schema"`
	Name   string `json:"name"`
}

// Equal tells whether both say the same.
func (e Events) Equal(o Events) bool { return e.On == o.On && slices.Equal(e.Enabled, o.Enabled) }

// IsZero tells whether nothing ever runs.
func (e Events) IsZero() bool { return !e.On && len(e.Enabled) == 0 }

// NoteEvents records what was seen of the events of the recorded master. It is
// void if another server has been opened meanwhile.
type NoteEvents struct {
	Cluster, Server string
	Events          Events
	At              time.Time
}

func (c NoteEvents) cluster() string  { return c.Cluster }
func (c NoteEvents) structural() bool { return false }
func (c NoteEvents) apply(st *State) error {
	cl, err := st.find(c.Cluster)
	if err != nil {
		return err
	}
	if cl.Master == c.Server && c.At.After(cl.OpenedAt) {
		cl.Events = Events{On: c.Events.On, Enabled: slices.Clone(c.Events.Enabled)}
		cl.EventsDue = false
	}
	return nil
}
