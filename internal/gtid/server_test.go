package gtid_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/test/mariadb"
)

// The package's notation and order against a real server's.
func TestAsTheServerHasIt(t *testing.T) {
	s := mariadb.Start(t, mariadb.Options{Config: mariadb.Replicating(1)})
	t.Run("positions print alike", func(t *testing.T) { positionsPrintAlike(t, s) })
	t.Run("states mean the same", func(t *testing.T) { statesMeanTheSame(t, s) })
	t.Run("what the server refuses is refused", func(t *testing.T) { refusedAlike(t, s) })
	t.Run("contains is MASTER_GTID_WAIT on the lineage", func(t *testing.T) { containsIsWait(t, s) })
	t.Run("what it writes", func(t *testing.T) { whatItWrites(t, s) })
}

// few draws lists of GTIDs, fixed by the index: a server is slower than a model.
func few(gen *rapid.Generator[gtid.GTID], n int) [][]gtid.GTID {
	var out [][]gtid.GTID
	for i := range n {
		out = append(out, rapid.SliceOfN(gen, 0, 7).Example(i))
	}
	return out
}

func join(list []gtid.GTID) string {
	words := make([]string, len(list))
	for i, g := range list {
		words[i] = g.String()
	}
	return strings.Join(words, ",")
}

func positionsPrintAlike(t *testing.T, s *mariadb.Server) {
	for _, gen := range []*rapid.Generator[gtid.GTID]{small(), anyGTID()} {
		for _, list := range few(gen, 15) {
			slices.SortFunc(list, func(a, b gtid.GTID) int { return cmp.Compare(a.Domain, b.Domain) })
			list = slices.CompactFunc(list, func(a, b gtid.GTID) bool { return a.Domain == b.Domain })
			slices.Reverse(list)
			s.MustExec(t, "SET GLOBAL gtid_slave_pos='"+join(list)+"'")
			got := s.MustValue(t, "SELECT @@global.gtid_slave_pos")
			if p := parsePosition(t, join(list)); p.String() != got {
				t.Errorf("%s prints as %s, the server prints %s", join(list), p, got)
			}
		}
	}
	s.MustExec(t, "SET GLOBAL gtid_slave_pos=''")
}

func statesMeanTheSame(t *testing.T, s *mariadb.Server) {
	for _, gen := range []*rapid.Generator[gtid.GTID]{small(), anyGTID()} {
		for _, list := range few(gen, 15) {
			want := gtid.StateOf(list...)
			s.MustExec(t, "RESET MASTER", "SET GLOBAL gtid_binlog_state='"+want.String()+"'")
			got := parseState(t, s.MustValue(t, "SELECT @@global.gtid_binlog_state"))
			if got.String() != want.String() {
				t.Errorf("state %s is read back as %s", want, got)
			}
			position := parsePosition(t, s.MustValue(t, "SELECT @@global.gtid_binlog_pos"))
			for _, d := range position.Domains() {
				if want.Last(d) != position.Of(d) {
					t.Errorf("state %s: last of domain %d is %s, the server stands at %s", want, d, want.Last(d), position)
				}
			}
		}
	}
	s.MustExec(t, "RESET MASTER")
}

func refusedAlike(t *testing.T, s *mariadb.Server) {
	for _, bad := range []string{"0-1-5,0-2-6", "0-1-5,", "0-1", "0-4294967296-1", "0-1-18446744073709551616", "0-1-5,,1-1-1", "x"} {
		if err := s.Exec(t.Context(), "SET GLOBAL gtid_slave_pos='"+bad+"'"); err == nil {
			t.Errorf("the server accepts %q", bad)
		}
		if p, err := gtid.ParsePosition(bad); err == nil {
			t.Errorf("ParsePosition(%q) = %s", bad, p)
		}
	}
}

// MASTER_GTID_WAIT looks at the sequence number only. On the lineage that is the
// truth; off it the server says that it has what it has not, which is why this
// package exists.
func containsIsWait(t *testing.T, s *mariadb.Server) {
	l := gtid.Lineage{{Epoch: 1, Server: 1, First: 1}, {Epoch: 2, Server: 2, First: 104}, {Epoch: 3, Server: 1, First: 110}}
	has := func(have, want gtid.GTID) bool {
		s.MustExec(t, "SET GLOBAL gtid_slave_pos='"+have.String()+"'")
		return s.MustValue(t, "SELECT MASTER_GTID_WAIT(?, 0)", want.String()) == "0"
	}
	var on []gtid.GTID
	for _, seq := range []uint64{1, 103, 104, 109, 110, 111} {
		for _, server := range []uint32{1, 2} {
			if g := (gtid.GTID{Server: server, Seq: seq}); l.Has(g) {
				on = append(on, g)
			}
		}
	}
	if len(on) != 6 {
		t.Fatalf("on the lineage: %v", on)
	}
	for _, have := range on {
		for _, want := range on {
			if got := has(have, want); got != l.Contains(have, want) {
				t.Errorf("at %s the server has %s: %v", have, want, got)
			}
		}
	}
	tail := gtid.GTID{Server: 1, Seq: 105}
	want := gtid.GTID{Server: 2, Seq: 104}
	if !has(tail, want) || l.Contains(tail, want) {
		t.Errorf("a dead tail: the server says %v, the lineage %v", has(tail, want), l.Contains(tail, want))
	}
	s.MustExec(t, "SET GLOBAL gtid_slave_pos=''")
}

// A log that two servers and two domains wrote to, as after a failover.
func whatItWrites(t *testing.T, s *mariadb.Server) {
	s.MustExec(t, "RESET MASTER", "CREATE DATABASE app", "CREATE TABLE app.t (i INT)")
	for _, session := range [][]string{
		{"SET server_id=2", "INSERT INTO app.t VALUES (1)"},
		{"SET gtid_domain_id=5", "INSERT INTO app.t VALUES (2)"},
		{"SET server_id=300", "INSERT INTO app.t VALUES (3)"},
	} {
		s.MustExec(t, session...)
	}
	st := parseState(t, s.MustValue(t, "SELECT @@global.gtid_binlog_state"))
	if st.String() != "0-1-2,0-2-3,0-300-4,5-1-1" {
		t.Errorf("state %s", st)
	}
	p := s.MustValue(t, "SELECT @@global.gtid_binlog_pos")
	if got := parsePosition(t, p).String(); got != p || got != st.Last(0).String()+","+st.Last(5).String() {
		t.Errorf("position %s, parsed %s", p, got)
	}
}
