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

// member is a slave as the failover sees it: what it holds, what it has
// applied, and why it could not be promoted.
type member struct {
	name   string
	s      *topology.Server
	sv     *health.ServerView
	effect Effect
	// received is the last transaction that it has fetched, by any means; known
	// is false while that cannot be told (a restarted slave with a kept relay log).
	received gtid.GTID
	known    bool
	applied  gtid.GTID
	// chained: it is meant to replicate from another slave.
	chained bool
	// because are the reasons against promoting it, empty if it is promotable.
	because []Problem
}

// pending tells whether it holds transactions that it has not applied.
func (m *member) pending() bool { return m.received.Seq > m.applied.Seq }

// members evaluates every server but the given one, in order of names.
func (d *decider) members(except string) []*member {
	var out []*member
	for _, name := range d.c.Names() {
		if name == except {
			continue
		}
		out = append(out, d.member(name))
	}
	return out
}

func (d *decider) member(name string) *member {
	m := &member{name: name, s: d.c.Servers[name], sv: d.v.Servers[name], effect: d.in.Effects[name]}
	if m.sv == nil {
		m.sv = &health.ServerView{}
	}
	m.chained = d.c.Chained(name)
	m.positions(d.domain)
	m.because = d.against(m)
	return m
}

// positions reads what the server has. Gtid_IO_Pos tells what was received in
// this run of the server; gtid_slave_pos what is applied. A detached server's
// binary log tells both.
func (m *member) positions(domain uint32) {
	o := m.sv.LastOK
	m.applied = o.SlavePos.Of(domain)
	if o.Slave == nil || m.applied.IsZero() {
		if b := o.BinlogPos.Of(domain); b.Seq > m.applied.Seq {
			m.applied = b
		}
	}
	m.received, m.known = m.applied, true
	if o.Slave == nil {
		return
	}
	io := o.Slave.Received.Of(domain)
	switch {
	case io.Seq > m.received.Seq:
		m.received = io
	case io.IsZero() && !m.drained():
		m.known = relayEmpty(o.Slave)
	}
}

// relayEmpty tells whether a stopped slave's relay log provably holds nothing
// that is not executed.
func relayEmpty(st *health.SlaveStatus) bool {
	return st.UsingGTID != "No" && st.SourceLogFile == "" && st.ExecLogFile == ""
}

// drained tells whether a drain by file and position has applied the whole
// relay log.
func (m *member) drained() bool {
	st := m.sv.LastOK.Slave
	return st != nil && st.UsingGTID == "No" && st.IO == health.ThreadNo && st.SQL == health.ThreadYes &&
		strings.HasPrefix(st.SQLState, "Slave has read all relay log")
}

// cold tells whether both threads are down, without an error, while received
// transactions are not applied: in GTID mode the start of either would drop them.
func (m *member) cold() bool {
	st := m.sv.LastOK.Slave
	return st != nil && m.pending() && st.IO == health.ThreadNo && st.SQL == health.ThreadNo && st.SQLErrno == 0
}

// stuck tells whether the SQL thread has work and can not, or does not, do it. One
// that is merely stopped is none: a failover lets it apply what was received, by
// file and position if need be, unless that has failed.
func (m *member) stuck(now time.Time) bool {
	st, e := m.sv.LastOK.Slave, m.effect
	switch {
	case st == nil || !m.pending() && m.known:
		return false
	case st.SQLErrno != 0:
		return true
	case st.SQL == health.ThreadNo && m.known:
		return e.Last == KindDrain && e.Failed > drainTries
	}
	moved := m.sv.Applied
	if e.Last == KindDrain && e.Failed == 0 && e.At.After(moved) {
		moved = e.At // it was just started
	}
	return !moved.IsZero() && now.Sub(moved) >= stuckAfter
}

// drainTries is how often a relay log that cannot be applied is tried before a
// failover treats its owner as a holder that cannot give what it has.
const drainTries = 2

