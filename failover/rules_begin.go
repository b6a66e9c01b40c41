package failover

import (
	"fmt"
	"time"
)

// beginRule is one rule about the beginning of a failover. The table below is
// what Decide, status and explain share.
type beginRule struct {
	code, needs string
	// automatic is true for a rule that does not bind a person. Of these only the
	// first that is broken is reported: the others would not matter yet.
	automatic bool
	measured  func(d *decider) string
	broken    func(d *decider) []Problem
}

func when(broken bool, p Problem) []Problem {
	if broken {
		return []Problem{p}
	}
	return nil
}

// beginTable gives the rules in the order in which they are reported.
func beginTable() []beginRule {
	durability := func(d *decider) string {
		return fmt.Sprintf("durability %s, %s", d.c.Durability, cmpOr(string(d.c.DurabilityState), "not armed"))
	}
	return []beginRule{
		{code: "paused", needs: "automatic action is not paused", automatic: true,
			measured: func(d *decider) string {
				if d.paused() {
					return d.pauseText()
				}
				return "not paused"
			},
			broken: func(d *decider) []Problem {
				return when(d.paused(), Problem{Code: "paused", Text: "automatic action is paused"})
			}},
		{code: "manual_mode", needs: "failover.mode is automatic", automatic: true,
			measured: func(d *decider) string {
				return map[bool]string{true: "failover.mode is automatic", false: "failover.mode is manual"}[d.p.Automatic]
			},
			broken: func(d *decider) []Problem {
				return when(!d.p.Automatic, Problem{Code: "manual_mode", Text: "failover.mode is manual", Do: "replctl failover"})
			}},
		{code: "block_window", needs: "the last automatic failover is longer ago than failover.block_window, or acknowledged", automatic: true,
			measured: (*decider).lastFailover,
			broken: func(d *decider) []Problem {
				return when(d.windowLeft() > 0, Problem{Code: "block_window", Do: "replctl failover", Text: "the last automatic failover was " + d.lastFailover()})
			}},
		{code: "unfenced", needs: "a master that is lost to repld cannot go on to tell its clients OK", measured: durability,
			broken: func(d *decider) []Problem {
				if d.in.Order != nil {
					return nil // a person answers for it
				}
				return d.unfenced()
			}},
		{code: "lossless_unproved", needs: "in lossless, every commit is known to have waited for an acker", measured: durability,
			broken: (*decider).unproved},
	}
}

// lastFailover says when the last automatic failover was.
func (d *decider) lastFailover() string {
	switch {
	case d.c.LastFailover.IsZero():
		return "never"
	case d.p.BlockWindow > 0 && d.windowLeft() == 0 && d.c.Acknowledged.After(d.c.LastFailover):
		return fmt.Sprintf("%v ago, and is acknowledged", d.now.Sub(d.c.LastFailover).Round(time.Second))
	}
	return fmt.Sprintf("%v ago, failover.block_window is %v", d.now.Sub(d.c.LastFailover).Round(time.Second), d.p.BlockWindow)
}

// beginRules gives the rules that hold the failover of a lost master back.
func (d *decider) beginRules() []Problem {
	var ps []Problem
	for _, r := range beginTable() {
		if !r.automatic || len(ps) == 0 && !d.ordered() {
			ps = append(ps, r.broken(d)...)
		}
	}
	if len(ps) == 0 && !d.anyCandidate() {
		ps = append(ps, Problem{Code: "no_candidate", Text: "no reachable server could be promoted"})
	}
	return ps
}
