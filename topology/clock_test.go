package topology

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestAClockThatWasSetBack: nothing that has happened lies in the future, and
// all periods keep their length; a clock that went on changes nothing.
func TestAClockThatWasSetBack(t *testing.T) {
	now := time.Now()
	at := func(d time.Duration) time.Time { return now.Add(d).Round(0) }
	make := func(shift time.Duration) *State {
		return &State{Clusters: map[string]*Cluster{
			"idle": {Name: "idle", DurabilitySince: at(shift - time.Hour)},
			"main": {
				Name: "main", DurabilitySince: at(shift - 40*time.Hour), PausedUntil: at(shift + time.Hour), RestartUntil: at(shift + time.Minute),
				Servers: map[string]*Server{"db1": {Name: "db1", AddedAt: at(shift - 50*time.Hour)}},
				Intent: &Intent{Symptom: at(shift - time.Second), Begun: at(shift), Deadline: at(shift + 10*time.Second),
					Opening: &Opening{Sent: at(shift - time.Millisecond), Deadline: at(shift + time.Second)}},
				Losses:   []*Break{{At: at(shift - time.Minute)}},
				Declined: &Declined{At: at(shift - 2*time.Minute)},
			},
		}}
	}
	for _, c := range []struct{ ahead, back time.Duration }{
		{-3 * time.Hour, 0}, {0, 0}, {90 * time.Minute, 90 * time.Minute}, {30 * 365 * 24 * time.Hour, 30 * 365 * 24 * time.Hour},
	} {
		got := make(c.ahead)
		if back := rebase(got, now); back != c.back {
			t.Errorf("%v ahead: set back by %v, want %v", c.ahead, back, c.back)
		}
		if diff := cmp.Diff(make(c.ahead-c.back), got); diff != "" {
			t.Errorf("%v ahead:\n%s", c.ahead, diff)
		}
	}
}

// TestEveryTimeOfAStateIsFound: a field that is added later in a shape that the
// walk does not know would keep its time.
func TestEveryTimeOfAStateIsFound(t *testing.T) {
	var count func(typ reflect.Type, seen map[reflect.Type]bool) int
	count = func(typ reflect.Type, seen map[reflect.Type]bool) int {
		switch {
		case typ == timeType:
			return 1
		case typ.Kind() == reflect.Pointer, typ.Kind() == reflect.Slice:
			return count(typ.Elem(), seen)
		case typ.Kind() == reflect.Map:
			n := count(typ.Elem(), seen)
			if n > 0 && typ.Elem().Kind() != reflect.Pointer {
				t.Errorf("%s holds times, and values that cannot be set", typ)
			}
			return n
		case typ.Kind() != reflect.Struct || seen[typ]:
			return 0
		}
		seen[typ] = true
		n := 0
		for i := range typ.NumField() {
			f := typ.Field(i)
			k := count(f.Type, seen)
			if k > 0 && !f.IsExported() {
				t.Errorf("%s.%s holds times and is not exported", typ, f.Name)
			}
			n += k
		}
		return n
	}
	if n := count(reflect.TypeFor[State](), map[reflect.Type]bool{}); n < 20 {
		t.Errorf("%d times found, there are more", n)
	}
}

// TestAStateFromTheFutureIsOpened: the store does it, and tells.
func TestAStateFromTheFutureIsOpened(t *testing.T) {
	p := newPlace(t)
	s := p.open(t)
	sample(t, s)
	must(t, s.Apply(SetPause{Cluster: "main", At: time.Now().Add(2 * time.Hour)}))
	must(t, s.Close())
	s = p.open(t)
	defer s.Close()
	if got := s.Cluster("main").Acknowledged; got.After(time.Now()) {
		t.Errorf("acknowledged at %v, which is yet to come", got)
	}
	if back := s.ClockSetBack(); back < 119*time.Minute || back > 2*time.Hour {
		t.Errorf("set back by %v", back)
	}
}
