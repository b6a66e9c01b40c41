package failover

import (
	"slices"

	"github.com/repld/repld/internal/gtid"
)

// mustCompare tells whether a detached server has to prove, before it follows,
// that what bears the names of the cluster's transactions is them: it was master,
// it was out of sight, and its position comes from its own binary log. Restored
// from an older copy and written to, it has given numbers out a second time, and
// its position says nothing.
func (d *decider) mustCompare(m *member) bool {
	own := m.sv.Last.BinlogPos.Of(d.domain)
	if m.sv.Last.Slave != nil || own.IsZero() || own != m.applied || own == m.sv.Last.SlavePos.Of(d.domain) {
		return false
	}
	wasMaster := slices.ContainsFunc(d.c.Lineage, func(e gtid.Era) bool { return e.Server == m.s.Identity.ServerID })
	if !wasMaster || d.c.Loss(m.name) == nil && !m.sv.Last.Started.After(d.c.OpenedAt) {
		return false
	}
	e := m.effect
	return !(e.Running == "" && (e.Last == KindCompare && e.Failed == 0 || e.Last == KindAttach) && e.At.After(m.sv.Last.Started))
}
