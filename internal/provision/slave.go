package provision

import (
	"context"
	"crypto/x509"
	"fmt"

	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/internal/mysql"
	"github.com/repld/repld/topology"
)

// SlaveResult is what init slave ends in.
type SlaveResult struct {
	Plan Plan
	// Changed is false if there was nothing to do, or for a dry run.
	Changed bool
	// Server is to be recorded.
	Server topology.Server
	// Copied is the copy that was made, nil if none was. StartAt is where
	// replication began.
	Copied  *Copied
	StartAt gtid.Position
	// Acker is true if it was started as one.
	Acker bool
}

// RecordServer keeps a server's record durably. init slave calls it with Joining
// set before the server can have any effect on the master, and once more when
// it is a full member.
type RecordServer func(context.Context, topology.Server) error

// slaveSession is a session on the server that is to be a slave, and one on the
// master, by repld's account for copies.
type slaveSession struct {
	*session
	req    SlaveRequest
	master *mysql.Conn
	roots  *x509.CertPool // by which the master is verified
	slave  SlaveFacts
	record RecordServer
	// place is where the slave last stood in the logs, to see it move.
	place  string
	result *SlaveResult
}

// InitSlave makes a server a slave of the cluster's master. It changes nothing
// and reports no change if it is that already. On an error both servers are as
// they were, or the error's State says what is left; giving the same request
// again goes on, also after repld was killed.
func (p *Provisioner) InitSlave(ctx context.Context, r SlaveRequest, record RecordServer) (*SlaveResult, error) {
	if err := r.Normalize(); err != nil {
		return nil, err
	}
	master, err := p.slaveNames(r)
	if err != nil {
		return nil, err
	}
	base, err := p.open(ctx, r.Request, topology.RoleSlave)
	if err != nil {
		return nil, err
	}
	s := &slaveSession{session: base, req: r, record: record, slave: SlaveFacts{Master: *master, AdminUser: r.Admin.User}}
	defer s.closeAll()
	if err := s.look(ctx); err != nil {
		return nil, err
	}
	plan := PlanSlave(r, s.facts, s.env, s.slave)
	s.result = &SlaveResult{Plan: plan}
	if err := Refusal(plan.Verb, r.Name, plan.Checks); err != nil || r.DryRun {
		return s.result, err
	}
	if len(plan.Steps) == 0 {
		return s.result, nil
	}
	if err := s.mayWrite(plan.Needs); err != nil {
		return s.result, err
	}
	if err := confirmed(plan, r.Request); err != nil {
		return s.result, err
	}
	return s.result, s.apply(ctx, plan)
}

// slaveNames refuses what needs no connection to be refused.
func (p *Provisioner) slaveNames(r SlaveRequest) (*topology.Server, error) {
	cluster := p.Cluster(r.Cluster)
	master := cluster.Servers[cluster.Master]
	if master == nil {
		return nil, &fault.Error{Kind: fault.Refused, Code: "no_master", What: fmt.Sprintf("cluster %s has no master", r.Cluster),
			Cause: "a slave needs a master to follow", State: "nothing was changed", Do: "replctl init master NAME --address HOST:PORT first"}
	}
	if master.Address == r.Address || master.Name == r.Name {
		return nil, usage("same_server", fmt.Sprintf("%s at %s is the master itself", master.Name, master.Address), "a server cannot be its own slave", "give the name and address of another server")
	}
	return master, p.namesFree(r.Request, topology.RoleSlave)
}

func (s *slaveSession) closeAll() {
	if s.master != nil {
		_ = s.master.Close() // the verb is over
	}
	s.close()
}

// apply carries the plan out.
func (s *slaveSession) apply(ctx context.Context, plan Plan) error {
	if err := s.configure(ctx, plan); err != nil {
		return err
	}
	if err := saveRoots(s.p.DataDir, s.r.Cluster, s.r.Name, s.caPEM); err != nil {
		return s.fail("authority_not_saved", "the server's authority could not be kept", err, "the server is configured")
	}
	// From here on nobody but repld may write, or what is copied would differ.
	if err := s.shut(ctx); err != nil {
		return err
	}
	kind, _ := decideCopy(s.req, s.facts, s.env, s.slave)
	if kind != copyNothing {
		if err := s.try(ctx, false); err != nil {
			return err
		}
		if err := s.fill(ctx, kind); err != nil {
			return err
		}
	}
	srv := s.serverRecord()
	srv.Joining = true
	if err := s.record(ctx, srv); err != nil {
		return fmt.Errorf("record %s: %w", srv.Name, err)
	}
	if err := s.attach(ctx, srv); err != nil {
		return err
	}
	if err := s.proveSlave(ctx, srv); err != nil {
		return err
	}
	srv.Joining = false
	if err := s.record(ctx, srv); err != nil {
		return fmt.Errorf("record %s: %w", srv.Name, err)
	}
	s.result.Changed, s.result.Server = true, srv
	return nil
}

