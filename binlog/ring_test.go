package binlog

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestBehindTable(t *testing.T) {
	r := NewRing(10, 8)
	if b, ok := r.Behind(10); !ok || b != (Behind{Exact: true}) {
		t.Errorf("an empty ring: a slave at its base has all, not %+v, %v", b, ok)
	}
	if b, ok := r.Behind(9); ok || !b.Oldest.IsZero() {
		t.Errorf("before the base: %+v, %v", b, ok)
	}
	for i, seq := range []uint64{11, 12, 15} {
		if !r.Add(seq, epoch.Add(time.Duration(i)*time.Second), 100) {
			t.Fatalf("%d not added", seq)
		}
	}
	if r.Add(15, epoch, 1) || r.Add(3, epoch, 1) {
		t.Error("a sequence number that does not grow was added")
	}
	for _, c := range []struct {
		seq    uint64
		oldest time.Duration
		tx     uint64
		ok     bool
	}{{10, 0, 3, true}, {11, time.Second, 2, true}, {12, 2 * time.Second, 1, true}, {14, 2 * time.Second, 1, true}, {3, 0, 3, false}} {
		b, ok := r.Behind(c.seq)
		want := Behind{Oldest: epoch.Add(c.oldest), Transactions: c.tx, Bytes: 100 * c.tx, Exact: true}
		if b != want || ok != c.ok {
			t.Errorf("a slave at %d: %+v, %v, want %+v, %v", c.seq, b, ok, want, c.ok)
		}
	}
	if b, ok := r.Behind(15); !ok || b != (Behind{Exact: true}) {
		t.Errorf("a slave that has all: %+v, %v", b, ok)
	}
	if b, ok := r.Behind(99); !ok || b.Transactions != 0 {
		t.Errorf("a slave ahead of the ring: %+v, %v", b, ok)
	}
}

// model is the ring without a bound: a plain list.
type model struct {
	base uint64
	seqs []uint64
	at   []time.Time
	size []uint64
}

func (m *model) behind(seq uint64) (Behind, bool) {
	var b Behind
	for i, s := range m.seqs {
		if s <= seq {
			continue
		}
		if b.Oldest.IsZero() {
			b.Oldest = m.at[i]
		}
		b.Transactions++
		b.Bytes += m.size[i]
	}
	return b, seq >= m.base
}

// TestRingLaws: against a list that forgets nothing, for every position,
//
//  1. the ring stays within its limit;
//  2. it knows, or does not know, exactly where the list does;
//  3. it never understates: not earlier applied, not fewer, not less;
//  4. nothing is behind exactly if nothing is behind in the list;
//  5. what it calls exact is exact;
//  6. without gaps in the sequence numbers, the number is always exact;
//  7. the newest quarter is always exact;
//  8. where it overstates, it answers as for a slave that is further back by no
//     more than a share of the distance.
func TestRingLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(8, 300).Draw(t, "limit")
		m := model{base: rapid.Uint64Range(0, 1000).Draw(t, "base")}
		r := NewRing(m.base, limit)
		dense := rapid.Bool().Draw(t, "dense")
		seq, at := m.base, epoch
		for range rapid.IntRange(0, 900).Draw(t, "transactions") {
			step := uint64(1)
			if !dense {
				step = rapid.Uint64Range(1, 3).Draw(t, "step")
			}
			seq += step
			at = at.Add(time.Duration(rapid.Int64Range(0, 5).Draw(t, "pause")) * time.Millisecond)
			size := rapid.Uint64Range(1, 1000).Draw(t, "size")
			if !r.Add(seq, at, size) {
				t.Fatalf("%d not added after %d", seq, r.Last())
			}
			m.seqs, m.at, m.size = append(m.seqs, seq), append(m.at, at), append(m.size, size)
		}
		if len(r.buckets) > limit || cap(r.buckets) > 3*limit {
			t.Fatalf("%d entries, the limit is %d", len(r.buckets), limit)
		}
		for s := max(m.base, 2) - 2; s <= seq+1; s++ {
			checkBehind(t, r, &m, s, dense, limit)
		}
	})
}

