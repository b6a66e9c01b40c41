package failover

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// announceKey is where [Input.Effects] keeps the writing of repld.cluster,
// which may wait for an acker and must not hold up anything else.
const announceKey = ""

// care is the ordinary work while the master is alive and open: let slaves
// follow, let former masters in, keep durability, announce.
func (d *decider) care(mv *health.ServerView) Action {
	if list := d.startedAgain(); len(list) > 0 {
		return Action{Kind: KindJournal, Journal: []topology.Command{topology.MarkStarted{Cluster: d.c.Name, Servers: list}}}
	}
	if a, acts := d.staysOpen(mv); acts {
		return a
	}
	if a, acts := d.durability(mv); acts {
		return a
	}
	if a, _ := d.followAll(); a.Kind != "" {
		return a
	}
	if a, acts := d.rejoin(); acts {
		return a
	}
	if a, acts := d.examine(); acts {
		return a
	}
	if d.in.Announced != d.announcement() && d.ready(announceKey, KindAnnounce) {
		return Action{Kind: KindAnnounce, Servers: []string{d.c.Master}}
	}
	if a, acts := d.events(); acts {
		return a
	}
	if a, acts := d.remember(mv); acts {
		return a
	}
	return wait(d.eventsLeft(), "all is as it should be")
}

// rememberEvery is how often what was seen of the master is written down.
const rememberEvery = 10 * time.Second

// remember writes down, now and then, what a repld that is started after the
// loss of the master would need: that it was armed, and how far it was.
func (d *decider) remember(mv *health.ServerView) (Action, bool) {
	if d.c.DurabilityState != topology.DurabilityArmed || mv.ArmedAt.Sub(d.c.ArmedSeen) < rememberEvery {
		return Action{}, false
	}
	return Action{Kind: KindJournal, Journal: []topology.Command{
		topology.NoteSeen{Cluster: d.c.Name, GTID: mv.LastOK.BinlogPos.Of(d.domain), Armed: mv.ArmedAt}}}, true
}

// Announcement is what repld.cluster should say of a cluster, in one word that
// changes whenever the row has to be written again.
func Announcement(c *topology.Cluster, ackers []string) string {
	return fmt.Sprintf("%d/%s/%s/%s/%s", c.Epoch, c.Master, c.Durability, c.DurabilityState, strings.Join(ackers, ","))
}

func (d *decider) announcement() string { return Announcement(d.c, d.ackerNames()) }

// ackerNames lists the servers that may acknowledge commits.
func (d *decider) ackerNames() []string {
	var out []string
	for _, name := range d.c.Names() {
		if d.acker(name) {
			out = append(out, name)
		}
	}
	return out
}

// startedAgain lists the slaves that repld owed a start and that stream again.
// One that streams because the order to stop has not reached it yet is still
// owed the start: the order may be running, or wait on a server that froze.
// Attaching is what settles that: it ends repld's older statements first.
func (d *decider) startedAgain() []string {
	var out []string
	for _, name := range d.c.Stopped {
		if d.streams(name) && d.attachedSince(name) {
			out = append(out, name)
		}
	}
	return out
}

// attachedSince tells whether the last effect on a server was a successful
// attachment and the server was observed after it.
func (d *decider) attachedSince(name string) bool {
	e, sv := d.in.Effects[name], d.v.Servers[name]
	return e.Running == "" && (e.Last == KindAttach || e.Last == KindStartSQL) && e.Failed == 0 && sv.Last.Sent.After(e.At)
}

// sourceOf names the member that a slave is configured to read from, "" if it
// is none.
func (d *decider) sourceOf(st *health.SlaveStatus) string {
	return d.c.At(st.SourceHost, st.SourcePort)
}

// stepKinds are the effects of the steps, in the order in which they come: what
// is to stop stops before anything is started.
var stepKinds = []struct {
	step step
	kind Kind
}{
	{stepEndFetch, KindEndFetch}, {stepStopIO, KindStopIO}, {stepStopSQL, KindStopSQL},
	{stepCompare, KindCompare}, {stepAttach, KindAttach}, {stepStartSQL, KindStartSQL}, {stepDrain, KindDrain},
}

