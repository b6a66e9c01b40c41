package failover

import (
	"fmt"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// DurabilityPlan is what a change of mode would do.
type DurabilityPlan struct {
	Master string
	// Ackers are the slaves that stream and may acknowledge in the new mode;
	// Reattach those of them that do not yet.
	Ackers, Reattach []string
	// ServerTimeout is how long the master itself would wait for one.
	ServerTimeout time.Duration
	// Position is the master's, Waits whether something has to be arranged.
	Position gtid.GTID
	Waits    bool
}

// PlanDurability says what a change of the cluster's mode would do, or why it
// is refused now: a lossless master without an acker would hang every commit.
func (l *Loop) PlanDurability(mode topology.Durability) (DurabilityPlan, error) {
	in, _ := l.Report()
	c := in.View.Cluster
	refuse := func(code, what, cause, do string) (DurabilityPlan, error) {
		return DurabilityPlan{}, &fault.Error{Kind: fault.Refused, Code: code, What: what, Server: c.Master, Cause: cause, State: "nothing was changed", Do: do}
	}
	switch {
	case c.Master == "":
		return refuse("no_master", "the cluster has no master yet", "nothing was set up", "replctl init master NAME --address HOST:PORT")
	case c.Intent != nil:
		return refuse("intent_open", "a "+string(c.Intent.Kind)+" is under way", "the mode is not changed meanwhile", "replctl status")
	case c.ConfirmNeeded != "":
		return refuse("confirmation_needed", "the recorded state must be confirmed first", c.ConfirmNeeded, "replctl status")
	}
	as := *c
	as.Durability = mode
	view := *in.View
	view.Cluster = &as
	in.View = &view
	d := newDecider(in)
	p := DurabilityPlan{Master: c.Master, ServerTimeout: serverTimeout(&as, in.Policy)}
	for _, name := range as.Names() {
		if d.acker(name) && d.streams(name) {
			p.Ackers = append(p.Ackers, name)
			if !view.Servers[name].Last.SemiSync.SlaveOn {
				p.Reattach = append(p.Reattach, name)
			}
		}
	}
	mv := view.Servers[c.Master]
	if mv != nil && mv.LastOK.Reach == health.ReachOK {
		p.Position = mv.LastOK.BinlogPos.Of(d.domain)
	}
	open := mv.Reachable() && !mv.Last.ReadOnly
	if mode == topology.Lossless && (!open || len(p.Ackers) == 0) {
		return refuse("no_acker", "durability lossless would let every commit wait for ever",
			fmt.Sprintf("the master is open: %v; slaves that stream and could be promoted: %d", open, len(p.Ackers)), "bring a slave back first")
	}
	p.Waits = open && !d.asConfigured() && (mode == topology.Async || len(p.Ackers) > 0)
	return p, nil
}

// asConfigured tells whether the master is seen to be as the mode wants it.
func (d *decider) asConfigured() bool {
	mv := d.v.Servers[d.c.Master]
	if !mv.Reachable() {
		return false
	}
	semi := mv.Last.SemiSync
	switch d.c.Durability {
	case topology.Async:
		return !semi.MasterEnabled
	case topology.Lossless:
		return d.c.DurabilityState == topology.DurabilityArmed && d.c.Endless && semi.MasterOn
	}
	return d.c.DurabilityState == topology.DurabilityArmed && semi.MasterOn && semi.Timeout == serverTimeout(d.c, d.p)
}
