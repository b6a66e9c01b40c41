package explorer

import (
	"encoding/json"
	"fmt"
	"hash/maphash"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

const clusterName = "main"

// intern gives a recorded cluster its number, with its times made canonical.
func (e *Explorer) intern(c *topology.Cluster) uint16 {
	canonical(c)
	raw, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	if id, ok := e.clusterIDs[string(raw)]; ok {
		return id
	}
	id := uint16(len(e.clusters))
	e.clusters = append(e.clusters, c)
	e.clusterIDs[string(raw)] = id
	return id
}

func canonical(c *topology.Cluster) {
	c.OpenedAt, c.DurabilitySince = tOpenedAt, tOpenedAt
	if !c.LastFailover.IsZero() {
		c.LastFailover = tStarted
	}
	if !c.ArmedSeen.IsZero() {
		c.ArmedSeen = now
	}
	for _, b := range c.Losses {
		b.At, b.ArmedSeen, b.Started = tSymptom, tSymptom, tStarted
	}
	if in := c.Intent; in != nil {
		in.ID, in.Symptom, in.Begun = "1", tSymptom, tBegun
		if !in.Started.IsZero() {
			in.Started = tStarted
		}
		if !in.ArmedSeen.IsZero() {
			in.ArmedSeen = tSymptom
		}
		if in.Opening != nil {
			in.Opening.Sent, in.Opening.Deadline = tSent, tDeadline
		}
		if !in.Opened.IsZero() {
			in.Opened = tOpened
		}
		if !in.Deadline.IsZero() {
			in.Deadline = tDeadline
		}
		if in.RollingBack != "" {
			in.RollingBack = "given up"
		}
		if !in.Fenced.IsZero() {
			in.Fenced = tExpired
		}
	}
}

// journal applies commands to what is recorded; a refusal is a fault of Decide.
func (e *Explorer) journal(r *repld, cmds ...topology.Command) string {
	before := e.clusters[r.cluster]
	key := fmt.Sprint(r.cluster)
	for _, cmd := range cmds {
		key += fmt.Sprintf(" %T%v", cmd, cmd)
	}
	id, ok := e.journaled[key]
	if !ok {
		st := &topology.State{Clusters: map[string]*topology.Cluster{clusterName: before}}
		next, err := st.Apply(cmds...)
		if err != nil {
			return fmt.Sprintf("the journal refuses: %v", err)
		}
		id = e.intern(next.Clusters[clusterName])
		e.journaled[key] = id
	}
	c := e.clusters[id]
	r.cluster = id
	for x := range r.m {
		m := &r.m[x]
		for _, cmd := range cmds {
			switch cmd.(type) {
			case topology.BeginIntent, topology.EndIntent:
				r.hook = hookNone
				m.sinceBegun, m.sinceSent, m.sinceDeadline, m.endedSince = false, false, false, false
			case topology.SendOpening:
				m.sinceSent, m.sinceDeadline = false, false
			}
		}
	}
	for _, cmd := range cmds {
		switch cmd.(type) {
		case topology.BeginIntent, topology.SendOpening, topology.WithdrawOpening, topology.EndIntent, topology.RollBack:
			r.openExpired, r.repointLong, r.deadlineLong = false, false, false
		case topology.RecordOpened:
			r.openExpired, r.repointLong = false, false
			if before.Master != c.Master {
				r.armedSeen, r.silentLong = false, false
			}
			r.announced, r.noAckerLong, r.youngLong = false, false, false
		}
	}
	return ""
}

// promise notes in the world whether durability is recorded as armed.
func (e *Explorer) promise(s *state) {
	s.w.unpromised = e.clusters[s.r.cluster].DurabilityState != topology.DurabilityArmed
}

// look probes one server.
func (e *Explorer) look(s *state, x int) {
	m, w := &s.r.m[x], &s.w
	m.stale, m.sinceBegun, m.sinceSent, m.sinceDeadline = false, false, false, false
	srv := &w.s[x]
	switch {
	case w.cut&(1<<x) != 0 || srv.life == frozen:
		m.reach = silent
	case srv.life == down:
		m.reach = refuses
	default:
		m.reach, m.ok, m.okAny = answers, w.snapshot(x), true
	}
	if m.reach != refuses {
		m.ceiling = point{}
	}
}

func (w *world) snapshot(x int) snapshot {
	s := &w.s[x]
	o := snapshot{ro: s.ro, young: s.young, gtid: s.gtid, ioErr: s.ioErr, sqlErr: s.sqlErr, gotShown: s.gotShown, files: s.files,
		drained: s.sql == yes && !s.pending(), acker: s.acker, acking: s.acking, armed: s.armed, on: s.armed && !s.gaveUp, fetchOn: s.fetchOn,
		io: s.io, sql: s.sql, src: s.src, fetch: s.fetch, clients: w.clients(x), waits: s.waits, mute: w.mute(x), pos: s.pos, got: s.got, log: s.log}
	if s.src != 0 {
		o.hears = s.io == yes && w.s[s.src-1].life == up && w.linked(x, int(s.src-1))
	}
	return o
}

// observe looks at every server whose view is not stale.
func (e *Explorer) observe(s *state) {
	r := &s.r
	master := index(e.clusters[r.cluster].Master)
	for x := range e.Servers {
		if !r.m[x].stale {
			e.look(s, x)
		}
	}
	mm := &r.m[master]
	fresh := mm.reach == answers && !mm.stale
	for x := range e.Servers {
		m := &r.m[x]
		switch {
		case m.stale:
		case m.reach == answers:
			m.afterMaster = !fresh
		case fresh:
			m.afterMaster = false
		}
		if m.reach == refuses && !m.stale && fresh && !mm.ok.ro && m.ceiling == (point{}) {
			m.ceiling = mm.ok.log.last()
		}
	}
	if mm.reach != silent {
		r.silentLong = false
	}
	if mm.reach == answers {
		r.armedSeen = r.armedSeen || mm.ok.on && mm.ok.clients > 0
		if mm.ok.clients > 0 && !mm.ok.mute {
			r.noAckerLong = false
		}
	}
	if mm.reach != answers || !mm.ok.young {
		r.youngLong = false
	}
}

// decide asks the shipped code; the same memory gives the same answer.
func (e *Explorer) decide(r *repld) failover.Action {
	key := *r
	for x := range key.m {
		key.m[x].ghost = effect{}
		if v := key.m[x].running.verb; v != verbNone {
			key.m[x].running = effect{verb: v}
		}
	}
	h := maphash.Comparable(e.seed, key)
	if a, ok := e.decided[h]; ok {
		return a
	}
	in := e.input(r)
	if e.Guards.Input != nil {
		e.Guards.Input(&in)
	}
	a := failover.Decide(in)
	if e.Guards.Action != nil {
		a = e.Guards.Action(in, a)
	}
	e.decided[h] = a
	return a
}

// forget leaves out of the state what the next step observes anew, so that
// states which differ in nothing else are one. A server that is lost later was
// observed just before.
func (e *Explorer) forget(s *state) {
	for x := range e.Servers {
		m := &s.r.m[x]
		if !m.stale && s.w.s[x].life == up && s.w.cut&(1<<x) == 0 {
			m.ok, m.okAny, m.afterMaster, m.ceiling = snapshot{}, false, false, point{}
		}
	}
}

// step is one turn of repld's loop: observe, decide, journal, send.
func (e *Explorer) step(s *state) (failover.Action, string) {
	e.observe(s)
	a := e.decide(&s.r)
	broken := e.judge(s, a)
	defer e.promise(s)
	if a.Kind == failover.KindWait || a.Kind == failover.KindBegin {
		s.r.ordered = false // one that cannot be followed is void
	}
	if a.Kind == failover.KindBegin {
		in := a.Intent.Clone()
		in.ID = "1"
		return a, first(broken, e.journal(&s.r, topology.BeginIntent{Cluster: clusterName, Intent: *in}))
	}
	if len(a.Journal) > 0 {
		broken = first(broken, e.journal(&s.r, a.Journal...))
	}
	switch a.Kind {
	case failover.KindWait, failover.KindJournal:
		return a, broken
	case failover.KindAnnounce:
		s.r.announced = true
		return a, broken
	case failover.KindHook:
		if s.r.hook == hookRuns {
			broken = first(broken, "the fence runs twice at once")
		}
		s.r.hook = hookRuns
		return a, broken
	case failover.KindLookEvents:
		return a, first(broken, "the model's events are never looked at")
	}
	for _, n := range a.Servers {
		x := index(n)
		fx := effect{verb: verbs[a.Kind]}
		switch a.Kind {
		case failover.KindFetch:
			fx.from = uint8(index(a.From) + 1)
		case failover.KindAttach:
			f := a.Attach[n]
			fx.from, fx.acker = uint8(index(f.Source)+1), f.Acker
			if f.StartAt != nil {
				fx.setAt, fx.at = true, pointOf(f.StartAt.Of(0))
			}
		}
		if s.r.m[x].running.verb != verbNone {
			broken = first(broken, "two effects run on "+n)
		}
		s.r.m[x].running = fx
	}
	return a, broken
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// finish is the end of the effect under way on a server: carried out, failed, or
// unanswered, which leaves a ghost.
func (e *Explorer) finish(s *state, x int) string {
	m := &s.r.m[x]
	fx, broken, ok := m.running, "", false
	m.running, m.endedSince = effect{}, e.clusters[s.r.cluster].Intent != nil
	switch srv := &s.w.s[x]; {
	case fx.verb == verbProbe:
		ok = true
	case srv.life == frozen && s.w.cut&(1<<x) == 0:
		if m.ghost.verb == verbNone && (fx.verb != verbOpen || !s.r.openExpired || e.Guards.NoExpiry) { // else the session that kills it is stuck too
			m.ghost = fx
		}
	case srv.life == down || s.w.cut&(1<<x) != 0:
	default:
		m.ghost = effect{} // older sessions are killed first
		ok, broken = e.run(s, x, fx)
	}
	if m.last != fx.verb {
		m.last, m.failed = fx.verb, 0
	}
	switch {
	case ok:
		m.failed = 0
	case m.failed < 3:
		m.failed++
	}
	e.look(s, x)
	return broken
}

// run executes a verb on a server that is up.
func (e *Explorer) run(s *state, x int, fx effect) (bool, string) {
	switch fx.verb {
	case verbOpen:
		if s.r.openExpired && !e.Guards.NoExpiry {
			return false, ""
		}
	case verbCompare:
		if e.Guards.NoCompare {
			return true, ""
		}
		return e.compare(s, x)
	case verbRejoin:
		return e.rejoin(s, x)
	}
	out := s.w.execute(x, fx)
	return out.ok, out.broken
}

// rejoin saves what only this server has, and seeds it anew if nobody was told
// OK for any of it; else it is kept out as diverged.
func (e *Explorer) rejoin(s *state, x int) (bool, string) {
	c := e.clusters[s.r.cluster]
	mi := index(c.Master)
	srv, m := &s.w.s[x], &s.w.s[mi]
	if m.life != up || mi == x {
		return false, ""
	}
	var extra []gtid.GTID
	told := false
	for k := uint8(1); k <= srv.log.n; k++ {
		p := point{srv.log.at(k), k}
		if !m.log.has(p) {
			extra = append(extra, p.gtid())
			told = told || s.w.acked[p.id-1]&(1<<(k-1)) != 0
		}
	}
	if told {
		return true, e.journal(&s.r, topology.MarkDiverged{Cluster: clusterName, Server: name(x), Extra: extra})
	}
	srv.log, srv.pos, srv.relay, srv.src = m.log, m.log.last(), history{}, 0
	srv.io, srv.sql, srv.gotShown, srv.got, srv.fetch, srv.fetchOn = no, no, false, point{}, 0, false
	return true, ""
}

// compare looks whether the last transaction of a server is the master's of the
// same number; if not, the server is kept out.
func (e *Explorer) compare(s *state, x int) (bool, string) {
	mi := index(e.clusters[s.r.cluster].Master)
	srv, m := &s.w.s[x], &s.w.s[mi]
	switch {
	case m.life != up || mi == x:
		return false, ""
	case m.log.has(srv.log.last()):
		return true, ""
	}
	return true, e.journal(&s.r, topology.MarkDiverged{Cluster: clusterName, Server: name(x), Extra: []gtid.GTID{srv.log.last().gtid()}})
}

// crashRepld ends the process: what is in memory is gone, what was sent may
// still run.
func (e *Explorer) crashRepld(s *state) {
	old := s.r
	s.r = repld{cluster: old.cluster, openExpired: old.openExpired, repointLong: old.repointLong, deadlineLong: old.deadlineLong}
	s.w.unlock()
	for x := range s.r.m {
		g := old.m[x].ghost
		if fx := old.m[x].running; fx.verb != verbNone && fx.verb != verbProbe && fx.verb != verbRejoin && fx.verb != verbCompare && (fx.verb != verbOpen || !old.openExpired || e.Guards.NoExpiry) && s.w.s[x].life != down {
			g = fx
		}
		s.r.m[x].ghost = g
	}
}
