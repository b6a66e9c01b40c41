package explorer

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/failover"
)

func search(t *testing.T, b Bounds) {
	t.Helper()
	searched(t, New(b, Guards{}))
}

// searched demands that an explorer finds nothing.
func searched(t *testing.T, e *Explorer) {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // almost nothing becomes garbage
	begun := time.Now()
	b := e.Bounds
	res, err := e.Search()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v: %d states, depth %d, %d decisions, complete %v, %v", b, res.States, res.Depth, res.Decisions, res.Complete, time.Since(begun).Round(time.Millisecond))
	if v := res.Violation; v != nil {
		t.Errorf("%s\n%s", v.What, v.Transcript)
	}
}

// Three servers. Any two faults of all kinds with one write, and a crash of
// repld at any point, before or after what it sends.
func TestTwoFaultsAndACrashOfRepld(t *testing.T) {
	b := Bounds{Servers: 3, Writes: 1, Faults: 2, Crashes: 1, Liveness: true}
	if underRace {
		b.States = 20000
	}
	search(t, b)
}

// Any three crashes of servers. (That a healed cluster becomes healthy is searched
// above, and by make explore for these bounds too.)
func TestCrashes(t *testing.T) {
	skipIfRace(t)
	search(t, Bounds{Servers: 3, Writes: 1, Faults: 3, Without: only(evCrash)})
}

// Many writes, of which the slaves have received and applied any part.
func TestWrites(t *testing.T) {
	skipIfRace(t)
	search(t, Bounds{Servers: 3, Writes: 3, Faults: 2, Without: only(evCrash, evLag)})
}

// A person always wants db2, also if db3 has received more.
func TestOrders(t *testing.T) {
	skipIfRace(t)
	e := New(Bounds{Servers: 3, Writes: 2, Faults: 2, Without: only(evCrash, evLag), Liveness: true}, Guards{})
	e.Policy.Automatic, e.Order = false, &failover.Order{To: name(1)}
	res, err := e.Search()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d states, depth %d", res.States, res.Depth)
	if v := res.Violation; v != nil {
		t.Errorf("%s\n%s", v.What, v.Transcript)
	}
}

// A fence that works takes the old master's power away at any moment, also after
// it has come back; one that fails does nothing. Masters that hang while nothing
// makes them wait for an acker are replaced too, but only after it has worked.
func TestTheFence(t *testing.T) {
	skipIfRace(t)
	for _, b := range []Bounds{
		{Servers: 3, Writes: 1, Faults: 2, Without: only(evFreeze, evCut), Liveness: true},
		{Servers: 3, Writes: 1, Faults: 1, Crashes: 1, Liveness: true},
	} {
		e := New(b, Guards{})
		e.Policy.Hooks.Fence = true
		res, err := e.Search()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%+v: %d states, depth %d", b, res.States, res.Depth)
		if v := res.Violation; v != nil {
			t.Errorf("%s\n%s", v.What, v.Transcript)
		}
	}
}

// switchovers is a search in which a person orders one, to db2, at any moment.
func switchovers(b Bounds, g Guards) *Explorer {
	b.Servers, b.Orders = 3, 1
	e := New(b, g)
	e.Order = &failover.Order{To: name(1), Switchover: true}
	return e
}

// A switchover, with every fault in its middle, a crash of repld, and a
// privileged account that goes on writing wherever it can.
func TestSwitchovers(t *testing.T) {
	skipIfRace(t)
	searched(t, switchovers(Bounds{Writes: 1, Faults: 1, Crashes: 1, Liveness: true}, Guards{}))
	if os.Getenv("EXPLORE") != "" {
		searched(t, switchovers(Bounds{Writes: 1, Faults: 2, Without: only(evCrash) | 1<<evPrivileged, Liveness: true}, Guards{}))
	}
}

// The third server is a slave of the second: whichever of them, and the master,
// fails, nothing acknowledged is lost, and the chain is there again at the end.
func TestChains(t *testing.T) {
	skipIfRace(t)
	search(t, Bounds{Servers: 3, Writes: 1, Faults: 2, Without: only(evCrash, evLag), Liveness: true, Chain: true})
	search(t, Bounds{Servers: 3, Writes: 1, Faults: 1, Crashes: 1, Liveness: true, Chain: true})
}

// skipIfRace leaves a search out under the race detector, which has nothing to
// find in one goroutine and makes it ten times slower.
func skipIfRace(t *testing.T) {
	if underRace {
		t.Skip("searched without the race detector")
	}
}

// TestBounds searches the bounds of EXPLORE: servers,writes,faults,crashes, then
// the most states (0: all), and a mask of the kinds of event to leave out.
func TestBounds(t *testing.T) {
	spec := os.Getenv("EXPLORE")
	if spec == "" {
		t.Skip("EXPLORE=servers,writes,faults,crashes[,states[,without]] is not set")
	}
	n := [6]int{}
	for i, word := range strings.Split(spec, ",") {
		v, err := strconv.Atoi(word)
		if err != nil || i >= len(n) {
			t.Fatalf("EXPLORE=%s", spec)
		}
		n[i] = v
	}
	search(t, Bounds{Servers: n[0], Writes: uint8(n[1]), Faults: uint8(n[2]), Crashes: uint8(n[3]), States: n[4], Without: uint32(n[5]), Liveness: true})
}
