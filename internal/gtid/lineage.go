package gtid

import (
	"errors"
	"fmt"
)

// Era is the time of one master: from its opening, all transactions of the
// cluster carry its server_id and sequence numbers from First on, until the
// next era begins.
type Era struct {
	Epoch  uint64 `json:"epoch"`
	Domain uint32 `json:"domain"`
	Server uint32 `json:"server_id"`
	First  uint64 `json:"first_sequence"`
}

// Lineage is the cluster's own history: its eras in order of their epochs. It
// answers the one question that sequence numbers alone cannot: whether a
// position belongs to the history that the present master continues. A dead
// master's 0-1-105 is a higher number than its successor's 0-2-104, and yet
// contains nothing of it, if the second era began at 104.
//
// What lies before the first era is taken to be common: init and adopt prove
// that, by comparing binary log states, before a server becomes a member.
type Lineage []Era

// ErrDiverged is wrapped by errors about a position that is off the lineage.
var ErrDiverged = errors.New("off the cluster's lineage")

// Append adds the era of a new master. It refuses an epoch or a first sequence
// number that does not grow, and a change of domain: they would make positions
// incomparable.
func (l Lineage) Append(e Era) (Lineage, error) {
	if len(l) > 0 {
		last := l[len(l)-1]
		switch {
		case e.Epoch <= last.Epoch:
			return l, fmt.Errorf("lineage: epoch %d does not follow %d", e.Epoch, last.Epoch)
		case e.Domain != last.Domain:
			return l, fmt.Errorf("lineage: domain %d differs from the cluster's %d", e.Domain, last.Domain)
		case e.First < last.First:
			return l, fmt.Errorf("lineage: epoch %d would begin at %d, before epoch %d at %d", e.Epoch, e.First, last.Epoch, last.First)
		}
	}
	return append(l[:len(l):len(l)], e), nil
}

// Domain is the cluster's one domain.
func (l Lineage) Domain() uint32 {
	if len(l) == 0 {
		return 0
	}
	return l[0].Domain
}

// Has tells whether g lies on the lineage: it was written by the master of the
// era that its sequence number falls into, or before the first era. The zero
// GTID (nothing yet) does.
//
// Has can only tell what the identifiers tell: if a server became master again,
// and its earlier dead tail had reached beyond the first sequence number of its
// new era, two transactions of one name exist. [Lineage.Dead] tells them apart.
func (l Lineage) Has(g GTID) bool {
	if g.IsZero() {
		return true
	}
	if len(l) == 0 || g.Domain != l.Domain() {
		return false
	}
	i := l.era(g.Seq)
	return i < 0 || g.Server == l[i].Server
}

// era is the index of the era that a sequence number falls into, -1 for what
// lies before the first.
func (l Lineage) era(seq uint64) int {
	for i := len(l) - 1; i >= 0; i-- {
		if seq >= l[i].First {
			return i
		}
	}
	return -1
}

// Dead tells whether g, held by a server, only bears the name of one of the
// cluster's own: its era's master had been master before and left a tail, and the
// server can have nothing of the later era, because the last master that it was
// let follow is that of epoch followed (0: unknown), and because its binary log,
// in state st, holds nothing of the eras between the two. A tail that nobody has
// seen, on a server that was down all the while, is recognised by that, too.
func (l Lineage) Dead(g GTID, st State, followed uint64) bool {
	k := l.era(g.Seq)
	if k < 0 || !l.Has(g) || followed == 0 || l[k].Epoch <= followed {
		return false
	}
	between := false
	for i := k - 1; i >= 0; i-- {
		e := l[i]
		switch {
		case e.Server == g.Server && between:
			return true
		case e.Server == g.Server && e.Epoch <= followed:
			return false // the same master went on
		case e.Server == g.Server:
			continue
		}
		between = true
		if end := l[i+1].First - 1; end >= e.First && st.High(e.Domain, e.Server) >= end {
			return false // it went through the era between
		}
	}
	return false
}

// At is the cluster's transaction with a sequence number that is not higher than
// g's. Who wrote what lies before the first era is not recorded: it is taken for
// the first master.
func (l Lineage) At(g GTID, seq uint64) GTID {
	if seq == 0 {
		return GTID{}
	}
	at := GTID{Domain: g.Domain, Server: g.Server, Seq: seq}
	if i := l.era(seq); i >= 0 {
		at.Server = l[i].Server
	} else if len(l) > 0 {
		at.Server = l[0].Server
	}
	return at
}

// Before is the transaction before g, zero before the first.
func (l Lineage) Before(g GTID) GTID { return l.At(g, max(1, g.Seq)-1) }

// Check returns an error that wraps [ErrDiverged] and names what was expected
// if p, a server's position, is off the lineage or stands in a foreign domain.
func (l Lineage) Check(p Position) error {
	for _, d := range p.Domains() {
		if d != l.Domain() {
			return fmt.Errorf("position %s stands in domain %d, the cluster's is %d: %w", p, d, l.Domain(), ErrDiverged)
		}
	}
	if g := p.Of(l.Domain()); !l.Has(g) {
		return fmt.Errorf("position %s is not among the cluster's own transactions (%s): %w", g, l.describe(g.Seq), ErrDiverged)
	}
	return nil
}

func (l Lineage) describe(seq uint64) string {
	for i := len(l) - 1; i >= 0; i-- {
		if seq >= l[i].First {
			return fmt.Sprintf("from sequence %d on they are written by server_id %d", l[i].First, l[i].Server)
		}
	}
	return "no era recorded"
}

// Common gives the last transaction of the lineage that a binary log with this
// state holds: where a server, be it the master of an earlier era with a tail of
// its own, left the cluster's history. The zero GTID if it holds none. followed is
// as in [Lineage.Dead].
func (l Lineage) Common(st State, followed uint64) GTID {
	var best GTID
	consider := func(g GTID) {
		if !g.IsZero() && l.Has(g) && !l.Dead(g, st, followed) && g.Seq > best.Seq {
			best = g
		}
	}
	for _, g := range st.List() {
		consider(g)
		for i, e := range l[:max(0, len(l)-1)] {
			if end := l[i+1].First - 1; e.Domain == g.Domain && e.Server == g.Server && g.Seq > end && (followed == 0 || e.Epoch <= followed) {
				consider(GTID{Domain: g.Domain, Server: g.Server, Seq: end})
			}
		}
	}
	return best
}

// Contains tells whether a server that stands at have, on the lineage, has
// everything up to want. A position off the lineage contains nothing and is
// contained by nothing.
func (l Lineage) Contains(have, want GTID) bool {
	return l.Has(have) && l.Has(want) && have.Seq >= want.Seq
}