// errant lists what a server's binary log holds and the master's does not; nil
// if the master was not observed after it.
func (d *decider) errant(name string) []gtid.GTID {
	sv, mv := d.v.Servers[name], d.v.Servers[d.c.Master]
	if name == d.c.Master || sv == nil || mv == nil || sv.LastOK.Reach != health.ReachOK || mv.LastOK.Reach != health.ReachOK {
		return nil
	}
	if !mv.LastOK.Sent.After(sv.LastOK.At) {
		// The master may have written more since; compare again when it was
		// observed after the slave, unless nothing of the master is missing.
		if d.c.Lineage.Contains(mv.LastOK.BinlogPos.Of(d.domain), sv.LastOK.BinlogPos.Of(d.domain)) {
			return d.beyond(name, sv.LastOK.BinlogState, mv.LastOK)
		}
		return d.offLineage(name, sv.LastOK.BinlogState)
	}
	return d.beyond(name, sv.LastOK.BinlogState, mv.LastOK)
}

// beyond lists what a binary log holds and the master does not. The log of a
// master that began as a copy holds nothing from before it: what lies on the
// lineage, up to where the master stands, is in its data all the same.
func (d *decider) beyond(name string, has gtid.State, master health.Observation) []gtid.GTID {
	if master.BinlogState.IsEmpty() {
		return nil
	}
	at := master.BinlogPos.Of(d.domain)
	return slices.DeleteFunc(has.List(), func(g gtid.GTID) bool {
		return !d.dead(name, has, g) && (master.BinlogState.Contains(g) || d.c.Lineage.Contains(at, g))
	})
}

// own tells whether what a member holds is the cluster's own.
func (d *decider) own(m *member, g gtid.GTID) bool {
	return d.c.Lineage.Has(g) && !d.dead(m.name, m.sv.LastOK.BinlogState, g)
}

// dead is [gtid.Lineage.Dead] for a server.
func (d *decider) dead(name string, st gtid.State, g gtid.GTID) bool {
	s := d.c.Servers[name]
	return s != nil && d.c.Lineage.Dead(g, st, s.Followed)
}

// offLineage lists what is provably not the cluster's own.
func (d *decider) offLineage(name string, st gtid.State) []gtid.GTID {
	var out []gtid.GTID
	for _, g := range st.List() {
		if !d.c.Lineage.Has(g) || d.dead(name, st, g) {
			out = append(out, g)
		}
	}
	return out
}

// acker tells whether a server may acknowledge commits: it could itself be
// promoted, as far as what is recorded and configured goes, and is not chained.
func (d *decider) acker(name string) bool { return d.ackerOf(name, d.c.Master) }

// ackerOf tells whether a server may acknowledge the commits of a server that is,
// or is about to be, the master: one that is chained below it follows it directly
// then.
func (d *decider) ackerOf(name, master string) bool {
	if d.c.Durability == topology.Async {
		return false
	}
	s := d.c.Servers[name]
	if s == nil || name == d.c.Master || s.Held == topology.HeldAll || len(s.NeverPromotable()) > 0 || d.c.Chained(name) && s.Source != master {
		return false
	}
	m := d.member(name)
	for _, p := range m.because {
		if p.Code != "unreachable" && p.Code != "sql_error" {
			return false
		}
	}
	return true
}

// mayHaveAcknowledged tells whether a member could acknowledge commits: it is an
// acker, or was last seen attached as one although it may be none any more.
func (d *decider) mayHaveAcknowledged(m *member) bool {
	o := m.sv.LastOK
	return d.acker(m.name) || o.Slave != nil && (o.SemiSync.SlaveEnabled || o.SemiSync.SlaveOn)
}

func reachText(sv *health.ServerView) string {
	if sv.Last.Reach == health.ReachUnknown {
		return "not observed yet"
	}
	if sv.Last.Err == "" {
		return string(sv.Last.Reach)
	}
	return fmt.Sprintf("%s, %s", sv.Last.Reach, sv.Last.Err)
}

func printGTIDs(list []gtid.GTID) string {
	words := make([]string, len(list))
	for i, g := range list {
		words[i] = g.String()
	}
	return strings.Join(words, ", ")
}
