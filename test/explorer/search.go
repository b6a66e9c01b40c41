package explorer

import (
	"fmt"
	"hash/maphash"
	"strings"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// Bounds limit a search.
type Bounds struct {
	Servers int
	Writes  uint8
	Faults  uint8
	// Crashes is how often repld may crash.
	Crashes uint8
	// Mode is the durability of the cluster; "": semi-sync.
	Mode topology.Durability
	// Orders is how often a person gives the order; 0: it always stands.
	Orders uint8
	// Without is a mask of event kinds left out.
	Without uint32
	// States ends the search early; 0: none.
	States int
	// Liveness also checks that every state, healed, becomes healthy.
	Liveness bool
	// Chain makes the third server a slave of the second.
	Chain bool
}

// Guards change what Decide sees or says, to prove that a rule is needed.
type Guards struct {
	Input  func(*failover.Input)
	Action func(failover.Input, failover.Action) failover.Action
	// NoExpiry makes the model's opening statement one that never expires.
	NoExpiry bool
	// NoCompare makes the model's comparison of contents find no difference.
	NoCompare bool
}

// Explorer searches one cluster's states.
type Explorer struct {
	Bounds
	Guards Guards
	// Policy is what the user has configured; Order is a person's, until it has
	// become an intent.
	Policy failover.Policy
	Order  *failover.Order

	seed       maphash.Seed
	clusters   []*topology.Cluster
	clusterIDs map[string]uint16
	journaled  map[string]uint16
	decided    map[uint64]failover.Action
	healed     map[uint64]bool
	events     []event
}

// Violation is a state that must not be, and how it came about.
type Violation struct {
	What       string
	Transcript string
}

// Result is what a search covered.
type Result struct {
	States    int
	Depth     int
	Decisions int
	// Complete is false if Bounds.States ended the search.
	Complete  bool
	Violation *Violation
}

// New makes an explorer of a cluster whose first server is its armed master.
func New(b Bounds, g Guards) *Explorer {
	e := &Explorer{Bounds: b, Guards: g, Policy: policy, seed: maphash.MakeSeed(), clusterIDs: map[string]uint16{},
		journaled: map[string]uint16{}, decided: map[uint64]failover.Action{}, healed: map[uint64]bool{}}
	e.events = e.allEvents()
	return e
}

// start is the healthy cluster with which each search begins.
func (e *Explorer) start() (*state, error) {
	st := &topology.State{Clusters: map[string]*topology.Cluster{}}
	cmds := []topology.Command{topology.CreateCluster{Name: clusterName, ID: "c", Durability: e.mode()}}
	for x := range e.Servers {
		cmds = append(cmds, topology.PutServer{Cluster: clusterName, Server: topology.Server{
			Name: name(x), Address: address(x), Identity: topology.Identity{ServerID: uint32(x + 1), UID: name(x)},
			Role: topology.RoleSlave, Promotion: topology.PromotionNeutral}})
	}
	cmds = append(cmds, e.chained()...)
	cmds = append(cmds,
		topology.FoundEra{Cluster: clusterName, Master: name(0), Era: gtid.Era{Epoch: 1, Server: 1, First: 1}, At: tOpenedAt})
	cmds = append(cmds, e.founded()...)
	st, err := st.Apply(cmds...)
	if err != nil {
		return nil, err
	}
	s, armed := &state{}, e.mode() != topology.Async
	s.r.cluster = e.intern(st.Clusters[clusterName])
	for x := range maxServers {
		srv := &s.w.s[x]
		switch {
		case x == 0:
			srv.armed = armed
		case x < e.Servers:
			*srv = server{ro: true, pos: point{1, 1}, got: point{1, 1}, gotShown: true, src: 1, gtid: true, io: yes, sql: yes, files: true, acker: armed, acking: armed}
		default:
			srv.life, srv.ro = down, true
		}
	}
	if e.Bounds.Chain {
		srv := &s.w.s[2]
		srv.src, srv.acker, srv.acking = 2, false, false
	}
	for x := range e.Servers { // repld's own first transaction is everywhere
		s.w.s[x].log.add(1)
	}
	s.w.ack(point{1, 1}, !armed)
	e.promise(s)
	s.r.announced = true
	e.observe(s)
	e.forget(s)
	return s, nil
}

// chained records that the third server is meant to replicate from the second.
func (e *Explorer) chained() []topology.Command {
	if !e.Bounds.Chain {
		return nil
	}
	return []topology.Command{topology.SetSource{Cluster: clusterName, Server: name(2), Source: name(1)}}
}

type node struct {
	parent int32
	ev     event
}

// Search visits every reachable state once, nearest first, so that the first
// violation found has a shortest transcript.
func (e *Explorer) Search() (Result, error) {
	s0, err := e.start()
	if err != nil {
		return Result{}, err
	}
	seen := map[uint64]struct{}{e.hash(s0): {}}
	nodes := []node{{parent: -1}}
	type entry struct {
		s  state
		id int32
	}
	layers := make([][]entry, e.Faults+2)
	layers[0] = []entry{{*s0, 0}}
	res := Result{Complete: true}
	for faults := range layers {
		level, queued := layers[faults], map[uint64]struct{}{}
		for len(level) > 0 {
			var next []entry
			for i := range level {
				for _, ev := range e.events {
					s := level[i].s
					done, _, broken := e.apply(&s, ev)
					if !done {
						continue
					}
					if broken == "" {
						broken = e.check(&s)
					}
					h := e.hash(&s)
					if _, known := seen[h]; known && broken == "" {
						continue
					}
					if ev.fault() && broken == "" {
						if _, known := queued[h]; known {
							continue
						}
						queued[h] = struct{}{}
						// It may yet be met with fewer faults: mark it when its turn comes.
						nodes = append(nodes, node{level[i].id, ev})
						layers[faults+1] = append(layers[faults+1], entry{s, int32(len(nodes) - 1)})
						continue
					}
					seen[h] = struct{}{}
					nodes = append(nodes, node{level[i].id, ev})
					id := int32(len(nodes) - 1)
					if v := e.examine(&s, broken, nodes, id); v != nil {
						res.Violation = v
						return e.sum(res, seen), nil
					}
					next = append(next, entry{s, id})
				}
				if e.Bounds.States > 0 && len(seen) >= e.Bounds.States {
					res.Complete = false
					return e.sum(res, seen), nil
				}
			}
			level = next
			res.Depth++
		}
		if faults+1 < len(layers) {
			fresh := layers[faults+1][:0]
			for _, en := range layers[faults+1] {
				h := e.hash(&en.s)
				if _, known := seen[h]; known {
					continue
				}
				seen[h] = struct{}{}
				if v := e.examine(&en.s, "", nodes, en.id); v != nil {
					res.Violation = v
					return e.sum(res, seen), nil
				}
				fresh = append(fresh, en)
			}
			layers[faults+1], layers[faults] = fresh, nil
		}
	}
	return e.sum(res, seen), nil
}

func (e *Explorer) sum(res Result, seen map[uint64]struct{}) Result {
	res.States, res.Decisions = len(seen), len(e.decided)
	return res
}

// examine makes a violation of what an event broke, or of what the state is.
func (e *Explorer) examine(s *state, broken string, nodes []node, id int32) *Violation {
	heal := ""
	if broken == "" && e.Liveness {
		broken, heal = e.heal(s)
	}
	if broken == "" {
		return nil
	}
	return &Violation{What: broken, Transcript: e.transcript(nodes, id) + heal + "violated: " + broken + "\n"}
}

// hash leaves out how many faults were spent: states are visited in the order of
// faults, so that each is first met with the fewest, which leaves most to come.
func (e *Explorer) hash(s *state) uint64 {
	key := *s
	key.faults = 0
	return maphash.Comparable(e.seed, key)
}

// transcript replays the way to a node and tells it.
func (e *Explorer) transcript(nodes []node, id int32) string {
	var path []event
	for ; nodes[id].parent >= 0; id = nodes[id].parent {
		path = append(path, nodes[id].ev)
	}
	s, err := e.start()
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for i := len(path) - 1; i >= 0; i-- {
		_, a, _ := e.apply(s, path[i])
		fmt.Fprintf(&b, "%2d %s", len(path)-i, path[i].describe())
		if k := path[i].k; k == evStep || k == evSlow || k == evSendCrash {
			fmt.Fprintf(&b, ": %s", tell(a))
		}
		fmt.Fprintf(&b, "\n%s", e.show(s))
	}
	return b.String()
}

// show prints a state's servers, one a line.
func (e *Explorer) show(s *state) string {
	var b strings.Builder
	for x := range e.Servers {
		srv, m := &s.w.s[x], &s.r.m[x]
		fmt.Fprintf(&b, "     %s %-6s %s log %s", name(x), [...]string{"up", "down", "frozen"}[srv.life], word(srv.ro, "ro", "RW"), srv.log.print(1))
		if srv.src != 0 {
			t := [...]string{"No", "Connecting", "Yes"}
			fmt.Fprintf(&b, " <-%s io %s sql %s relay [%s]%s%s", name(int(srv.src-1)), t[srv.io], t[srv.sql], srv.relay.print(srv.pos.seq+1),
				word(srv.acking, " acker", ""), word(srv.gtid, "", " by file"))
		}
		if srv.sqlErr || srv.ioErr {
			fmt.Fprintf(&b, " error(io %v sql %v)", srv.ioErr, srv.sqlErr)
		}
		if srv.armed {
			fmt.Fprintf(&b, " armed%s waits %d", word(srv.gaveUp, "(gave up)", ""), srv.waits)
		}
		if srv.fetch != 0 {
			fmt.Fprintf(&b, " fetching<-%s %v", name(int(srv.fetch-1)), srv.fetchOn)
		}
		fmt.Fprintf(&b, "%s%s%s", word(s.w.cut&(1<<x) != 0, " CUT", ""), word(m.stale, " STALE", ""), word(m.ghost.verb != 0, " ghost "+string(kinds[m.ghost.verb]), ""))
		if m.running.verb != verbNone {
			fmt.Fprintf(&b, " running %s", kinds[m.running.verb])
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (h *history) print(from uint8) string {
	var words []string
	for k := from; k <= h.n; k++ {
		words = append(words, fmt.Sprintf("%d-%d", h.at(k), k))
	}
	return strings.Join(words, " ")
}
