package failover

import (
	"fmt"
	"slices"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/topology"
)

const (
	// relayGrace is how long a relay may be out of order before the slaves below it
	// are pointed to its own source: a restart takes less.
	relayGrace = 5 * time.Second
	// relaySteady is how long a relay must have replicated without a break before
	// slaves are pointed (back) to it, so that one that comes and goes does not move
	// them to and fro.
	relaySteady = 10 * time.Second
	// errPosition is the server's error number for a position that its source's
	// binary log does not have.
	errPosition = 1236
)

// sourceFor names the server that a slave shall read from now: the one that is
// recorded if it can be read from, else the next one above it that can, at last
// the master.
func (d *decider) sourceFor(name string) string {
	if _, known := d.sources[name]; !known {
		d.sources[name] = d.findSource(name)
	}
	return d.sources[name]
}

func (d *decider) findSource(name string) string {
	if !d.c.Chained(name) || d.c.Below(name, name) {
		return d.c.Master
	}
	at := d.c.Servers[name].Source
	for range d.c.Servers {
		if at == d.c.Master || d.c.Servers[at] == nil || d.relays(at, name) == "" {
			break
		}
		at = d.c.Servers[at].Source
	}
	if d.c.Servers[at] == nil {
		return d.c.Master
	}
	return at
}

// relays says why a slave cannot read from another slave now; "" if it can. One
// that reads from it stays for relayGrace after it broke; another one comes only
// once it has been steady.
func (d *decider) relays(at, child string) string {
	if why := d.unfit(at); why != "" {
		return why
	}
	sv := d.v.Servers[at]
	if st := d.slaveOf(child); st != nil && d.sourceOf(st) == at {
		if st.IO == health.ThreadNo && st.IOErrno == errPosition {
			return fmt.Sprintf("refuses %s: error %d: %s", child, st.IOErrno, st.IOError)
		}
		if why := d.notRunning(at); why != "" && d.now.Sub(d.ranAt(sv)) >= relayGrace {
			return why
		}
		return ""
	}
	switch {
	case d.notRunning(at) != "":
		return d.notRunning(at)
	case d.now.Sub(sv.RunningSince) < relaySteady:
		return fmt.Sprintf("has replicated for only %v; after %v slaves are pointed to it", d.now.Sub(sv.RunningSince).Round(time.Second), relaySteady)
	case d.member(at).stuck(d.now):
		return "does not get on with what it received"
	}
	return ""
}

// slaveOf is a server's default connection as it was last seen, nil if none.
func (d *decider) slaveOf(name string) *health.SlaveStatus {
	if sv := d.v.Servers[name]; sv != nil {
		return sv.LastOK.Slave
	}
	return nil
}

// ranAt is when a relay was last seen to replicate; it has nobody to blame but
// repld for the time before that was watched, or until the master was opened.
func (d *decider) ranAt(sv *health.ServerView) time.Time {
	at := d.v.Started
	for _, t := range []time.Time{d.v.AwakeSince, d.c.OpenedAt} {
		if t.After(at) {
			at = t
		}
	}
	if sv != nil && sv.RunningAt.After(at) {
		at = sv.RunningAt
	}
	return at
}

// unfit says why nobody may read from a slave, whether it replicates or not; ""
// if nothing speaks against it.
func (d *decider) unfit(name string) string {
	s, sv := d.c.Servers[name], d.v.Servers[name]
	switch {
	case s.Joining || s.Reseeding:
		return "is being set up or seeded anew"
	case len(s.Diverged) > 0:
		return "has transactions that the cluster does not have"
	case s.MustFence:
		return "was the master and is not fenced yet"
	case s.Delay > 0 || len(s.ReplicateDoDB) > 0 || s.SkipErrors != "":
		return "is delayed, filtered or skips errors, and so would be what it passes on"
	}
	if sv == nil || sv.LastOK.Reach != health.ReachOK {
		return ""
	}
	o := &sv.LastOK
	switch {
	case !o.ReadOnly:
		return "accepts writes"
	case !o.LogBin || !o.LogSlaveUpdates:
		return fmt.Sprintf("passes nothing on: log_bin is %v, log_slave_updates %v", o.LogBin, o.LogSlaveUpdates)
	case o.Slave != nil && d.sourceOf(o.Slave) == "":
		return fmt.Sprintf("replicates from %s:%d, which is no member", o.Slave.SourceHost, o.Slave.SourcePort)
	case o.Slave != nil && (o.Slave.Filtered || o.Slave.Delay > 0):
		return "is delayed or filtered, and so would be what it passes on"
	case len(d.errant(name)) > 0:
		return "has transactions that the cluster does not have"
	}
	return ""
}