// followAll lets every server that should and can follow the master do so, in
// one action; else it lists who does not follow yet and could.
func (d *decider) followAll() (Action, []string) {
	follow, waiting := map[string]Follow{}, []string(nil)
	names, why := map[Kind][]string{}, map[Kind][]string{}
	for _, m := range d.members(d.c.Master) {
		step, reason := d.following(m)
		if step == stepNone {
			continue
		}
		waiting = append(waiting, m.name)
		for _, k := range stepKinds {
			if step != k.step || !d.ready(m.name, k.kind) {
				continue
			}
			names[k.kind] = append(names[k.kind], m.name)
			why[k.kind] = append(why[k.kind], strings.TrimSpace(m.name+" "+reason))
			if step == stepAttach {
				follow[m.name] = d.follow(m)
			}
		}
	}
	for _, k := range stepKinds {
		if list := names[k.kind]; len(list) > 0 {
			return d.stepAction(k.kind, list, why[k.kind], follow), waiting
		}
	}
	return Action{}, waiting
}

func (d *decider) stepAction(kind Kind, names, why []string, follow map[string]Follow) Action {
	a := Action{Kind: kind, Servers: names, Why: why}
	switch kind {
	case KindStopIO:
		return d.stopIO(names, why)
	case KindCompare:
		a.Servers, a.Why, a.Last = names[:1], why[:1], d.member(names[0]).applied
	case KindEndFetch:
		a.Why = []string{"what was left of a failover would apply the same transactions beside the slave's own connection"}
	case KindDrain:
		a.Why = []string{"restarted slaves apply the relay log that they kept"}
	case KindAttach:
		a.Attach = follow
		if slices.ContainsFunc(names, func(n string) bool { return d.c.Servers[n].Followed != d.c.Epoch }) {
			a.Journal = []topology.Command{topology.MarkFollowing{Cluster: d.c.Name, Servers: names}}
		}
		a.Journal = append(a.Journal, d.owe(slices.DeleteFunc(slices.Clone(names), d.stands))...)
	}
	return a
}

// step is what a member needs to follow the master, or the relay above it.
type step int

const (
	stepNone     step = iota // nothing, or nothing that repld may do
	stepWait                 // it is on its way
	stepDrain                // its relay log has to be applied first
	stepAttach               // it is to be attached
	stepEndFetch             // the rescue connection is to be removed first
	stepStopIO               // it is to receive no more from where it reads
	stepStopSQL              // it is to apply no more: a person wants it so
	stepStartSQL             // it is to apply again what it goes on receiving
	stepCompare              // its last transaction is to be compared first
)

// following judges one member. Nothing is started on a server whose relay log
// may be the only place of a transaction, nothing that a person stopped, and
// nothing that has diverged.
func (d *decider) following(m *member) (step, string) {
	if !m.sv.Reachable() || m.s.Joining || len(m.s.Diverged) > 0 || m.s.MustFence || !m.sv.Last.ReadOnly {
		return stepNone, ""
	}
	if d.in.Effects[m.name].Running != "" {
		return stepWait, ""
	}
	if m.sv.Last.Fetch != nil {
		return stepEndFetch, ""
	}
	if mv := d.member(d.c.Master).sv; m.sv.Last.Slave == nil && mv.LastOK.Sent.Before(m.sv.LastOK.At) &&
		!d.c.Lineage.Contains(mv.LastOK.BinlogPos.Of(d.domain), m.sv.LastOK.BinlogPos.Of(d.domain)) {
		// Whether it diverged is known when the master was observed after it, or
		// had by then what it has. (Were only the first asked for, a cluster in
		// which nobody writes could wait for ever: both are observed side by side.)
		return stepWait, ""
	}
	if len(d.errant(m.name)) > 0 {
		return stepNone, ""
	}
	st, want := m.sv.Last.Slave, d.sourceFor(m.name)
	step, why, held := d.holding(m, st, want)
	if held {
		return step, why
	}
	step, why = stepAttach, "is nobody's slave"
	if st != nil {
		step, why = d.followingSlave(m, st, want)
	}
	if step == stepAttach && (st == nil || st.IO == health.ThreadNo) && !d.passesOn(want, m) {
		return stepWait, ""
	}
	if step == stepAttach && d.mustCompare(m) {
		return stepCompare, fmt.Sprintf("was master and may have been restored from an older copy: is its %s the cluster's?", m.applied)
	}
	return step, why
}

