package failover

import (
	"fmt"
	"time"

	"github.com/repld/repld/topology"
)

// eventsKey is where [Input.Effects] keeps the work on the master's scheduled
// events, which holds up nothing else.
const eventsKey = "events:"

// events lets the scheduled events run on a master that was opened, and keeps
// the record of which run true. It is called while the master is open.
func (d *decider) events() (Action, bool) {
	seen := d.in.Events
	mine := seen.Server == d.c.Master && seen.At.After(d.c.OpenedAt)
	e := d.in.Effects[eventsKey]
	switch {
	case e.Running != "":
		return Action{}, false
	case d.c.EventsDue && !(mine && e.Last == KindEvents && e.Failed == 0):
		if !d.ready(eventsKey, KindEvents) {
			return Action{}, false
		}
		return Action{Kind: KindEvents, Servers: []string{d.c.Master}, Why: []string{fmt.Sprintf(
			"%d events are to run on the master now, and the scheduler to be on: %v", len(d.c.Events.Enabled), d.c.Events.On)}}, true
	case mine && (d.c.EventsDue || !seen.Events.Equal(d.c.Events)):
		return Action{Kind: KindJournal, Journal: []topology.Command{
			topology.NoteEvents{Cluster: d.c.Name, Server: d.c.Master, Events: seen.Events, At: seen.At}}}, true
	case (!mine || d.now.Sub(seen.At) >= lookEventsEvery) && d.ready(eventsKey, KindLookEvents):
		return Action{Kind: KindLookEvents, Servers: []string{d.c.Master}}, true
	}
	return Action{}, false
}

// eventsLeft is when to look at the events again.
func (d *decider) eventsLeft() time.Duration {
	if left := lookEventsEvery - d.now.Sub(d.in.Events.At); left > 0 {
		return left
	}
	return lookEventsEvery
}

// lookBeforeShutting makes the record of the events exact before a switchover
// switches the scheduler off. A look that fails holds nothing up.
func (d *decider) lookBeforeShutting(in *topology.Intent) (Action, bool) {
	e := d.in.Effects[eventsKey]
	switch seen := d.in.Events; {
	case d.c.EventsDue || d.closed(in.OldMaster):
	case e.Running != "":
		return wait(d.left(in), "looking at the master's events"), true
	case !e.At.After(in.Begun):
		return Action{Kind: KindLookEvents, Servers: []string{in.OldMaster}, Why: []string{"which events run before the switchover"}}, true
	case seen.Server == in.OldMaster && seen.At.After(in.Begun) && !seen.Events.Equal(d.c.Events):
		return Action{Kind: KindJournal, Journal: []topology.Command{
			topology.NoteEvents{Cluster: d.c.Name, Server: in.OldMaster, Events: seen.Events, At: seen.At}}}, true
	}
	return Action{}, false
}

// eventsProblem says that the new master does not yet run what the old one ran.
func (d *decider) eventsProblem() []Problem {
	e := d.in.Effects[eventsKey]
	if !d.c.EventsDue || e.Failed == 0 || e.Last != KindEvents {
		return nil
	}
	return []Problem{{Code: "events_not_resumed", Server: d.c.Master, Do: "put the cause right; it is tried again by itself",
		Text: fmt.Sprintf("scheduled events that ran before do not all run on %s (tried %d times): %s", d.c.Master, e.Failed, e.Err)}}
}
