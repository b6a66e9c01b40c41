package gtid_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/repld/repld/internal/gtid"
)

// small GTIDs collide often, which is where the laws are interesting.
func small() *rapid.Generator[gtid.GTID] {
	return rapid.Custom(func(t *rapid.T) gtid.GTID {
		return gtid.GTID{
			Domain: rapid.Uint32Range(0, 2).Draw(t, "domain"),
			Server: rapid.Uint32Range(1, 3).Draw(t, "server"),
			Seq:    rapid.Uint64Range(1, 6).Draw(t, "seq"),
		}
	})
}

func anyGTID() *rapid.Generator[gtid.GTID] {
	return rapid.Custom(func(t *rapid.T) gtid.GTID {
		return gtid.GTID{Domain: rapid.Uint32().Draw(t, "domain"), Server: rapid.Uint32().Draw(t, "server"), Seq: rapid.Uint64Min(1).Draw(t, "seq")}
	})
}

func states() *rapid.Generator[gtid.State] {
	return rapid.Custom(func(t *rapid.T) gtid.State {
		return gtid.StateOf(rapid.SliceOfN(small(), 0, 8).Draw(t, "list")...)
	})
}

func TestPrintingAndParsingAreInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := anyGTID().Draw(t, "g")
		if got, err := gtid.Parse(g.String()); err != nil || got != g {
			t.Fatalf("Parse(%s) = %v, %v", g, got, err)
		}
		list := rapid.SliceOf(rapid.OneOf(small(), anyGTID())).Draw(t, "list")
		s := gtid.StateOf(list...)
		if got, err := gtid.ParseState(s.String()); err != nil || !slices.Equal(got.List(), s.List()) {
			t.Fatalf("ParseState(%s) = %v, %v", s, got, err)
		}
		one := map[uint32]gtid.GTID{}
		for _, g := range list {
			one[g.Domain] = g
		}
		words := []string{}
		for _, g := range one {
			words = append(words, g.String())
		}
		p, err := gtid.ParsePosition(strings.Join(words, ","))
		if err != nil {
			t.Fatal(err)
		}
		again, err := gtid.ParsePosition(p.String())
		if err != nil || !again.Equal(p) || !p.Equal(again) || again.String() != p.String() {
			t.Fatalf("ParsePosition(%s) = %v, %v", p, again, err)
		}
		if len(p.Domains()) != len(one) {
			t.Fatalf("domains of %s: %v", p, p.Domains())
		}
		for d, g := range one {
			if p.Of(d) != g {
				t.Fatalf("%s at domain %d: %v, want %v", p, d, p.Of(d), g)
			}
		}
	})
}

func TestParseNeverAcceptsWhatItPrintsDifferentlyInValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`[-0-9,+ x]{0,12}`).Draw(t, "s")
		p, err := gtid.ParsePosition(s)
		if err != nil {
			return
		}
		again, err := gtid.ParsePosition(p.String())
		if err != nil || !again.Equal(p) {
			t.Fatalf("%q is read as %s and that as %s (%v)", s, p, again, err)
		}
	})
}

// held is the dumb model of a log's state: every single transaction.
func held(s gtid.State) map[gtid.GTID]bool {
	all := map[gtid.GTID]bool{}
	for _, g := range s.List() {
		for seq := uint64(1); seq <= g.Seq; seq++ {
			all[gtid.GTID{Domain: g.Domain, Server: g.Server, Seq: seq}] = true
		}
	}
	return all
}

func TestStatesBehaveAsSetsOfTransactions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := states().Draw(t, "a"), states().Draw(t, "b"), states().Draw(t, "c")
		inA, inB := held(a), held(b)
		g := small().Draw(t, "g")
		if a.Contains(g) != inA[g] || !a.Contains(gtid.GTID{}) {
			t.Fatalf("%s contains %s: %v", a, g, a.Contains(g))
		}
		union := maps.Clone(inA)
		maps.Copy(union, inB)
		if got := held(a.Union(b)); !maps.Equal(got, union) {
			t.Fatalf("%s union %s is %s", a, b, a.Union(b))
		}
		if a.Union(b).String() != b.Union(a).String() || a.Union(a).String() != a.String() ||
			a.Union(b).Union(c).String() != a.Union(b.Union(c)).String() {
			t.Fatalf("union of %s, %s, %s depends on the order", a, b, c)
		}
		// Beyond names the last of what only a holds, for each domain and server.
		last := map[[2]uint32]gtid.GTID{}
		for g := range inA {
			if k := [2]uint32{g.Domain, g.Server}; !inB[g] && g.Seq > last[k].Seq {
				last[k] = g
			}
		}
		want := slices.SortedFunc(maps.Values(last), gtid.GTID.Compare)
		if got := a.Beyond(b); !slices.Equal(got, want) {
			t.Fatalf("%s beyond %s is %v, want %v", a, b, got, want)
		}
		if len(a.Beyond(a.Union(b))) != 0 || (len(a.Beyond(b)) == 0) != (a.Union(b).String() == b.String()) {
			t.Fatalf("%s beyond %s disagrees with their union", a, b)
		}
	})
}

func TestStateReportsHighestNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := states().Draw(t, "a")
		for d := range uint32(3) {
			highest := uint64(0)
			for s := range uint32(4) {
				high := uint64(0)
				for g := range held(a) {
					if g.Domain == d && g.Server == s {
						high = max(high, g.Seq)
					}
				}
				if got := a.High(d, s); got != high {
					t.Fatalf("%s: High(%d, %d) = %d, want %d", a, d, s, got, high)
				}
				highest = max(highest, high)
			}
			if got := a.Last(d); got.Seq != highest || !a.Contains(got) {
				t.Fatalf("%s: Last(%d) = %s, want sequence %d", a, d, got, highest)
			}
		}
	})
}

