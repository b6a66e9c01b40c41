package gtid

import "slices"

// pair is what gtid_binlog_state keeps one sequence number for.
type pair struct{ domain, server uint32 }

// State is what a binary log has ever held: for each domain and originating
// server the highest sequence number, as in @@gtid_binlog_state. The zero
// value is the state of an empty log. A State is immutable.
type State struct {
	high map[pair]uint64
}

// ParseState reads @@gtid_binlog_state's notation. A pair given twice, which no
// server prints, keeps its highest sequence number.
func ParseState(s string) (State, error) {
	list, err := parseList(s)
	if err != nil {
		return State{}, err
	}
	return StateOf(list...), nil
}

// StateOf is the state of a log that holds each domain's and server's
// transactions up to the given ones.
func StateOf(list ...GTID) State {
	st := State{high: make(map[pair]uint64, len(list))}
	for _, g := range list {
		if g.IsZero() {
			continue
		}
		k := pair{g.Domain, g.Server}
		st.high[k] = max(st.high[k], g.Seq)
	}
	return st
}

// List gives the highest transaction of each domain and server, sorted by
// domain, then sequence.
func (s State) List() []GTID {
	list := make([]GTID, 0, len(s.high))
	for k, seq := range s.high {
		list = append(list, GTID{k.domain, k.server, seq})
	}
	slices.SortFunc(list, GTID.Compare)
	return list
}

// String prints the state in MariaDB's notation. The server prints the last
// transaction written in each domain last; here it is the highest, which is the
// same unless a server without gtid_strict_mode went out of order.
func (s State) String() string { return printList(s.List()) }

// IsEmpty tells whether the log never held a transaction.
func (s State) IsEmpty() bool { return len(s.high) == 0 }

// Contains tells whether a log in this state has held g: for g's domain and
// server it went at least as far. Sequence numbers of one server in one domain
// only grow, so this is exact for servers that run with gtid_strict_mode.
func (s State) Contains(g GTID) bool {
	return g.IsZero() || s.high[pair{g.Domain, g.Server}] >= g.Seq
}

// Beyond lists, for each domain and server, the highest transaction of s where
// s went further than o: what s holds that o never had. It is empty exactly
// if o contains s.
func (s State) Beyond(o State) []GTID {
	var out []GTID
	for _, g := range s.List() {
		if !o.Contains(g) {
			out = append(out, g)
		}
	}
	return out
}

// High is the highest sequence number written by server in domain, 0 if none.
func (s State) High(domain, server uint32) uint64 { return s.high[pair{domain, server}] }

// Union is the state of a log that held what either did.
func (s State) Union(o State) State { return StateOf(append(s.List(), o.List()...)...) }

// Last is the highest sequence number of a domain, whoever wrote it.
func (s State) Last(domain uint32) GTID {
	var last GTID
	for _, g := range s.List() {
		if g.Domain == domain && g.Seq >= last.Seq {
			last = g
		}
	}
	return last
}

// MarshalText prints s as [State.String] does, for JSON.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what [State.MarshalText] wrote.
func (s *State) UnmarshalText(b []byte) error {
	q, err := ParseState(string(b))
	if err != nil {
		return err
	}
	*s = q
	return nil
}
