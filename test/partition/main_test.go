package partition

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/ledger"
	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/test/netns"
	"github.com/repld/repld/test/rig"
)

// bin is where the programs under test were built, once for all tests.
var bin string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "repld-partition-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := rig.Build(context.Background(), dir, os.Getenv("REPLD_NO_RACE") == ""); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	bin = dir
	// The tests mostly wait: more of them at once than there are cores.
	flag.Parse()
	if err := flag.Set("test.parallel", fmt.Sprint(2*runtime.GOMAXPROCS(0))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// patience bounds every wait of a test: the machine may be slow, the race
// detector is on.
const patience = 60 * time.Second

// The nodes of every network beside the servers: repld and two places for
// clients.
const (
	repld = "repld"
	app1  = "app1"
	app2  = "app2"
)

// cluster is a healthy cluster in a network of its own: db1 is the master.
type cluster struct {
	*rig.Rig
	t      *testing.T
	net    *netns.Network
	ledger *ledger.Ledger
	// wait is how long a client waits for an answer before it tries elsewhere.
	wait time.Duration
}

// up makes a cluster that is closed with the test. The lines are further ones of
// repld.yaml.
func up(t *testing.T, servers int, lines ...string) *cluster {
	t.Helper()
	nodes := []string{repld, app1, app2}
	for i := range servers {
		nodes = append(nodes, fmt.Sprintf("db%d", i+1))
	}
	n := netns.Start(t, nodes...)
	r, err := rig.New(t.Context(), rig.Options{Bin: bin, Servers: servers, Network: n, Repld: lines})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("repld's log ends:\n%s", r.LogTail(150))
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	c := &cluster{Rig: r, t: t, net: n, wait: 2 * time.Second}
	c.must(r.InitAll(c.soon()))
	return c
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// soon is a context that ends when patience does.
func (c *cluster) soon() context.Context {
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	c.t.Cleanup(cancel)
	return ctx
}

// write starts writers at the given nodes, which see only servers that they
// reach, and waits until they got going.
func (c *cluster) write(nodes ...string) {
	c.t.Helper()
	c.must(ledger.Install(c.soon(), c.Server(c.master())))
	var sides []ledger.Side
	for _, name := range nodes {
		dial := c.net.Node(name).Dial
		sides = append(sides, ledger.Side{Dial: dial, Locate: ledger.WritableFrom(dial, c.Servers...)})
	}
	l, err := ledger.Start(c.t.Context(), ledger.Options{Sides: sides, Pause: 2 * time.Millisecond, Timeout: c.wait})
	c.must(err)
	c.ledger = l
	c.t.Cleanup(l.Stop)
	c.must(l.WaitCount(c.soon(), 50))
}

// goesOn waits until so many more commits were acknowledged by a server, by any
// if its server_id is 0.
func (c *cluster) goesOn(commits int, serverID uint32) {
	c.t.Helper()
	since := time.Now()
	_, err := c.ledger.WaitAck(c.soon(), func(a ledger.Ack) bool {
		if a.Before.After(since) && (serverID == 0 || a.ServerID == serverID) {
			commits--
		}
		return commits <= 0
	})
	c.must(err)
}

// settle stops the writers, waits for health, and compares all rows and servers.
func (c *cluster) settle(old ...ledger.OldMaster) {
	c.t.Helper()
	c.ledger.Stop()
	c.healthy()
	var report *ledger.Report
	mariadb.Eventually(c.t, patience, func() (err error) {
		if report, err = c.ledger.Compare(c.t.Context(), c.Servers, old...); err != nil {
			return err
		}
		return report.Err()
	})
	c.t.Log(report)
}

func (c *cluster) healthy() *api.Status {
	c.t.Helper()
	st, err := c.WaitHealth(c.soon(), "healthy")
	c.must(err)
	return st
}

// until waits for a status.
func (c *cluster) until(what string, ok func(*api.Status) bool) *api.Status {
	c.t.Helper()
	st, err := c.WaitStatus(c.soon(), what, ok)
	c.must(err)
	return st
}

// untilProblem waits until a problem is listed, and returns it.
func (c *cluster) untilProblem(code string) api.Problem {
	c.t.Helper()
	st := c.until("problem "+code, func(st *api.Status) bool { return find(st.Problems, code) != nil })
	return *find(st.Problems, code)
}

// stays looks at the status until the time has passed; at no look may it differ
// from what is wanted.
func (c *cluster) stays(d time.Duration, what string, ok func(*api.Status) bool) {
	c.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		st, err := c.Status(c.soon())
		c.must(err)
		if !ok(st) {
			c.t.Fatalf("not %s: %s, epoch %d, %+v", what, st.Health, st.Epoch, st.Problems)
		}
	}
}

// heal mends the network and waits for health.
func (c *cluster) heal() {
	c.t.Helper()
	healed := time.Now()
	c.must(c.net.Heal())
	c.healthy()
	c.t.Logf("healthy %v after the network was mended", time.Since(healed).Round(time.Millisecond))
}

// master is the name of the recorded master.
func (c *cluster) master() string {
	c.t.Helper()
	st, err := c.Status(c.soon())
	c.must(err)
	return *st.Master
}

// opened waits until one of some servers accepts writes, as its socket tells, and
// says when that was seen.
func (c *cluster) opened(names ...string) time.Time {
	c.t.Helper()
	mariadb.Eventually(c.t, patience, func() error {
		for _, name := range names {
			if v, err := c.Server(name).Value(c.t.Context(), "SELECT @@global.read_only"); err != nil || v == "0" {
				return err
			}
		}
		return fmt.Errorf("none of %v accepts writes", names)
	})
	return time.Now()
}

// successor waits until another server than the given one has acknowledged a
// commit, and returns that server and the commit.
func (c *cluster) successor(of uint32) (*mariadb.Server, ledger.Ack) {
	c.t.Helper()
	a, err := c.ledger.WaitAck(c.soon(), func(a ledger.Ack) bool { return a.ServerID != of })
	c.must(err)
	i := slices.IndexFunc(c.Servers, func(s *mariadb.Server) bool { return s.Addr() == a.Addr })
	return c.Servers[i], a
}

// noFailover fails the test if there was any since the cluster was made.
func (c *cluster) noFailover() {
	c.t.Helper()
	list, err := c.History(c.soon())
	c.must(err)
	for _, op := range list {
		if op.Kind == "failover" || op.Kind == "switchover" {
			c.t.Errorf("there was a %s: %+v", op.Kind, op)
		}
	}
}

// operation is the newest ended one of a kind, nil if there is none.
func (c *cluster) operation(kind string) *api.Operation {
	c.t.Helper()
	list, err := c.History(c.soon())
	c.must(err)
	for i := range list {
		if list[i].Kind == kind && list[i].Result != "running" {
			return &list[i]
		}
	}
	return nil
}

func find(list []api.Problem, code string) *api.Problem {
	for i := range list {
		if list[i].Code == code {
			return &list[i]
		}
	}
	return nil
}

func serverStatus(st *api.Status, name string) *api.ServerStatus {
	for i := range st.Servers {
		if st.Servers[i].Name == name {
			return &st.Servers[i]
		}
	}
	return nil
}
