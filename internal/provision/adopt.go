package provision

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/internal/mysql"
	"github.com/repld/repld/topology"
)

// AdoptRequest is what adopt is asked to do: Request is the master, Slaves what
// is known of its slaves. A slave that is not among them is found through the
// master's list of slaves and dump threads, and gets the name dbN after its
// server_id and the defaults of a request.
type AdoptRequest struct {
	Request
	Slaves []Request
}

// AdoptResult is what is to be recorded: the master's result as of init master,
// and its slaves.
type AdoptResult struct {
	MasterResult
	SlavePlans []Plan
	Slaves     []topology.Server
}

// Adopt takes over a running replication set-up without copying data: it
// configures the master as InitMaster does, and then, one after another, its
// slaves, which are moved to GTID, verified TLS and repld's replication account.
// Everything is judged before anything is changed. Giving the same request
// again goes on where an interrupted run stopped.
func (p *Provisioner) Adopt(ctx context.Context, r AdoptRequest) (*AdoptResult, error) {
	if err := r.Normalize(); err != nil {
		return nil, err
	}
	if err := p.namesFree(r.Request, topology.RoleMaster); err != nil {
		return nil, err
	}
	if c := p.Cluster(r.Cluster); c.Master == r.Name {
		return &AdoptResult{}, nil
	}
	a := &adoption{p: p, r: r, res: &AdoptResult{}}
	defer a.close()
	if err := a.look(ctx); err != nil {
		return a.res, err
	}
	if err := a.plan(); err != nil || r.DryRun {
		return a.res, err
	}
	return a.res, a.apply(ctx)
}

// adoption is one adopt under way.
type adoption struct {
	p      *Provisioner
	r      AdoptRequest
	res    *AdoptResult
	master *session
	slaves []*session
}

func (a *adoption) close() {
	for _, s := range append(a.slaves, a.master) {
		if s != nil {
			s.close()
		}
	}
}

// look opens the master and all its slaves. The master's positions are read
// again last: a slave must not seem to be ahead because it was looked at later.
func (a *adoption) look(ctx context.Context) (err error) {
	if a.master, err = a.p.open(ctx, a.r.Request, topology.RoleMaster); err != nil {
		return err
	}
	for _, r := range a.r.Slaves {
		if err := a.openSlave(ctx, r); err != nil {
			return err
		}
	}
	for _, h := range a.master.facts.Slaves {
		if a.has(h.ServerID) {
			continue
		}
		if err := a.discover(ctx, h); err != nil {
			return err
		}
	}
	if len(a.slaves) < len(a.master.facts.DumpThreads) {
		return &fault.Error{Kind: fault.Refused, Code: "unknown_slave", What: "adopt is refused", Server: a.r.Name,
			Cause: fmt.Sprintf("%d slaves fetch from it (from %s), but only %d are known", len(a.master.facts.DumpThreads), strings.Join(a.master.facts.DumpThreads, ", "), len(a.slaves)),
			State: "nothing was changed", Do: "name each slave with its address, or set report_host on it"}
	}
	return a.master.gather(ctx)
}

func (a *adoption) has(id uint32) bool {
	for _, s := range a.slaves {
		if s.facts.Identity.ServerID == id {
			return true
		}
	}
	return false
}

func (a *adoption) openSlave(ctx context.Context, r Request) error {
	r.Cluster, r.DryRun, r.Confirmed = a.r.Cluster, a.r.DryRun, a.r.Confirmed
	if r.Admin.User == "" {
		r.Admin = a.r.Admin
	}
	if r.Restart == "" {
		r.Restart = a.r.Restart
	}
	if err := r.Normalize(); err != nil {
		return err
	}
	if err := a.p.namesFree(r, topology.RoleSlave); err != nil {
		return err
	}
	if r.Name == a.r.Name || r.Address == a.r.Address {
		return usage("slave_is_master", "slave "+r.Name+" at "+r.Address+" is the master itself", "a server cannot be its own slave", "give the slave's own name and address")
	}
	s, err := a.p.open(ctx, r, topology.RoleSlave)
	if err != nil {
		return err
	}
	// The cluster is not recorded yet: what the master's run has journaled, a
	// slave has by replication.
	s.env.Pending.ClusterID = a.master.env.Pending.ClusterID
	s.env.Accounts = a.master.env.Accounts
	s.env.Cluster.Lineage = gtid.Lineage{{Domain: uint32(num(a.master.facts.Value("gtid_domain_id")))}}
	a.slaves = append(a.slaves, s)
	return nil
}

