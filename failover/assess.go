package failover

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/topology"
)

// Assess reports on a cluster by the rules that Decide follows: what status
// shows can never differ from what a failover would do.
func Assess(in Input) Report {
	d := newDecider(in)
	r := Report{Servers: map[string]ServerReport{}}
	if d.c.Master == "" {
		r.Health = NoMaster
		return r
	}
	next := d.decide()
	r.Ackers, r.AsConfigured = d.activeAckers(), d.asConfigured()
	for _, name := range d.c.Names() {
		r.Servers[name] = d.assessServer(name)
		r.Problems = append(r.Problems, r.Servers[name].Problems...)
	}
	// The pause is told once, by clusterProblems, which knows how long it lasts.
	held := slices.DeleteFunc(slices.Clone(next.Blocked), func(p Problem) bool { return p.Code == "paused" })
	r.Problems = slices.Concat(held, next.Notes, d.clusterProblems(), r.Problems)
	if worst := d.twoWritable(); len(worst) > 0 {
		r.Problems = append(worst, slices.DeleteFunc(r.Problems, func(p Problem) bool { return p.Code == worst[0].Code })...)
	}
	r.Forecast = d.forecast()
	r.Health = d.health(next, r)
	return r
}

// activeAckers lists the servers that acknowledge the master's commits now.
func (d *decider) activeAckers() []string {
	var out []string
	for _, name := range d.c.Names() {
		if d.acks(name) {
			out = append(out, name)
		}
	}
	return out
}

// health is the cluster's one word.
func (d *decider) health(next Action, r Report) Health {
	in, mv := d.c.Intent, d.v.Servers[d.c.Master]
	writable := mv.Reachable() && !mv.Last.ReadOnly
	switch {
	case in != nil && in.Opened.IsZero() && holdsBack(next.Blocked):
		return Blocked
	case in != nil && in.Opened.IsZero():
		return FailingOver
	case holdsBack(next.Blocked):
		return Blocked
	case !writable && d.in.Verdict.State != health.StateVetoed && !(mv != nil && mv.Last.Reach == health.ReachUnkind):
		return NoMaster
	case in != nil:
		return FailingOver
	case slices.ContainsFunc(r.Problems, func(p Problem) bool { return p.Code != "maintenance" }):
		return Degraded
	}
	return Healthy
}

// holdsBack tells whether a rule holds back what is called for; manual mode and
// a pause are a person's will, not a rule.
func holdsBack(ps []Problem) bool {
	for _, p := range ps {
		if p.Code != "manual_mode" && p.Code != "paused" {
			return true
		}
	}
	return false
}

// clusterProblems are those of no single slave.
func (d *decider) clusterProblems() []Problem {
	var ps []Problem
	add := func(code, do, format string, args ...any) {
		ps = append(ps, Problem{Code: code, Server: d.c.Master, Text: fmt.Sprintf(format, args...), Do: do})
	}
	mv := d.v.Servers[d.c.Master]
	switch v := d.in.Verdict; v.State {
	case health.StateAlive:
		if mv.Last.Reach == health.ReachUnkind {
			add("master_unkind", "", "the master is alive and refuses repld with error %d: %s", mv.Last.Errno, mv.Last.Err)
		}
	case health.StateUnknown:
		add("master_unknown", "", "the master has not been observed yet")
	default:
		add("master_"+string(v.State), "", "the master is %s since %v: %s", v.State, v.Since.Format(time.TimeOnly), reachText(mv))
	}
	alive := mv.Reachable() && !mv.Last.ReadOnly
	if alive {
		ps = append(ps, d.stalled(mv)...)
		ps = append(ps, d.durabilityProblems(mv)...)
		ps = append(ps, d.eventsProblem()...)
	}
	if alive && !d.anyCandidate() {
		ps = append(ps, Problem{Code: "no_promotable_slave", Text: "if the master died now, nobody could be promoted", Do: "replctl init slave NAME --address HOST:PORT"})
	}
	ps = append(ps, d.newerProblems(alive)...)
	if d.paused() {
		ps = append(ps, Problem{Code: "paused", Text: d.pauseText(), Do: "replctl resume"})
	}
	return ps
}

func (d *decider) pauseText() string {
	if d.c.PausedUntil.IsZero() {
		return "automatic action is paused"
	}
	return "automatic action is paused for " + d.c.PausedUntil.Sub(d.now).Round(time.Second).String() + " more"
}