// notRunning says why a slave is not seen replicating, itself, from where it
// shall; "" if it is.
func (d *decider) notRunning(name string) string {
	sv := d.v.Servers[name]
	if !sv.Reachable() {
		if sv == nil {
			return "was not observed yet"
		}
		return "cannot be reached: " + reachText(sv)
	}
	st := sv.Last.Slave
	switch {
	case st == nil:
		return "replicates from nobody"
	case d.sourceOf(st) != d.sourceFor(name):
		return "reads from " + cmpOr(d.sourceOf(st), st.SourceHost) + " instead of " + d.sourceFor(name)
	case st.IO != health.ThreadYes || st.SQL != health.ThreadYes:
		return fmt.Sprintf("does not replicate: IO thread %s, SQL thread %s", st.IO, st.SQL)
	}
	return ""
}

// streams tells whether a server is seen replicating, with both threads, from
// where it shall, and so is each relay between it and the master.
func (d *decider) streams(name string) bool {
	for range d.c.Servers {
		if d.notRunning(name) != "" {
			return false
		}
		if name = d.sourceFor(name); name == d.c.Master {
			return true
		}
	}
	return false
}

// moving judges a slave that reads from another server than it shall.
func (d *decider) moving(m *member, st *health.SlaveStatus, want string) (step, string) {
	owed := slices.Contains(d.c.Stopped, m.name)
	restarted := st.IO == health.ThreadNo && st.Received.Of(d.domain).IsZero() && st.IOErrno == 0
	down := want != d.c.Master
	chain := m.chained || d.c.Intent == nil
	switch {
	case m.chained && !owed && !restarted && (st.SQL == health.ThreadNo || st.IO == health.ThreadNo && st.IOErrno == 0):
		return stepNone, "" // a person stopped it
	case chain && st.IO == health.ThreadYes && (down || m.pending()):
		// It must not receive more than its new source has.
		if down && !d.near(want) {
			return stepNone, ""
		}
		return stepStopIO, fmt.Sprintf("reads from %s and shall read from %s", d.sourceOf(st), want)
	case m.pending():
		return stepWait, "" // applies what it received
	case !d.passesOn(want, m):
		return stepWait, ""
	}
	return stepAttach, "follows " + cmpOr(d.sourceOf(st), st.SourceHost)
}

// near tells whether a relay is so little behind that a slave may wait for it.
func (d *decider) near(name string) bool {
	lag := d.v.Servers[name].LagApplied
	return lag != nil && *lag <= nearlyCaughtUp
}

// passesOn tells whether a slave's source has all that the slave has: one that
// asks a server for what comes after something that this does not have is refused.
func (d *decider) passesOn(source string, m *member) bool {
	return source == d.c.Master || d.c.Lineage.Contains(d.member(source).applied, m.received)
}

// stopIO stops the IO threads of slaves that are to read from another server.
func (d *decider) stopIO(names, why []string) Action {
	return Action{Kind: KindStopIO, Servers: names, Why: why, Journal: d.owe(names)}
}

// owe journals that repld is about to stop slaves. A crash in the middle would
// otherwise leave them to look as if a person had stopped them.
func (d *decider) owe(names []string) []topology.Command {
	var out []topology.Command
	for _, name := range names {
		if !slices.Contains(d.c.Stopped, name) {
			out = append(out, topology.OweStart{Cluster: d.c.Name, Server: name})
		}
	}
	return out
}

// stands tells whether a server replicates from nobody, or its IO thread is down:
// to attach it stops nothing.
func (d *decider) stands(name string) bool {
	st := d.v.Servers[name].Last.Slave
	return st == nil || st.IO == health.ThreadNo
}

// feeds tells whether a member is seen reading from a slave. One that has left
// the cluster's history does not count: nothing lets it follow anybody else.
func (d *decider) feeds(name string) bool {
	for n, sv := range d.v.Servers {
		if n != name && name != d.c.Master && sv.Reachable() && sv.Last.Slave != nil && sv.Last.Slave.IO == health.ThreadYes && d.sourceOf(sv.Last.Slave) == name &&
			len(d.c.Servers[n].Diverged) == 0 && len(d.errant(n)) == 0 {
			return true
		}
	}
	return false
}

// chainProblems says where a slave does not read from the server that it is
// meant to read from, and where that one passes nothing on.
func (d *decider) chainProblems(m *member) []Problem {
	st := m.sv.Last.Slave
	if !m.sv.Reachable() || m.s.Joining || st == nil || d.sourceOf(st) == "" {
		return nil
	}
	from, want := d.sourceOf(st), d.sourceFor(m.name)
	if m.chained {
		why := d.relays(m.s.Source, m.name)
		if why == "" {
			why = d.notRunning(m.s.Source)
		}
		if why != "" {
			text := fmt.Sprintf("it is meant to replicate from %s, which %s", m.s.Source, why)
			if from != m.s.Source {
				text += "; it reads from " + from + " meanwhile"
			}
			return []Problem{{Code: "source_unusable", Server: m.name, Text: text,
				Do: fmt.Sprintf("put %s right: %s is pointed back to it by itself; or: replctl init slave %s without --source", m.s.Source, m.name, m.name)}}
		}
	}
	if from != want {
		return []Problem{{Code: "repointing", Server: m.name, Text: fmt.Sprintf("it reads from %s and is about to read from %s", from, want)}}
	}
	return nil
}
