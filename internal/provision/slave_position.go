package provision

import (
	"fmt"
	"slices"

	"github.com/repld/repld/internal/gtid"
)

// restoredPosition is where a server with restored data stands: its
// gtid_slave_pos, which a dump taken with --gtid sets and whoever restores a
// physical backup must set; or, if that is empty, the position of its own
// binary log, which a copied data directory of the master has. It is pure.
func restoredPosition(f Facts) gtid.Position {
	if !f.SlavePos.IsEmpty() {
		return f.SlavePos
	}
	return f.BinlogPos
}

// available tells whether the master can still send everything after p: for
// each domain nothing newer than p may have been purged, and p itself must not
// be newer than the master. The server's own answers are errors 1236 with
// different texts; this says the same before anything is changed. It is pure.
func available(p gtid.Position, s SlaveFacts) error {
	for _, purged := range s.OldestBefore.List() {
		have := p.Of(purged.Domain)
		if have.Seq < purged.Seq {
			return fmt.Errorf("it needs what follows %s, but the master's binary logs begin after %s (%s): the rest was purged",
				orWord(have.String(), "the beginning"), purged, s.OldestFile)
		}
	}
	return nil
}

// checkRestored judges a restored position: it must exist, lie in the cluster's
// domain and on its lineage, not be newer than the master, and still be in its
// binary logs. It is pure.
func checkRestored(p gtid.Position, f Facts, c Context, s SlaveFacts) error {
	domain := c.Cluster.Lineage.Domain()
	if p.IsEmpty() {
		return fmt.Errorf("neither gtid_slave_pos nor its binary log says which transaction of the master the data goes up to")
	}
	for _, d := range p.Domains() {
		if d != domain {
			return fmt.Errorf("position %s stands in domain %d, which the cluster (domain %d) does not have: the data is not from this master, or from more than this master", p, d, domain)
		}
	}
	g := p.Of(domain)
	if err := c.Cluster.Lineage.Check(p); err != nil {
		return err
	}
	last := s.MasterFacts.BinlogState
	switch {
	case g.Seq > last.Last(domain).Seq:
		return fmt.Errorf("position %s is newer than the master, which is at %s", g, last.Last(domain))
	case !inHistory(c, last, g):
		return fmt.Errorf("position %s is not in the master's history (%s): the data is not from this master", g, last)
	}
	if err := available(p, s); err != nil {
		return err
	}
	if extra := beyond(c, f.BinlogState, last); len(extra) > 0 {
		return fmt.Errorf("its own binary log holds transactions that the master never had: %s; if they are only what restoring wrote, RESET MASTER removes them", some(extra))
	}
	return nil
}

// inHistory tells whether the master's data holds g: its binary log, in the given
// state, has held it, or it lies on the cluster's lineage, behind where the master
// stands. (A master that began as a copy never had what is older in its log.) What
// is older than the first era no lineage proves. It is pure.
func inHistory(c Context, master gtid.State, g gtid.GTID) bool {
	l := c.Cluster.Lineage
	return master.Contains(g) || len(l) > 0 && g.Seq >= l[0].First && l.Contains(master.Last(l.Domain()), g)
}

// beyond lists what a binary log in state has holds and the master's data does
// not. It is pure.
func beyond(c Context, has, master gtid.State) []gtid.GTID {
	return slices.DeleteFunc(has.List(), func(g gtid.GTID) bool { return inHistory(c, master, g) })
}