// assessServer is what the rules say of one server.
func (d *decider) assessServer(name string) ServerReport {
	if name == d.c.Master {
		return d.assessMaster()
	}
	m := d.member(name)
	r := ServerReport{Because: m.because, Promotable: len(m.because) == 0, State: d.slaveState(m),
		Errant: d.errant(name), AsHeld: d.stopped(m), Acks: d.acks(name)}
	if m.pending() {
		r.Unapplied = m.received.Seq - m.applied.Seq
	}
	if mv := d.v.Servers[d.c.Master]; mv != nil && mv.LastOK.Reach == health.ReachOK && m.sv.LastOK.Reach == health.ReachOK {
		master := d.bound()
		if now := mv.LastOK.BinlogPos.Of(d.domain); now.Seq > master.Seq {
			master = now
		}
		if d.c.Lineage.Contains(master, m.applied) {
			n := master.Seq - m.applied.Seq
			r.LagTransactions = &n
		}
	}
	r.Problems = d.serverProblems(m, r.State)
	return r
}

func (d *decider) assessMaster() ServerReport {
	mv := d.v.Servers[d.c.Master]
	zero := uint64(0)
	r := ServerReport{State: "unreachable"}
	switch {
	case mv.Reachable() && !mv.Last.ReadOnly:
		r.State, r.LagTransactions = "writable", &zero
	case mv.Reachable():
		r.State = "stopped"
	}
	return r
}

// slaveState is the contract's word for a slave.
func (d *decider) slaveState(m *member) string {
	st := m.sv.Last.Slave
	switch {
	case m.s.Joining:
		return "joining"
	case !m.sv.Reachable():
		return "unreachable"
	case len(m.s.Diverged) > 0 || len(d.errant(m.name)) > 0:
		return "diverged"
	case !m.sv.Last.ReadOnly:
		return "writable"
	case st == nil:
		return "stopped"
	case m.s.Held == topology.HeldAll && st.SQLErrno == 0 && d.stopped(m):
		// As a person wants it. A stopped IO thread keeps the error of its last
		// attempt to connect, which says nothing of whether it can start again.
		return "stopped"
	case st.SQLErrno != 0 || st.IOErrno != 0 && st.IO == health.ThreadNo:
		return "broken"
	case st.IO == health.ThreadNo || st.SQL == health.ThreadNo:
		return "stopped"
	case st.IO == health.ThreadConnecting || m.chained && !d.streams(m.name):
		return "broken"
	case m.sv.LagApplied != nil && *m.sv.LagApplied > d.p.MaxLag:
		return "lagging"
	case m.sv.LagApplied != nil && *m.sv.LagApplied > time.Second:
		return "catching_up"
	}
	return "streaming"
}

// serverProblems are those of one slave that make the cluster degraded.
func (d *decider) serverProblems(m *member, state string) []Problem {
	var ps []Problem
	add := func(code, do, format string, args ...any) {
		ps = append(ps, Problem{Code: code, Server: m.name, Text: fmt.Sprintf(format, args...), Do: do})
	}
	if m.s.MustFence {
		add("must_fence", "", "it was the master and has not been made read-only yet: it is fenced at first contact")
	}
	if m.sv.Reachable() && !m.sv.Last.ReadOnly && !m.s.Joining {
		add("two_writable", "", "it accepts writes and is not the master")
	}
	if m.s.Maintenance && len(ps) == 0 {
		add("maintenance", "replctl maintenance "+m.name+" off", "a person works on it: it is left alone, not promoted, and acknowledges nothing")
		return ps
	}
	chain := d.chainProblems(m)
	ps = append(ps, chain...)
	switch state {
	case "joining":
		add("joining", "if its set-up was interrupted, run the same replctl init slave "+m.name+" again", "it is being set up or seeded anew")
	case "unreachable":
		add("slave_unreachable", "", "%s", reachText(m.sv))
	case "diverged":
		if await := d.awaited(m.name); len(await) > 0 && len(m.s.Diverged) == 0 {
			add("awaits_acker", fmt.Sprintf("bring %s back; or replctl rejoin %s --discard-errant", strings.Join(await, ", "), m.name),
				"it has transactions that the cluster does not have: %s; whether anybody was told OK for them is known when %s, out of reach at the failover, was asked",
				printGTIDs(d.errant(m.name)), strings.Join(await, ", "))
			break
		}
		extra, do := m.s.Diverged, "replctl rejoin "+m.name+" says where they are saved; replctl rejoin "+m.name+" --discard-errant gives them up"
		if len(extra) == 0 {
			extra = d.errant(m.name)
		}
		add("diverged", do, "it has transactions that the cluster does not have: %s", printGTIDs(extra))
	case "stopped", "broken":
		if len(chain) > 0 && slices.Contains(d.c.Stopped, m.name) && m.sv.Last.Slave.SQLErrno == 0 {
			break // repld itself stopped it, on its way
		}
		d.threadProblems(m, add)
	}
	return ps
}