func (d *decider) followingSlave(m *member, st *health.SlaveStatus, want string) (step, string) {
	source := d.sourceOf(st)
	owed := slices.Contains(d.c.Stopped, m.name)
	restarted := st.IO == health.ThreadNo && st.Received.Of(d.domain).IsZero() && st.IOErrno == 0
	switch {
	case st.SQLErrno != 0:
		return stepNone, ""
	case source == "" && !owed:
		return stepNone, "" // somebody pointed it elsewhere: reported, left alone
	case restarted && !m.drained() && !m.known:
		return stepDrain, ""
	case st.UsingGTID == "No" && !m.drained():
		return stepWait, ""
	case owed && m.cold():
		return stepDrain, ""
	case source != want:
		return d.moving(m, st, want)
	case restarted:
		return stepAttach, "restarted"
	case owed && st.SQL == health.ThreadNo && st.IO != health.ThreadNo:
		return stepStartSQL, "is to apply again"
	case st.IO == health.ThreadNo && owed && !m.pending():
		return stepAttach, "was stopped by repld"
	case st.IO == health.ThreadNo && owed && m.pending():
		return stepWait, ""
	case owed && d.streams(m.name) && !m.pending() && !d.attachedSince(m.name):
		return stepAttach, "streams and may still be told to stop"
	case st.IO == health.ThreadYes && st.SQL == health.ThreadYes && d.acker(m.name) != m.sv.Last.SemiSync.SlaveOn && !m.pending():
		return stepAttach, map[bool]string{true: "streams without being an acker", false: "may not acknowledge any more"}[d.acker(m.name)]
	}
	return stepNone, ""
}

// follow is how a member is attached to the server that it shall read from.
func (d *decider) follow(m *member) Follow {
	f := Follow{Source: d.sourceFor(m.name), Acker: d.acker(m.name)}
	if m.sv.Last.Slave == nil && m.applied != m.sv.Last.SlavePos.Of(d.domain) {
		at := gtid.At(m.applied)
		f.StartAt = &at
	}
	return f
}

// rejoin hands detached servers with extra transactions to the rejoiner.
func (d *decider) rejoin() (Action, bool) {
	for _, name := range d.c.Names() {
		s, sv := d.c.Servers[name], d.v.Servers[name]
		if d.feeds(name) {
			continue // those below it leave first
		}
		if s.Reseeding && name != d.c.Master && sv.Reachable() && d.ready(name, KindRejoin) {
			return Action{Kind: KindRejoin, Servers: []string{name}, Why: []string{"it is to be made a copy of the master"}}, true
		}
		if name == d.c.Master || s.Joining || s.Maintenance || s.MustFence || len(s.Diverged) > 0 || !sv.Reachable() || sv.Last.Slave != nil {
			continue
		}
		extra := d.errant(name)
		if len(extra) == 0 || !d.ready(name, KindRejoin) || len(d.awaited(name)) > 0 {
			continue
		}
		return Action{Kind: KindRejoin, Servers: []string{name}, Extra: extra,
			Why: []string{fmt.Sprintf("%s has transactions that the cluster does not have: %s", name, printGTIDs(extra))}}, true
	}
	return Action{}, false
}

// examine strikes servers off the lists of those that could not be asked during
// a failover, and ends the losses of former masters, once they stream and hold
// nothing extra.
func (d *decider) examine() (Action, bool) {
	for _, b := range d.c.Losses {
		for _, name := range append([]string{b.Master}, b.Unseen...) {
			s := d.c.Servers[name]
			follows := d.streams(name) || name == d.c.Master && name != b.Master // one that was promoted since stood on the lineage
			if s != nil && !s.MustFence && !s.Joining && follows && len(d.errant(name)) == 0 {
				return Action{Kind: KindJournal, Journal: []topology.Command{topology.MarkExamined{Cluster: d.c.Name, Server: name}}}, true
			}
		}
	}
	return Action{}, false
}
