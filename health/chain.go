package health

import (
	"time"

	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// readsMaster tells whether a slave's IO thread reads, or is meant to read, from
// the recorded master itself. That of a chained slave reads from another slave
// and says nothing about the master. (One whose source is no member may know the
// master by another address; it counts, for a veto too many only delays.)
func (d *detection) readsMaster(s *topology.Server, st *SlaveStatus) bool {
	c := d.v.Cluster
	if from := c.At(st.SourceHost, st.SourcePort); from != "" {
		return from == c.Master
	}
	return !c.Chained(s.Name)
}

// hearChained notes what a chained slave received if its relay cannot be asked:
// transactions that still arrive through it speak for the master. (An IO thread
// that is connected to the relay, or its heartbeats, say nothing.)
func (d *detection) hearChained(name string, sv *ServerView) {
	st := sv.Last.Slave
	relay := d.v.Servers[d.v.Cluster.At(st.SourceHost, st.SourcePort)]
	if relay.Reachable() {
		d.note("%s: reads from a slave, says nothing", name)
		return
	}
	if until := sv.Fetched.Add(d.p.HangTimeout); !sv.Fetched.IsZero() && until.After(d.hearsUntil) {
		d.hearsUntil, d.at, d.by = until, sv.Fetched, name
	}
	d.note("%s: reads from a slave that is not reachable, IO thread %s", name, st.IO)
}

// foldRunning keeps how long both threads have been seen running, and when the
// slave last received a transaction.
func (s *ServerView) foldRunning(prev, obs Observation) {
	if obs.Reach != ReachOK || obs.Slave == nil || obs.Slave.IO != ThreadYes || obs.Slave.SQL != ThreadYes {
		s.RunningSince = time.Time{}
	} else {
		s.RunningAt = obs.At
		if s.RunningSince.IsZero() {
			s.RunningSince = obs.At
		}
	}
	if obs.Reach == ReachOK && obs.Slave != nil && prev.Slave != nil && grown(prev.Slave.Received, obs.Slave.Received) {
		s.Fetched = obs.At
	}
}

// grown tells whether a received position moved on. From empty it does so when an
// IO thread starts, which is no news.
func grown(was, is gtid.Position) bool { return !was.IsEmpty() && !is.Equal(was) }