func (d *decider) threadProblems(m *member, add func(code, do, format string, args ...any)) {
	st := m.sv.Last.Slave
	if st == nil {
		add("not_a_slave", "replctl start "+m.name, "it replicates from nobody")
		return
	}
	source := d.sourceOf(st)
	switch {
	case m.s.Held != "" && st.SQLErrno == 0:
		add("held", "replctl start "+m.name, "%s", m.heldText())
	case st.SQLErrno != 0:
		add("slave_sql_error", threadAdvice(m.name, "SQL_THREAD", st.IO != health.ThreadNo), "its SQL thread stopped with error %d: %s", st.SQLErrno, st.SQLError)
	case st.IOErrno != 0:
		do := threadAdvice(m.name, "IO_THREAD", st.SQL == health.ThreadYes)
		if d.in.Verdict.State != health.StateAlive {
			do = "" // it cannot read from a master that is not there
		}
		add("slave_io_error", do, "its IO thread is %q: error %d: %s", st.IO, st.IOErrno, st.IOError)
	case source == "":
		add("foreign_source", "", "it replicates from %s:%d, which is no member", st.SourceHost, st.SourcePort)
	case st.IO == health.ThreadConnecting:
		add("slave_connecting", "", "its IO thread is connecting to %s", source)
	case st.IO == health.ThreadNo:
		add("slave_io_stopped", "replctl start "+m.name, "its IO thread was stopped and reports no error")
	case st.SQL == health.ThreadYes: // its threads run, its relay's do not: see chainProblems
	default:
		add("slave_sql_stopped", "replctl start "+m.name, "its SQL thread was stopped and reports no error")
	}
}

// threadAdvice says how a slave whose thread failed goes on. With both threads
// down, starting one by hand would drop what the relay log holds.
func threadAdvice(name, thread string, otherRuns bool) string {
	anew := "replctl rejoin " + name + " seeds it anew"
	if !otherRuns {
		return anew
	}
	return "put the cause right and run START SLAVE " + thread + " on it; or " + anew
}

// forecast says what would happen if the master died now.
func (d *decider) forecast() Forecast {
	ms := d.members(d.c.Master)
	var f Forecast
	best := d.mostReceived(ms)
	probe := &topology.Intent{Kind: topology.IntentFailover, OldMaster: d.c.Master, Begun: d.v.Started, Symptom: d.now,
		Bound: d.bound(), Armed: d.c.DurabilityState == topology.DurabilityArmed}
	f.Blocked = append(d.unfenced(), d.unproved()...)
	for _, m := range ms {
		if d.couldHoldMore(probe, m, best) {
			f.Blocked = append(f.Blocked, Problem{Code: "acker_unreachable", Server: m.name,
				Text: m.name + " may hold acknowledged transactions that nobody else has"})
		}
	}
	cand, ps := d.pick(probe, ms)
	f.Blocked = append(f.Blocked, ps...)
	if cand == nil {
		return f
	}
	f.Candidate = cand.name
	f.AtRisk = d.atRisk(best)
	return f
}

// atRisk counts the acknowledged transactions that nobody but the master has.
func (d *decider) atRisk(best *member) *uint64 {
	zero := uint64(0)
	if d.c.DurabilityState == topology.DurabilityArmed {
		return &zero
	}
	mv := d.v.Servers[d.c.Master]
	if best == nil || mv == nil || mv.LastOK.Reach != health.ReachOK {
		return nil
	}
	has := mv.LastOK.BinlogPos.Of(d.domain)
	if !d.c.Lineage.Contains(has, best.received) {
		return &zero
	}
	n := has.Seq - best.received.Seq
	return &n
}

// newerProblems tells that a slave might not be able to follow who would be
// promoted: it is of an older series of versions. That holds no failover back,
// for a master whose slaves cannot follow is better than none.
func (d *decider) newerProblems(alive bool) []Problem {
	if !alive || d.c.Intent != nil {
		return nil
	}
	ms := d.members(d.c.Master)
	name := d.forecast().Candidate
	for _, m := range ms {
		if old := newerThan(m, ms); m.name == name && len(old) > 0 {
			return []Problem{{Code: "newer_than_slaves", Server: name, Do: "upgrade " + strings.Join(old, ", "), Text: fmt.Sprintf(
				"if the master died now, %s (version %s) would be promoted, and %s, of an older series, might not be able to follow it", name, m.sv.LastOK.Version, strings.Join(old, ", "))}}
		}
	}
	return nil
}
