package gtid

import (
	"fmt"
	"maps"
)

// Position is where a server stands in each domain: the last transaction of
// the domain, as in @@gtid_slave_pos, @@gtid_binlog_pos and Gtid_IO_Pos. The
// zero value is the empty position: nothing yet. A Position is immutable: its
// methods return new ones.
type Position struct {
	last map[uint32]GTID
}

// ParsePosition reads MariaDB's list notation, for example "0-1-5,7-9-33". Two
// identifiers of one domain are an error, as they are for gtid_slave_pos.
func ParsePosition(s string) (Position, error) {
	list, err := parseList(s)
	if err != nil {
		return Position{}, err
	}
	p := Position{last: make(map[uint32]GTID, len(list))}
	for _, g := range list {
		if _, twice := p.last[g.Domain]; twice {
			return Position{}, fmt.Errorf("gtid position %q: domain %d appears twice", s, g.Domain)
		}
		p.last[g.Domain] = g
	}
	return p, nil
}

// At is the position that consists of g alone.
func At(g GTID) Position {
	if g.IsZero() {
		return Position{}
	}
	return Position{last: map[uint32]GTID{g.Domain: g}}
}

// String prints the position in MariaDB's notation, "" if it is empty.
func (p Position) String() string {
	list := make([]GTID, 0, len(p.last))
	for _, g := range p.last {
		list = append(list, g)
	}
	return printList(list)
}

// IsEmpty tells whether nothing stands in any domain.
func (p Position) IsEmpty() bool { return len(p.last) == 0 }

// Of is the last transaction in domain, the zero GTID if there is none.
func (p Position) Of(domain uint32) GTID { return p.last[domain] }

// Domains lists, in no order, the domains in which p stands.
func (p Position) Domains() []uint32 {
	out := make([]uint32, 0, len(p.last))
	for d := range p.last {
		out = append(out, d)
	}
	return out
}

// Equal tells whether both stand at the same transactions.
func (p Position) Equal(o Position) bool {
	if len(p.last) != len(o.last) {
		return false
	}
	for d, g := range p.last {
		if o.last[d] != g {
			return false
		}
	}
	return true
}

// MarshalText prints p as [Position.String] does, for JSON.
func (p Position) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads what [Position.MarshalText] wrote.
func (p *Position) UnmarshalText(b []byte) error {
	q, err := ParsePosition(string(b))
	if err != nil {
		return err
	}
	*p = q
	return nil
}

// MarshalText prints g as [GTID.String] does, for JSON.
func (g GTID) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText reads what [GTID.MarshalText] wrote.
func (g *GTID) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*g = GTID{}
		return nil
	}
	q, err := Parse(string(b))
	if err != nil {
		return err
	}
	*g = q
	return nil
}

// With is p after g: g is the last transaction of its domain, whatever stood
// there before.
func (p Position) With(g GTID) Position {
	if g.IsZero() {
		return p
	}
	q := Position{last: make(map[uint32]GTID, len(p.last)+1)}
	maps.Copy(q.last, p.last)
	q.last[g.Domain] = g
	return q
}