// discover finds a slave by what it reports and by where its connection comes
// from; the server_id decides.
func (a *adoption) discover(ctx context.Context, h mysql.SlaveHost) error {
	hosts := []string{}
	if h.Host != "" {
		hosts = append(hosts, h.Host)
	}
	for _, from := range a.master.facts.DumpThreads {
		if host, _, err := net.SplitHostPort(from); err == nil {
			hosts = append(hosts, host)
		}
	}
	tried := []string{}
	for _, host := range hosts {
		address := net.JoinHostPort(host, strconv.Itoa(int(h.Port)))
		tried = append(tried, address)
		before := len(a.slaves)
		if err := a.openSlave(ctx, Request{Name: fmt.Sprintf("db%d", h.ServerID), Address: address}); err != nil {
			continue
		}
		if a.slaves[before].facts.Identity.ServerID == h.ServerID {
			return nil
		}
		a.slaves[before].close()
		a.slaves = a.slaves[:before]
	}
	return &fault.Error{Kind: fault.Refused, Code: "unknown_slave", What: "adopt is refused", Server: a.r.Name,
		Cause: fmt.Sprintf("the slave with server_id %d cannot be reached (tried %s)", h.ServerID, orWord(strings.Join(tried, ", "), "nothing, for it reports no host")),
		State: "nothing was changed", Do: "name the slave with its address, or stop it"}
}

// plan judges all servers. Restarts are confirmed together.
func (a *adoption) plan() error {
	plan := PlanAdoptMaster(a.master.r, a.master.facts, a.master.env)
	a.res.Plan = plan
	checks, question := plan.Checks, []string{plan.Question}
	for _, s := range a.slaves {
		sp := PlanAdoptSlave(s.r, s.facts, s.env, a.master.facts)
		a.res.SlavePlans = append(a.res.SlavePlans, sp)
		checks = append(checks, sp.Checks...)
		question = append(question, sp.Question)
	}
	if err := Refusal("adopt", a.r.Name, checks); err != nil || a.r.DryRun {
		return err
	}
	for i, s := range append([]*session{a.master}, a.slaves...) {
		needs := plan.Needs
		if i > 0 {
			needs = a.res.SlavePlans[i-1].Needs
		}
		if err := s.mayWrite(needs); err != nil {
			return err
		}
	}
	all := a.res.Text()
	if q := strings.TrimSpace(strings.Join(question, " ")); q != "" && !a.r.Confirmed {
		f := confirmed(Plan{Question: q, Outage: a.outage()}, a.r.Request)
		fault.As(f).Document = all
		return f
	}
	return nil
}

func (a *adoption) outage() string {
	words := []string{}
	for _, p := range append([]Plan{a.res.Plan}, a.res.SlavePlans...) {
		if p.Outage != "" {
			words = append(words, p.Outage)
		}
	}
	return strings.Join(words, "; ")
}

// Text is all plans for a person.
func (r *AdoptResult) Text() string {
	text := r.Plan.Text()
	for i := range r.SlavePlans {
		text += r.SlavePlans[i].Text()
	}
	return text
}

func (a *adoption) apply(ctx context.Context) error {
	m := a.master
	if err := m.configure(ctx, a.res.Plan); err != nil {
		return err
	}
	if err := m.accounts(ctx); err != nil {
		return err
	}
	row := failover.ClusterRow{ClusterID: m.env.Pending.ClusterID, Cluster: a.r.Cluster, Epoch: 1, Master: a.r.Name,
		Durability: string(a.p.Durability), Instance: a.p.Instance}
	if err := m.announce(ctx, row); err != nil {
		return err
	}
	if err := m.openForWrites(ctx); err != nil {
		return err
	}
	if err := m.prove(ctx); err != nil {
		return err
	}
	for i, s := range a.slaves {
		s.env.Accounts, s.env.Pending.ClusterID = m.env.Accounts, m.env.Pending.ClusterID
		if err := a.take(ctx, s, a.res.SlavePlans[i]); err != nil {
			return err
		}
	}
	m.fillMaster(&a.res.MasterResult)
	for _, s := range a.slaves {
		a.res.Slaves = append(a.res.Slaves, a.slaveRecord(s))
		if err := saveRoots(a.p.DataDir, a.r.Cluster, s.r.Name, s.caPEM); err != nil {
			return err
		}
	}
	return saveRoots(a.p.DataDir, a.r.Cluster, a.r.Name, m.caPEM)
}

// slaveRecord is a slave as it is to be recorded.
func (a *adoption) slaveRecord(s *session) topology.Server {
	srv := s.record(topology.RoleSlave)
	srv.Source = a.r.Name
	if v := s.facts.Value("slave_skip_errors"); v != "" && !strings.EqualFold(v, "OFF") {
		srv.SkipErrors = v
	}
	for _, src := range s.facts.Sources {
		if src.Connection == "" {
			srv.ReplicateDoDB = wholeSchemas(src.WildDo)
		}
	}
	return srv
}
