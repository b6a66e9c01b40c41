package gtid_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/repld/repld/internal/gtid"
)

func TestParse(t *testing.T) {
	for in, want := range map[string]gtid.GTID{
		"0-1-5":     {Domain: 0, Server: 1, Seq: 5},
		" 7-9-33\n": {Domain: 7, Server: 9, Seq: 33},
		"0-01-5":    {Domain: 0, Server: 1, Seq: 5},
		"4294967295-4294967295-18446744073709551615": {Domain: 1<<32 - 1, Server: 1<<32 - 1, Seq: 1<<64 - 1},
	} {
		if got, err := gtid.Parse(in); err != nil || got != want {
			t.Errorf("Parse(%q) = %v, %v", in, got, err)
		}
	}
	for _, in := range []string{
		"", "-", "0-1", "0-1-5-6", "x-1-5", "0-x-5", "0-1-x", "0-1-0", "0-1-", "--", "0-1--5", "0-1-+5", "0 -1-5", "0-1-0x5", "0-1-1_0",
		"4294967296-1-1", "0-4294967296-1", "0-1-18446744073709551616", "3E11FA47-71CA-11E1-9E33-C80AA9429562:1-5",
	} {
		if got, err := gtid.Parse(in); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", in, got)
		}
	}
}

func TestParsePosition(t *testing.T) {
	for in, want := range map[string]string{
		"":                  "",
		"  \n":              "",
		"0-1-5":             "0-1-5",
		"5-1-3,0-2-7,3-9-1": "0-2-7,3-9-1,5-1-3",
		"10-1-1,9-1-1":      "9-1-1,10-1-1",
		"0-1-5,\n7-9-33":    "0-1-5,7-9-33", // as SHOW SLAVE STATUS wraps long lists
	} {
		if got, err := gtid.ParsePosition(in); err != nil || got.String() != want || got.IsEmpty() != (want == "") {
			t.Errorf("ParsePosition(%q) = %v, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{",", "0-1-5,", ",0-1-5", "0-1-5,0-1-5", "0-1-5,0-2-6", "0-1-5 1-1-1", "0-1-5;1-1-1"} {
		if got, err := gtid.ParsePosition(in); err == nil {
			t.Errorf("ParsePosition(%q) = %v, want an error", in, got)
		}
	}
	p := parsePosition(t, "0-1-5,7-9-33")
	if got := p.Of(7); got != (gtid.GTID{Domain: 7, Server: 9, Seq: 33}) {
		t.Errorf("Of(7) = %v", got)
	}
	if got := p.Of(1); !got.IsZero() {
		t.Errorf("Of(1) = %v", got)
	}
	if !gtid.At(gtid.GTID{}).IsEmpty() || !gtid.At(gtid.GTID{}).Equal(parsePosition(t, "")) {
		t.Error("At(zero) is not the empty position")
	}
}

func TestParseState(t *testing.T) {
	for in, want := range map[string]string{
		"":                               "",
		"0-2-6,0-1-5":                    "0-1-5,0-2-6",
		"0-257-9,0-300-4,0-1-3":          "0-1-3,0-300-4,0-257-9",
		"1-1-1,0-1-7,0-1-9,0-1-8":        "0-1-9,1-1-1",
		"0-2-5,0-1-5":                    "0-1-5,0-2-5",
		"0-1-18446744073709551615,0-2-1": "0-2-1,0-1-18446744073709551615",
	} {
		if got, err := gtid.ParseState(in); err != nil || got.String() != want || got.IsEmpty() != (want == "") {
			t.Errorf("ParseState(%q) = %v, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{",", "0-1-5,", "0-1", "0-1-0"} {
		if got, err := gtid.ParseState(in); err == nil {
			t.Errorf("ParseState(%q) = %v, want an error", in, got)
		}
	}
}

// Where a server left the cluster's history: a former master at the end of its
// own era, however many eras ago, a slave where it stands.
func TestCommonIsWhereAServerLeftTheLineage(t *testing.T) {
	l := gtid.Lineage{{Epoch: 1, Server: 1, First: 1}, {Epoch: 2, Server: 2, First: 104}, {Epoch: 3, Server: 3, First: 200}, {Epoch: 4, Server: 1, First: 300}}
	for state, want := range map[string]string{
		"":                        "",
		"0-1-90":                  "0-1-90",
		"0-1-103":                 "0-1-103",
		"0-1-105":                 "0-1-103", // the tail of the first master
		"0-1-250":                 "0-1-103",
		"0-1-103,0-2-150":         "0-2-150",
		"0-1-103,0-2-205":         "0-2-199",
		"0-1-103,0-2-120,9-1-7":   "0-2-120",
		"0-1-90,0-4-95":           "0-1-90", // written on a slave
		"0-2-199,0-3-299,0-1-320": "0-1-320",
		"0-2-199,0-3-310,0-1-103": "0-3-299",
	} {
		if got := l.Common(parseState(t, state), 0).String(); got != want {
			t.Errorf("Common(%s) = %q, want %q", state, got, want)
		}
	}
	if got := (gtid.Lineage{}).Common(parseState(t, "0-1-5"), 0); !got.IsZero() {
		t.Errorf("without an era: %v", got)
	}
}

func TestTextRoundTripsThroughJSON(t *testing.T) {
	type all struct {
		None, G gtid.GTID
		P, E    gtid.Position
		S       gtid.State
		L       gtid.Lineage
	}
	in := all{
		G: gtid.GTID{Domain: 0, Server: 2, Seq: 104},
		P: parsePosition(t, "0-1-5,7-9-33"), S: parseState(t, "0-1-5,0-2-104"),
		L: gtid.Lineage{{Epoch: 1, Server: 1, First: 1}, {Epoch: 2, Server: 2, First: 104}},
	}
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"None":"","G":"0-2-104","P":"0-1-5,7-9-33","E":"","S":"0-1-5,0-2-104","L":[{"epoch":1,"domain":0,"server_id":1,"first_sequence":1},{"epoch":2,"domain":0,"server_id":2,"first_sequence":104}]}`
	if string(b) != want {
		t.Errorf("JSON is %s", b)
	}
	var out all
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	if again, err := json.Marshal(out); err != nil || string(again) != want || !out.P.Equal(in.P) {
		t.Errorf("read back: %s, %v", again, err)
	}
	for _, bad := range []string{`{"G":"0-1"}`, `{"P":"0-1-5,0-2-5"}`, `{"S":"x"}`} {
		if err := json.Unmarshal([]byte(bad), &out); err == nil {
			t.Errorf("%s was read", bad)
		}
	}
}

// The measured case: the dead master's tail has higher numbers than its
// successor's first transactions and contains none of them.
func TestADeadMastersTailContainsNothing(t *testing.T) {
	var l gtid.Lineage
	l = extend(t, l, gtid.Era{Epoch: 1, Server: 1, First: 1})
	l = extend(t, l, gtid.Era{Epoch: 2, Server: 2, First: 104})
	parse := func(s string) gtid.GTID {
		g, err := gtid.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	for _, c := range []struct {
		have, want string
		contains   bool
	}{
		{"0-1-105", "0-2-104", false}, {"0-2-104", "0-1-105", false}, {"0-1-105", "0-1-103", false}, {"0-1-105", "0-1-105", false},
		{"0-2-104", "0-1-103", true}, {"0-1-103", "0-2-104", false}, {"0-2-104", "0-2-104", true}, {"0-2-103", "0-1-1", false},
		{"1-1-103", "0-1-1", false}, {"0-2-105", "1-2-104", false}, {"0-3-200", "0-1-1", false},
	} {
		if got := l.Contains(parse(c.have), parse(c.want)); got != c.contains {
			t.Errorf("Contains(%s, %s) = %v", c.have, c.want, got)
		}
	}
	if err := l.Check(parsePosition(t, "0-1-105")); !errors.Is(err, gtid.ErrDiverged) ||
		err.Error() != "position 0-1-105 is not among the cluster's own transactions (from sequence 104 on they are written by server_id 2): off the cluster's lineage" {
		t.Errorf("Check: %v", err)
	}
	if err := l.Check(parsePosition(t, "0-2-104,7-1-1")); !errors.Is(err, gtid.ErrDiverged) {
		t.Errorf("Check of a foreign domain: %v", err)
	}
	for _, ok := range []string{"", "0-1-103", "0-2-1000"} {
		if err := l.Check(parsePosition(t, ok)); err != nil {
			t.Errorf("Check(%q): %v", ok, err)
		}
	}
}

// What is before the first era is common by agreement, whoever wrote it.
func TestWhatLiesBeforeTheFirstEraIsCommon(t *testing.T) {
	l := extend(t, nil, gtid.Era{Epoch: 1, Domain: 3, Server: 1, First: 50})
	if !l.Has(gtid.GTID{Domain: 3, Server: 77, Seq: 49}) || l.Has(gtid.GTID{Domain: 3, Server: 77, Seq: 50}) {
		t.Error("the first era does not begin at 50")
	}
	if gtid.Lineage(nil).Has(gtid.GTID{Server: 1, Seq: 1}) || !gtid.Lineage(nil).Has(gtid.GTID{}) {
		t.Error("without an era only nothing is on the lineage")
	}
}

func TestAppendRefusesWhatWouldMakePositionsIncomparable(t *testing.T) {
	l := extend(t, nil, gtid.Era{Epoch: 3, Domain: 1, Server: 1, First: 10})
	for _, bad := range []gtid.Era{
		{Epoch: 3, Domain: 1, Server: 2, First: 20}, {Epoch: 2, Domain: 1, Server: 2, First: 20},
		{Epoch: 4, Domain: 0, Server: 2, First: 20}, {Epoch: 4, Domain: 1, Server: 2, First: 9},
	} {
		if got, err := l.Append(bad); err == nil || len(got) != 1 {
			t.Errorf("Append(%+v) = %v, %v", bad, got, err)
		}
	}
	// A master that wrote nothing leaves no trace: the next era may begin where
	// its own did, and owns the number.
	m := extend(t, extend(t, l, gtid.Era{Epoch: 4, Domain: 1, Server: 2, First: 10}), gtid.Era{Epoch: 5, Domain: 1, Server: 3, First: 10})
	if m.Has(gtid.GTID{Domain: 1, Server: 2, Seq: 10}) || !m.Has(gtid.GTID{Domain: 1, Server: 3, Seq: 10}) {
		t.Error("the empty era owns a number")
	}
}

// Two continuations of one lineage must not share memory.
func TestAppendLeavesTheOriginalAlone(t *testing.T) {
	l := append(make(gtid.Lineage, 0, 8), gtid.Era{Epoch: 1, Server: 1, First: 1})
	a := extend(t, l, gtid.Era{Epoch: 2, Server: 2, First: 10})
	b := extend(t, l, gtid.Era{Epoch: 2, Server: 3, First: 20})
	if a[1].Server != 2 || b[1].Server != 3 || len(l) != 1 {
		t.Errorf("a %v, b %v", a, b)
	}
}

func extend(t *testing.T, l gtid.Lineage, e gtid.Era) gtid.Lineage {
	t.Helper()
	m, err := l.Append(e)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func parsePosition(t *testing.T, s string) gtid.Position {
	t.Helper()
	p, err := gtid.ParsePosition(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func parseState(t *testing.T, s string) gtid.State {
	t.Helper()
	st, err := gtid.ParseState(s)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// A tail of a server that was master twice bears names that its second era gave
// out again. Who cannot have followed that era has the tail.
func TestATailWhoseNumbersWereGivenOutAgainIsDead(t *testing.T) {
	// 1 was lost at 104 with a tail up to 110; 2 wrote 105 and 106; then 1 again.
	l := gtid.Lineage{{Epoch: 1, Server: 1, First: 1}, {Epoch: 2, Server: 2, First: 105}, {Epoch: 3, Server: 1, First: 107}}
	empty := gtid.Lineage{l[0], {Epoch: 2, Server: 2, First: 105}, {Epoch: 3, Server: 1, First: 105}}
	same := gtid.Lineage{l[0], {Epoch: 2, Server: 1, First: 105}}
	for name, c := range map[string]struct {
		l        gtid.Lineage
		g, state string
		followed uint64
		dead     bool
		common   string
	}{
		"the tail":                             {l, "0-1-110", "0-1-110", 1, true, "0-1-104"},
		"the tail, where it is off anyway":     {l, "0-1-106", "0-1-106", 1, false, "0-1-104"},
		"who followed the era":                 {l, "0-1-110", "0-1-110", 3, false, "0-1-110"},
		"who went through the era between":     {l, "0-1-110", "0-1-110,0-2-106", 2, false, "0-1-110"},
		"who left in the middle of it":         {l, "0-1-110", "0-1-110,0-2-105", 1, true, "0-2-105"},
		"who follows nobody knows whom":        {l, "0-1-110", "0-1-110", 0, false, "0-1-110"},
		"what is common":                       {l, "0-1-104", "0-1-104", 1, false, "0-1-104"},
		"an era between without a transaction": {empty, "0-1-105", "0-1-105", 1, true, "0-1-104"},
		"one master in two eras in a row":      {same, "0-1-110", "0-1-110", 1, false, "0-1-110"},
	} {
		g, err := gtid.Parse(c.g)
		if err != nil {
			t.Fatal(err)
		}
		st := parseState(t, c.state)
		if got := c.l.Dead(g, st, c.followed); got != c.dead {
			t.Errorf("%s: dead %v", name, got)
		}
		if got := c.l.Common(st, c.followed).String(); got != c.common {
			t.Errorf("%s: common %s, want %s", name, got, c.common)
		}
	}
}
