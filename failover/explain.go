package failover

import (
	"fmt"
	"strings"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/topology"
)

// Rule is one rule as it stands now.
type Rule struct {
	Code string
	// Holds is false if the rule is broken; Measured is what is so, Needs what the
	// rule asks for, Text says it in a sentence.
	Holds                 bool
	Measured, Needs, Text string
}

// Explanation says why a server could or could not be promoted, or (Server is
// "") whether a failover would begin if it were called for.
type Explanation struct {
	Server     string
	Promotable bool
	Rules      []Rule
}

// Explain gives every rule with its measured value, by the table that Decide
// uses. An empty name explains the beginning of a failover.
func Explain(in Input, name string) Explanation {
	d := newDecider(in)
	if name == "" {
		return d.explainBegin()
	}
	if name == d.c.Master {
		return Explanation{Server: name, Rules: []Rule{{Code: "is_master", Measured: "it is the master", Needs: "it is a slave", Text: "it is the master already"}}}
	}
	m := d.member(name)
	e := Explanation{Server: name, Promotable: len(m.because) == 0}
	seen := m.sv.Reachable() || m.sv.LastOK.Reach == health.ReachOK
	for _, r := range promotionRules {
		if !r.blind && !seen {
			e.Rules = append(e.Rules, Rule{Code: r.code, Measured: "unknown: it was never observed", Needs: r.needs, Text: "it is not known whether " + r.needs})
			continue
		}
		text := r.violated(d, m)
		holds := text == ""
		if holds {
			text = r.needs
		}
		e.Rules = append(e.Rules, Rule{Code: r.code, Holds: holds, Measured: r.measured(d, m), Needs: r.needs, Text: text})
	}
	if m.chained {
		e.Rules = append(e.Rules, Rule{Code: "chained", Holds: true, Measured: "it replicates from " + m.s.Source,
			Needs: "no slave of the master itself has, or can quickly be brought, as much", Text: "it is promoted only if " +
				"no slave of the master itself has, or can quickly be brought, as much; and it is no acker"})
	}
	return e
}

// explainBegin gives the rules about the beginning of a failover: what the
// verdict rests on, and each rule that would hold a failover back.
func (d *decider) explainBegin() Explanation {
	var e Explanation
	add := func(code string, holds bool, needs, format string, args ...any) {
		measured := fmt.Sprintf(format, args...)
		text := needs
		if !holds {
			text = "not so: " + needs
		}
		e.Rules = append(e.Rules, Rule{Code: code, Holds: holds, Measured: measured, Needs: needs, Text: text})
	}
	v := d.in.Verdict
	add("master_lost", v.Lost(), "the master is dead or hung", "%s", strings.Join(append([]string{string(v.State)}, v.Evidence...), "; "))
	add("paused", !d.paused(), "automatic action is not paused", "%s", map[bool]string{true: "paused", false: "not paused"}[d.paused()])
	add("manual_mode", d.p.Automatic, "failover.mode is automatic", "automatic: %v", d.p.Automatic)
	last := "there was none"
	if !d.c.LastFailover.IsZero() {
		last = fmt.Sprintf("it was %v ago", d.now.Sub(d.c.LastFailover).Round(time.Second))
	}
	add("block_window", d.windowLeft() == 0, fmt.Sprintf("the last automatic failover was longer than %v ago, or is acknowledged", d.p.BlockWindow), "%s", last)
	add("restarting", !d.now.Before(d.c.RestartUntil), "the master is not being restarted on order", "restart ordered: %v", d.now.Before(d.c.RestartUntil))
	unfenced := d.unfenced()
	add("unfenced", len(unfenced) == 0, "a master that is lost to repld cannot go on to acknowledge writes", "durability %s %s%s", d.c.Durability, d.c.DurabilityState, problemTail(unfenced))
	unproved := d.unproved()
	add("lossless_unproved", len(unproved) == 0, "lossless: every commit is known to have waited for an acker", "durability %s %s%s", d.c.Durability, d.c.DurabilityState, problemTail(unproved))
	f := d.forecast()
	add("candidate", f.Candidate != "" && len(f.Blocked) == 0, "a slave that has all, or can be brought it, could be promoted", "%s", cmpOr(f.Candidate, "nobody")+problemTail(f.Blocked))
	for _, r := range e.Rules {
		e.Promotable = e.Promotable || r.Code == "candidate" && r.Holds
	}
	return e
}

func problemTail(ps []Problem) string {
	if len(ps) == 0 {
		return ""
	}
	return ": " + problemText(ps)
}

// episode keeps the latest trouble of a master until it is over, for
// [topology.NoteDeclined].
type episode struct {
	at       time.Time
	epoch    uint64
	declined topology.Declined
}

// declineAfter is how long a master must have been in trouble for the episode to
// be remembered: a lost packet is none.
const declineAfter = 500 * time.Millisecond

// watchEpisode remembers a failover that did not happen, once the master is in
// order again, or a rule holds a failover back.
func (l *Loop) watchEpisode(in Input, a Action) {
	c, v := in.View.Cluster, in.Verdict
	e := &l.told.episode
	if c.Intent != nil || c.Epoch != e.epoch {
		*e = episode{epoch: c.Epoch} // a failover has begun, or another server is master
		return
	}
	if v.State == health.StateAlive || v.State == health.StateUnknown {
		if !e.at.IsZero() && in.View.Now.Sub(e.at) >= declineAfter {
			e.declined.Until = in.View.Now
			l.noteDeclined(e.declined)
		}
		*e = episode{epoch: c.Epoch}
		return
	}
	if e.at.IsZero() {
		e.at = v.Since
		if e.at.IsZero() {
			e.at = in.View.Now
		}
	}
	rules := make([]string, 0, len(a.Blocked))
	for _, p := range a.Blocked {
		rules = append(rules, p.Code+": "+p.Text)
	}
	was := e.declined
	e.declined = topology.Declined{At: e.at, Master: c.Master, Verdict: string(v.State), Evidence: v.Evidence, Rules: rules}
	if worse(was.Verdict, string(v.State)) {
		e.declined.Verdict, e.declined.Evidence = was.Verdict, was.Evidence
	}
	if len(rules) == 0 {
		e.declined.Rules = was.Rules
	}
	if v.Lost() && len(was.Rules) == 0 && len(rules) > 0 {
		l.noteDeclined(e.declined)
	}
}

// worse tells whether a verdict says more against a master than another one.
func worse(a, b string) bool {
	rank := map[string]int{string(health.StateSuspect): 1, string(health.StateCutOff): 2, string(health.StateVetoed): 3, string(health.StateHung): 4, string(health.StateDead): 5}
	return rank[a] > rank[b]
}

func (l *Loop) noteDeclined(d topology.Declined) {
	if err := l.cfg.Journal.Apply(topology.NoteDeclined{Cluster: l.cfg.Cluster, Declined: d}); err != nil {
		l.cfg.Log.Error("the state cannot be written", logCluster, l.cfg.Cluster, logError, err)
	}
}