func checkBehind(t *rapid.T, r *Ring, m *model, s uint64, dense bool, limit int) {
	got, ok := r.Behind(s)
	want, wantOK := m.behind(s)
	switch {
	case ok != wantOK:
		t.Fatalf("at %d: known %v, want %v", s, ok, wantOK)
	case (got.Transactions == 0) != (want.Transactions == 0), got.Oldest.IsZero() != want.Oldest.IsZero():
		t.Fatalf("at %d: %+v, want %+v", s, got, want)
	case got.Transactions < want.Transactions, got.Bytes < want.Bytes, got.Oldest.After(want.Oldest):
		t.Fatalf("at %d: %+v understates %+v", s, got, want)
	case dense && got.Transactions != want.Transactions:
		t.Fatalf("at %d, no gaps: %d transactions, want %d", s, got.Transactions, want.Transactions)
	case int(want.Transactions) <= limit/4-1 && !got.Exact:
		t.Fatalf("at %d: the newest %d of %d entries are not exact", s, want.Transactions, limit)
	}
	if got.Exact {
		want.Exact = true
		if got != want {
			t.Fatalf("at %d: %+v is called exact, want %+v", s, got, want)
		}
		return
	}
	back := s - min(s, (128*want.Transactions/uint64(limit)+1)*m.step())
	bound, _ := m.behind(back)
	if got.Oldest.Before(bound.Oldest) || got.Bytes > bound.Bytes {
		t.Fatalf("at %d: %+v, want %+v, at worst that of %d: %+v", s, got, want, back, bound)
	}
}

// step is the widest gap between sequence numbers.
func (m *model) step() uint64 {
	widest := uint64(1)
	for i := 1; i < len(m.seqs); i++ {
		widest = max(widest, m.seqs[i]-m.seqs[i-1])
	}
	return widest
}

func TestLagTable(t *testing.T) {
	r := NewRing(0, 0)
	r.Add(1, epoch, 10)
	r.Add(2, epoch.Add(3*time.Second), 20)
	now := epoch.Add(5 * time.Second)
	live := Heard{Connected: true, Last: now.Add(-100 * time.Millisecond)}
	late := NewRing(100, 0)
	late.Add(101, epoch, 7)
	for _, c := range []struct {
		name  string
		ring  *Ring
		seq   uint64
		heard Heard
		now   time.Time
		want  Lag
	}{
		{"has all", r, 2, live, now, Lag{Known: true}},
		{"lacks one", r, 1, live, now, Lag{Known: true, Age: 2 * time.Second, Transactions: 1, Bytes: 20}},
		{"lacks both", r, 0, live, now, Lag{Known: true, Age: 5 * time.Second, Transactions: 2, Bytes: 30}},
		{"just committed", r, 1, Heard{true, epoch.Add(3 * time.Second)}, epoch.Add(3 * time.Second), Lag{Known: true, Age: 1, Transactions: 1, Bytes: 20}},
		{"master silent", r, 2, Heard{true, now.Add(-3 * time.Second)}, now, Lag{}},
		{"stream broken", r, 1, Heard{false, now}, now, Lag{Transactions: 1, Bytes: 20}},
		{"lacks what was never seen", late, 50, live, now, Lag{Known: true, AtLeast: true, Age: 5 * time.Second, Transactions: 1, Bytes: 7}},
		{"lacks only what was never seen", NewRing(100, 0), 99, live, now, Lag{AtLeast: true}},
		{"at the base", NewRing(100, 0), 100, live, now, Lag{Known: true}},
	} {
		if got := LagOf(c.ring, c.seq, c.heard, c.now, 2*time.Second); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func BenchmarkRingAdd(b *testing.B) {
	r := NewRing(0, 0)
	b.ReportAllocs()
	for i := range b.N {
		r.Add(uint64(i+1), epoch.Add(time.Duration(i)*time.Millisecond), 100)
	}
}

func BenchmarkRingBehind(b *testing.B) {
	r := NewRing(0, 0)
	for i := range uint64(1_000_000) {
		r.Add(i+1, epoch.Add(time.Duration(i)*time.Millisecond), 100)
	}
	for i := range b.N {
		r.Behind(uint64(i % 1_000_000))
	}
}
