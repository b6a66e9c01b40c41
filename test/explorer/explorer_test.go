package explorer

import (
	"testing"
	"time"
)

func search(t *testing.T, b Bounds) {
	t.Helper()
	begun := time.Now()
	e := New(b, Guards{})
	res, err := e.Search()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v: %d states, depth %d, %d decisions, complete %v, %v", b, res.States, res.Depth, res.Decisions, res.Complete, time.Since(begun).Round(time.Millisecond))
	if v := res.Violation; v != nil {
		t.Errorf("%s\n%s", v.What, v.Transcript)
	}
}

func TestSmall(t *testing.T) {
	search(t, Bounds{Servers: 3, Writes: 1, Faults: 1, Liveness: true})
}
