package provision

import (
	"fmt"
	"strings"

	"github.com/repld/repld/internal/mysql"
	"github.com/repld/repld/topology"
)

// The codes of init slave's own steps, in the order in which they are taken.
const (
	StepTry     = "try_replication"
	StepCopy    = "copy"
	StepStartAt = "set_position"
	StepAttach  = "attach"
)

// PlanSlave plans init slave. It is pure.
func PlanSlave(r SlaveRequest, f Facts, c Context, s SlaveFacts) Plan {
	plan := Plan{Verb: "init slave", Server: r.Name, Checks: Judge(SlaveRules(r, s), r.Request, f, c)}
	plan.Needs = NeedsOf(topology.RoleSlave, r.Request, f, c)
	plan.configSteps(r.Request, f)
	kind, why := decideCopy(r, f, c, s)
	if kind == copyNothing && recorded(r.Name, c) {
		if to := s.moves(f, c); to != "" {
			plan.add(StepRepoint, "stop it, let it apply what it received, and let it replicate from %s instead of %s", to, c.Cluster.Servers[r.Name].Source)
		}
		return plan
	}
	master, source := s.Master.Name, s.source().Name
	if kind != copyNothing {
		plan.add(StepTry, "let its IO thread connect to %s at %s over verified TLS, and look how that goes", source, s.source().Address)
	}
	switch kind {
	case copyDump:
		plan.add(StepCopy, "copy about %s from %s, which goes on writing meanwhile: %s", sizeText(s.MasterHolding.Bytes()), master, why)
		plan.destroys(foreignSchemas(s.Holding, s.Unfinished))
	case copyEmpty:
		plan.add(StepStartAt, "start from before repld's first transaction, %s: %s", orWord(c.Cluster.Start.String(), "the very beginning"), why)
	case copyKeep:
		plan.add(StepStartAt, "start from %s: %s", restoredPosition(f), why)
	}
	plan.add(StepAttach, "replicate from %s by GTID over verified TLS%s", source, attachNotes(r, s.Relay != nil))
	plan.add(StepProve, "see that both threads run, that the connection is encrypted, and that what is created on %s appears here", master)
	return plan
}

// recorded tells whether the server is a complete member already.
func recorded(name string, c Context) bool {
	srv := c.Cluster.Servers[name]
	return srv != nil && srv.Role == topology.RoleSlave && !srv.Joining
}

func attachNotes(r SlaveRequest, chained bool) string {
	var notes []string
	if r.Delay > 0 {
		notes = append(notes, "delayed by "+r.Delay.String())
	}
	if len(r.ReplicateDoDB) > 0 {
		notes = append(notes, "only "+strings.Join(r.ReplicateDoDB, ", "))
	}
	if r.neverPromotable() {
		notes = append(notes, "never promoted, so no acker")
	} else if chained {
		notes = append(notes, "below a slave, so no acker")
	}
	if len(notes) == 0 {
		return ""
	}
	return " (" + strings.Join(notes, "; ") + ")"
}

// destroys asks for a consent of its own: --replace-data allows it, and a
// person still sees what it is.
func (p *Plan) destroys(foreign []mysql.SchemaInfo) {
	if len(foreign) == 0 {
		return
	}
	text := "Destroy what is on " + p.Server + ": " + describeSchemas(foreign) + "?"
	p.Question = strings.TrimSpace(text + " " + p.Question)
	if p.Outage != "" {
		p.Outage += "; "
	}
	p.Outage += fmt.Sprintf("schemas of %s are dropped", p.Server)
}