// history is the dumb model of a cluster: the transactions themselves, each with
// its name, on the lineage or dead.
type history struct {
	lineage gtid.Lineage
	own     []gtid.GTID        // by sequence number, from 1
	dead    map[gtid.GTID]bool // written, and not part of what came after
}

// histories simulates masters that write, die with a tail that nobody else has,
// and are succeeded by a server that forks off before the tail.
func histories() *rapid.Generator[history] {
	return rapid.Custom(func(t *rapid.T) history {
		h := history{dead: map[gtid.GTID]bool{}}
		master := uint32(0)
		for epoch := range uint64(rapid.IntRange(1, 6).Draw(t, "eras")) {
			master = rapid.Uint32Range(1, 4).Filter(func(s uint32) bool { return s != master }).Draw(t, "master")
			if epoch > 0 {
				last := h.lineage[len(h.lineage)-1]
				fork := rapid.Uint64Range(last.First-1, uint64(len(h.own))).Draw(t, "fork")
				for _, g := range h.own[fork:] {
					h.dead[g] = true
				}
				h.own = h.own[:fork:fork]
			}
			first := uint64(len(h.own)) + 1
			l, err := h.lineage.Append(gtid.Era{Epoch: epoch + 1, Domain: 7, Server: master, First: first})
			if err != nil {
				t.Fatalf("append: %v", err)
			}
			h.lineage = l
			for range rapid.IntRange(0, 5).Draw(t, "writes") {
				h.own = append(h.own, gtid.GTID{Domain: 7, Server: master, Seq: uint64(len(h.own)) + 1})
			}
		}
		return h
	})
}

func TestTheLineageHasExactlyTheClustersOwnTransactions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := histories().Draw(t, "history")
		last := h.lineage[len(h.lineage)-1]
		for _, g := range h.own {
			if !h.lineage.Has(g) {
				t.Fatalf("%s is not on %v", g, h.lineage)
			}
		}
		for g := range h.dead {
			// A name given twice, or that the present master has yet to give, says
			// nothing about which of the two transactions is meant: see Has.
			ambiguous := slices.Contains(h.own, g) || g.Server == last.Server && g.Seq >= last.First
			if h.lineage.Has(g) && !ambiguous {
				t.Fatalf("%s is dead and on %v", g, h.lineage)
			}
		}
		for s := range uint32(5) {
			for seq := uint64(1); seq <= uint64(len(h.own)); seq++ {
				if g := (gtid.GTID{Domain: 7, Server: s, Seq: seq}); h.lineage.Has(g) != slices.Contains(h.own, g) {
					t.Fatalf("%s on %v: %v", g, h.lineage, h.lineage.Has(g))
				}
				if foreign := (gtid.GTID{Domain: 6, Server: s, Seq: seq}); h.lineage.Has(foreign) {
					t.Fatalf("foreign %s is on %v", foreign, h.lineage)
				}
			}
		}
	})
}

func TestContainsIsThePrefixOrderOnTheLineage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := histories().Draw(t, "history")
		all := append([]gtid.GTID{{}}, h.own...)
		for g := range h.dead {
			if !h.lineage.Has(g) {
				all = append(all, g)
			}
		}
		// up is how many of the cluster's transactions a server that stands at g
		// has: all up to g; -1 if g is none of them.
		up := func(g gtid.GTID) int {
			if g.IsZero() {
				return 0
			}
			return slices.Index(h.own, g) + 1
		}
		on := func(g gtid.GTID) bool { return g.IsZero() || slices.Contains(h.own, g) }
		a, b, c := rapid.SampledFrom(all).Draw(t, "a"), rapid.SampledFrom(all).Draw(t, "b"), rapid.SampledFrom(all).Draw(t, "c")
		has := h.lineage.Contains
		if want := on(a) && on(b) && up(a) >= up(b); has(a, b) != want {
			t.Fatalf("%v: Contains(%s, %s) = %v", h.lineage, a, b, has(a, b))
		}
		if on(a) != has(a, a) {
			t.Fatalf("Contains(%s, %s) = %v", a, a, has(a, a))
		}
		if has(a, b) && has(b, c) && !has(a, c) {
			t.Fatalf("Contains is not transitive on %s, %s, %s", a, b, c)
		}
		if on(a) && on(b) && !has(a, b) && !has(b, a) {
			t.Fatalf("%s and %s cannot be compared", a, b)
		}
		if has(a, b) && has(b, a) && a != b {
			t.Fatalf("%s and %s are taken for the same", a, b)
		}
	})
}

func TestAppendKeepsEpochsAndNumbersInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l gtid.Lineage
		for range 8 {
			e := gtid.Era{
				Epoch: rapid.Uint64Range(1, 6).Draw(t, "epoch"), Domain: rapid.Uint32Range(0, 1).Draw(t, "domain"),
				Server: rapid.Uint32Range(1, 3).Draw(t, "server"), First: rapid.Uint64Range(1, 20).Draw(t, "first"),
			}
			m, err := l.Append(e)
			if err == nil {
				l = m
			} else if !slices.Equal(l, m) {
				t.Fatalf("refused, and yet %v became %v", l, m)
			}
		}
		for i := 1; i < len(l); i++ {
			if l[i].Epoch <= l[i-1].Epoch || l[i].First < l[i-1].First || l[i].Domain != l.Domain() {
				t.Fatalf("lineage %v", l)
			}
		}
	})
}
