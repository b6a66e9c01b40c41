package failover

import (
	"fmt"

	"github.com/repld/repld/health"
	"github.com/repld/repld/topology"
)

// stillHeard ends the failover if a slave that could not be asked before turns
// out to receive from the old master still: repld, and whoever else is on its
// side, was what was cut off. Detection says "vetoed" then, but a slave that
// repld has only just told to stop says nothing new: only one that is connected
// now, and has received something since the failover began, speaks for the
// master. (One that was out of reach seems to have received just now what it
// received long ago; then the master is found lost again after hang_timeout.)
func (d *decider) stillHeard(in *topology.Intent, ms []*member) (Action, bool) {
	mv := d.v.Servers[in.OldMaster]
	if d.in.Verdict.State != health.StateVetoed || mv == nil || d.fencedByHook(in) {
		return Action{}, false
	}
	for _, m := range ms {
		st := m.sv.Last.Slave
		if !m.sv.Reachable() || m.s.Joining || st == nil || st.IO != health.ThreadYes || d.sourceOf(st) != in.OldMaster || !m.sv.Last.Sent.After(in.Begun) {
			continue
		}
		if mv.Last.Reach != health.ReachRefused && !m.sv.Advanced.After(in.Begun) {
			continue
		}
		return Action{
			Kind: KindJournal, Ends: topology.ResultRolledBack,
			Journal: []topology.Command{topology.EndIntent{Cluster: d.c.Name, Intent: in.ID, At: d.now}},
			Why:     []string{fmt.Sprintf("%s still receives from %s: the failover is called off", m.name, in.OldMaster)},
		}, true
	}
	return Action{}, false
}