// serverRecord is the slave as it is recorded.
func (s *slaveSession) serverRecord() topology.Server {
	srv := s.session.record(topology.RoleSlave)
	srv.Source, srv.Delay, srv.ReplicateDoDB, srv.SkipErrors = s.slave.Master.Name, s.req.Delay, s.req.ReplicateDoDB, s.req.SkipErrors
	if old := s.env.Cluster.Servers[srv.Name]; old != nil {
		srv.AddedAt = old.AddedAt
	}
	return srv
}

// look gathers all that the plan is made of. It changes nothing.
func (s *slaveSession) look(ctx context.Context) error {
	if err := s.dialMaster(ctx); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	f := &s.slave
	facts, err := mysql.GatherAdminFacts(bounded, s.master)
	if err != nil {
		return s.lookFault(f.Master.Name, err)
	}
	f.MasterFacts = *facts
	for _, step := range []struct {
		server string
		run    func() error
	}{
		{f.Master.Name, func() (err error) { f.MasterTraits, err = mysql.ReadTraits(bounded, s.master); return err }},
		{f.Master.Name, func() (err error) { f.MasterHolding, err = mysql.Survey(bounded, s.master); return err }},
		{f.Master.Name, func() (err error) {
			f.OldestFile, f.OldestBefore, err = mysql.OldestPosition(bounded, s.master)
			return err
		}},
		{s.r.Name, func() (err error) { f.Traits, err = mysql.ReadTraits(bounded, s.conn); return err }},
		{s.r.Name, func() (err error) { f.Holding, err = mysql.Survey(bounded, s.conn); return err }},
		{s.r.Name, func() (err error) { f.Unfinished, err = mysql.ReadCopyState(bounded, s.conn); return err }},
		{s.r.Name, func() error { return s.lookSpace(bounded) }},
		{s.r.Name, func() error { return s.lookCollations(bounded) }},
	} {
		if err := step.run(); err != nil {
			return s.lookFault(step.server, err)
		}
	}
	return nil
}

func (s *slaveSession) lookSpace(ctx context.Context) error {
	if s.facts.Local {
		s.slave.Free, s.slave.FreeKnown = freeSpace(s.facts.Identity.DataDir)
		return nil
	}
	var err error
	s.slave.Free, s.slave.FreeKnown, err = mysql.FreeBytes(ctx, s.conn)
	return err
}

func (s *slaveSession) lookCollations(ctx context.Context) error {
	used, err := mysql.CollationsUsed(ctx, s.master)
	if err != nil {
		return err
	}
	known, err := mysql.CollationsKnown(ctx, s.conn)
	s.slave.UnknownCollations = missingFrom(used, known)
	return err
}

func (s *slaveSession) lookFault(server string, err error) error {
	return &fault.Error{Kind: fault.Failed, Code: "look_failed", What: "the server could not be examined", Server: server, Errno: mysql.Errno(err),
		Cause: fault.Brief(err), State: "nothing was changed", Do: "put the cause right and run the command again", Err: err}
}

// masterTarget is the login on the master by repld's account for copies.
func (s *slaveSession) masterTarget() mysql.Target {
	a, m := s.env.Accounts[topology.AccountCopy], s.slave.Master
	return mysql.Target{Name: m.Name, Address: m.Address, User: a.User, Password: a.Password, TLS: mysql.TLSFor(s.roots, m.Address)}
}

func (s *slaveSession) dialMaster(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.p.Timeouts.withDefaults().Dial)
	defer cancel()
	var err error
	if s.roots, err = RootsOf(s.p.DataDir, s.r.Cluster, s.slave.Master.Name); err != nil {
		return s.lookFault(s.slave.Master.Name, err)
	}
	conn, err := mysql.Dial(ctx, s.masterTarget())
	if err != nil {
		f := mysql.Explain(ctx, err, s.masterTarget())
		f.State = "nothing was changed"
		return f
	}
	is, err := mysql.IdentityOf(ctx, conn)
	if err == nil {
		if diff := s.slave.Master.Identity.Differs(is); len(diff) > 0 {
			err = fmt.Errorf("another server answers at the master's address: %v", diff)
		}
	}
	if err != nil {
		_ = conn.Close()
		return s.lookFault(s.slave.Master.Name, err)
	}
	s.master = conn
	return nil
}
