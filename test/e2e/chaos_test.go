package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repld/repld/test/ledger"
	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/test/netns"
	"github.com/repld/repld/test/rig"
)

// TestRandomFaults is `make chaos`: round after round of random faults under
// load (servers and repld killed, frozen or cut off, ways between any two cut,
// switchovers ordered in between), healed in random order. After each round the
// cluster must become healthy by itself, every acknowledged row must be on every
// server, and one server writable. REPLD_CHAOS_SEED repeats a run;
// REPLD_CHAOS_MINUTES or REPLD_CHAOS_ROUNDS is its length.
func TestRandomFaults(t *testing.T) {
	rounds, _ := strconv.Atoi(os.Getenv("REPLD_CHAOS_ROUNDS"))
	minutes, _ := strconv.ParseFloat(os.Getenv("REPLD_CHAOS_MINUTES"), 64)
	if rounds == 0 && minutes == 0 {
		t.Skip("make chaos runs it")
	}
	seed, err := strconv.ParseUint(os.Getenv("REPLD_CHAOS_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("REPLD_CHAOS_SEED=%d REPLD_CHAOS_ROUNDS=%d REPLD_CHAOS_MINUTES=%v", seed, rounds, minutes)
	net, err := netns.New("repld", "db1", "db2", "db3", "app1", "app2")
	switch {
	case errors.Is(err, os.ErrPermission):
		t.Logf("NO WAY IS CUT, for network namespaces need to be root: %v", err)
		net = nil
	case err != nil:
		t.Fatal(err)
	default:
		t.Cleanup(func() { _ = net.Close() })
	}
	r := startAll(t, rig.Options{Servers: 3, Network: net, Repld: []string{
		"failover: {block_window: 0s, hang_timeout: 1s, switchover_timeout: 4s}", "semi_sync: {ack_timeout: 20s, server_timeout: 40s}"}})
	if err := ledger.Install(within(t), r.Servers[0]); err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(seed, 7))
	faults, acknowledged, longest := 0, 0, time.Duration(0)
	begun, i := time.Now(), 0
	for ; i < rounds || time.Since(begun).Minutes() < minutes; i++ {
		c := &chaos{t: t, r: r, net: net, rnd: rnd}
		report := c.round(fmt.Sprintf("seed %d round %d", seed, i))
		faults += c.faults
		acknowledged += report.Acknowledged
		longest = max(longest, report.LongestOutage)
	}
	t.Logf("%d rounds in %v: %d faults, %d failovers, %d switchovers, %d commits acknowledged, 0 lost, longest outage %v", i,
		time.Since(begun).Round(time.Second), faults, done(t, r, "failover"), done(t, r, "switchover"), acknowledged, longest.Round(time.Millisecond))
}

// done counts the operations of a kind that were carried through.
func done(t *testing.T, r *rig.Rig, kind string) (n int) {
	list, err := r.History(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range list {
		if op.Kind == kind && op.Result == "done" {
			n++
		}
	}
	return n
}

// chaos is one round of faults.
type chaos struct {
	t      *testing.T
	r      *rig.Rig
	net    *netns.Network // nil if no way can be cut
	rnd    *rand.Rand
	faults int
	cut    bool
	// lossless is how durable the cluster is in this round. In semi-sync, which
	// goes on with a single server and then may lose what that one writes, no two
	// servers are dead at the same time.
	lossless bool
	begun    time.Time
	said     []string
	dead     []*mariadb.Server
	frozen   []*mariadb.Server
	// repld is "", "dead" or "frozen".
	repld  string
	orders int
	verbs  chan string
}

func (c *chaos) say(format string, args ...any) {
	c.said = append(c.said, fmt.Sprintf("%6d ms ", time.Since(c.begun).Milliseconds())+fmt.Sprintf(format, args...))
}

// must ends the test with what was done so far.
func (c *chaos) must(name string, err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatalf("%s: %v\n%s", name, err, strings.Join(c.said, "\n"))
	}
}

func (c *chaos) round(name string) *ledger.Report {
	c.t.Helper()
	c.begun, c.verbs = time.Now(), make(chan string, 16)
	c.durability(name)
	l, err := ledger.Start(c.t.Context(), c.clients())
	c.must(name, err)
	defer l.Stop()
	c.must(name, l.WaitCount(within(c.t), 30))
	for range 1 + c.rnd.IntN(4) {
		c.fault()
		time.Sleep([]time.Duration{0, 30, 100, 300, 1000, 2500}[c.rnd.IntN(6)]*time.Millisecond + time.Duration(c.rnd.IntN(60))*time.Millisecond)
	}
	c.heal(name)
	for range c.orders {
		select {
		case v := <-c.verbs:
			c.say("%s", v)
		case <-time.After(patience):
			c.must(name, fmt.Errorf("a verb did not end"))
		}
	}
	l.Stop()
	_, err = c.r.WaitHealth(within(c.t), "healthy")
	c.must(name, err)
	var report *ledger.Report
	c.must(name, mariadb.Wait(within(c.t), func() (err error) {
		if report, err = l.Compare(c.t.Context(), c.r.Servers); err != nil {
			return err
		}
		return report.Err()
	}))
	c.t.Logf("%s: %s\n%s", name, report, strings.Join(c.said, "\n"))
	return report
}

// durability chooses a mode for the round, and changes it if need be.
func (c *chaos) durability(name string) {
	c.t.Helper()
	c.lossless = c.rnd.IntN(2) == 0
	mode := "semi-sync"
	if c.lossless {
		mode = "lossless"
	}
	c.say("durability %s", mode)
	c.must(name, c.r.Ctl(within(c.t), "durability", "set", mode, "--yes").Err())
	_, err := c.r.WaitHealth(within(c.t), "healthy")
	c.must(name, err)
}

// clients are writers on the loopback, or at two places of the network.
func (c *chaos) clients() ledger.Options {
	if c.net == nil {
		return ledger.Options{Locate: ledger.Writable(c.r.Servers...)}
	}
	o := ledger.Options{Timeout: 3 * time.Second}
	for _, name := range []string{"app1", "app2"} {
		dial := c.net.Node(name).Dial
		o.Sides = append(o.Sides, ledger.Side{Dial: dial, Locate: ledger.WritableFrom(dial, c.r.Servers...)})
	}
	return o
}

// victim prefers the present master.
func (c *chaos) victim() *mariadb.Server {
	s := c.r.Servers[c.rnd.IntN(len(c.r.Servers))]
	addr, _ := ledger.Writable(c.r.Servers...)(c.t.Context())
	for _, x := range c.r.Servers {
		if c.rnd.IntN(2) == 0 && x.Addr() == addr {
			return x
		}
	}
	return s
}

func (c *chaos) fault() {
	s := c.victim()
	well := s.Running() && !contains(c.frozen, s)
	before := len(c.said)
	defer func() { c.faults += len(c.said) - before }()
	switch k := c.rnd.IntN(16); {
	case k >= 10 && c.net != nil:
		c.cutSomething(s)
	case k < 3 && well && (c.lossless || len(c.dead) == 0):
		c.say("kill %s", s.Name)
		c.must("kill", s.Kill())
		c.dead = append(c.dead, s)
	case k < 6 && well:
		c.say("freeze %s", s.Name)
		c.must("freeze", s.Freeze())
		c.frozen = append(c.frozen, s)
	case k == 6 && c.repld != "dead":
		c.say("kill repld")
		c.must("kill", c.r.Repld.Kill())
		c.repld = "dead"
	case k == 7 && c.repld == "":
		c.say("freeze repld")
		c.must("freeze", syscall.Kill(c.r.Repld.Pid(), syscall.SIGSTOP))
		c.repld = "frozen"
	case k == 8 && c.repld != "dead":
		c.say("order a switchover")
		c.orders++
		go func() {
			o := c.r.Ctl(context.WithoutCancel(c.t.Context()), "switchover", "--yes", "--timeout", "40s")
			c.verbs <- fmt.Sprintf("switchover: exit %d %s", o.Code, strings.ReplaceAll(o.Stderr, "\n", " | "))
		}()
	}
}

// cutSomething cuts a server or repld off, or the way between two, in one
// direction or both.
func (c *chaos) cutSomething(s *mariadb.Server) {
	c.cut = true
	others := slices.DeleteFunc(c.net.Nodes(), func(name string) bool { return name == s.Name })
	other := others[c.rnd.IntN(len(others))]
	switch c.rnd.IntN(5) {
	case 0:
		c.say("cut %s off", s.Name)
		c.must("cut", c.net.CutOff(s.Name))
	case 1:
		c.say("cut repld off")
		c.must("cut", c.net.CutOff("repld"))
	case 2:
		c.say("cut %s -> %s", s.Name, other)
		c.must("cut", c.net.CutOneWay(s.Name, other))
	case 3:
		c.say("cut %s -> %s", other, s.Name)
		c.must("cut", c.net.CutOneWay(other, s.Name))
	default:
		c.say("cut %s - %s", s.Name, other)
		c.must("cut", c.net.Cut(s.Name, other))
	}
}

func contains(list []*mariadb.Server, s *mariadb.Server) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// heal undoes all faults in random order.
func (c *chaos) heal(name string) {
	var todo []func() error
	for _, s := range c.frozen {
		todo = append(todo, func() error { c.say("thaw %s", s.Name); return s.Thaw() })
	}
	for _, s := range c.dead {
		todo = append(todo, func() error { c.say("start %s", s.Name); return s.StartAgain(within(c.t)) })
	}
	if c.cut {
		todo = append(todo, func() error { c.say("mend the network"); return c.net.Heal() })
	}
	switch c.repld {
	case "dead":
		todo = append(todo, func() error { c.say("start repld"); return c.r.StartRepld(within(c.t)) })
	case "frozen":
		todo = append(todo, func() error { c.say("thaw repld"); return syscall.Kill(c.r.Repld.Pid(), syscall.SIGCONT) })
	}
	c.rnd.Shuffle(len(todo), func(i, j int) { todo[i], todo[j] = todo[j], todo[i] })
	for _, do := range todo {
		c.must(name, do())
		time.Sleep(time.Duration(c.rnd.IntN(800)) * time.Millisecond)
	}
}
