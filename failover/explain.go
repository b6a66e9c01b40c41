package failover

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/repld/repld/health"
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

// Explain gives every rule with its measured value, by the tables that Decide
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
		e.Rules = append(e.Rules, asRule(r.code, r.needs, r.measured(d, m), r.violated(d, m)))
	}
	if m.s.Held != "" {
		// No reason against it: it is only the last choice.
		const needs = "a server that a person has stopped is promoted only if nobody else has as much; a failover lets it apply what it received"
		e.Rules = append(e.Rules, asRule("held", needs, m.heldText(), ""))
	}
	if m.chained {
		e.Rules = append(e.Rules, Rule{Code: "chained", Holds: true, Measured: "it replicates from " + m.s.Source,
			Needs: "no slave of the master itself has, or can quickly be brought, as much", Text: "it is promoted only if " +
				"no slave of the master itself has, or can quickly be brought, as much; and it is no acker"})
	}
	return e
}

// asRule tells of a rule; broken says how it is broken, "" if it holds.
func asRule(code, needs, measured, broken string) Rule {
	return Rule{Code: code, Holds: broken == "", Measured: measured, Needs: needs, Text: cmpOr(broken, needs)}
}

func problemTexts(ps []Problem) string {
	words := make([]string, len(ps))
	for i, p := range ps {
		words[i] = p.Text
	}
	return strings.Join(words, "; ")
}

// explainBegin gives the rules about the beginning of a failover: what the
// verdict rests on, and each rule that would hold a failover back.
func (d *decider) explainBegin() Explanation {
	v, f := d.in.Verdict, d.forecast()
	var e Explanation
	add := func(code, needs, measured, broken string) {
		e.Rules = append(e.Rules, asRule(code, needs, measured, broken))
	}
	said := strings.Join(append([]string{string(v.State)}, v.Evidence...), "; ")
	add("master_lost", "the master is dead or hung", said, unless(v.Lost(), "the master is not known to be lost: it is %s", v.State))
	others := f.Blocked // what holds a failover back apart from the rules of the table
	for _, r := range beginTable() {
		others = slices.DeleteFunc(others, func(p Problem) bool { return p.Code == r.code })
		add(r.code, r.needs, r.measured(d), problemTexts(r.broken(d)))
	}
	ordered, measured := d.now.Before(d.c.RestartUntil), "no restart was ordered"
	if ordered {
		measured = fmt.Sprintf("ordered, for at most %v more", d.c.RestartUntil.Sub(d.now).Round(time.Second))
	}
	add("restarting", "the master is not being restarted on order", measured, unless(!ordered, "the master is being restarted on order, and is not taken for lost meanwhile"))
	who := cmpOr(f.Candidate, "nobody")
	if len(others) > 0 {
		who += ": " + problemTexts(others)
	}
	e.Promotable = f.Candidate != "" && len(others) == 0
	add("candidate", "a slave could be promoted that has everything, or can be brought it", who, unless(e.Promotable, "%s", who))
	return e
}
