package provision

import (
	"context"
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
	// Repoint names the member that the server, a member itself, is still to be
	// pointed to; "" if none. That is not done here, since both are at work.
	Repoint string
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
	relay  *mysql.Conn // nil if it is to replicate from the master
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
	relay, err := p.chosenSource(r)
	if err != nil {
		return nil, err
	}
	base, err := p.open(ctx, r.Request, topology.RoleSlave)
	if err != nil {
		return nil, err
	}
	s := &slaveSession{session: base, req: r, record: record, slave: SlaveFacts{Name: r.Name, Master: *master, Relay: relay, AdminUser: r.Admin.User}}
	defer s.closeAll()
	if recorded(r.Name, s.env) {
		for _, name := range s.env.Cluster.Names() {
			if name != r.Name {
				s.slave.Others = append(s.slave.Others, *s.env.Cluster.Servers[name])
			}
		}
	}
	if err := s.look(ctx); err != nil {
		return nil, err
	}
	plan := PlanSlave(r, s.facts, s.env, s.slave)
	s.result = &SlaveResult{Plan: plan}
	if err := Refusal(plan.Verb, r.Name, plan.Checks); err != nil || r.DryRun {
		return s.result, err
	}
	s.result.Repoint = s.slave.moves(s.facts, s.env)
	if len(plan.Steps) == 0 || s.result.Repoint != "" && len(plan.Steps) == 1 {
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
	for _, conn := range []*mysql.Conn{s.master, s.relay} {
		if conn != nil {
			_ = conn.Close() // the verb is over
		}
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
	at, err := s.stands(ctx)
	if err == nil {
		err = s.awaitRelay(ctx, at)
	}
	if err != nil {
		return err
	}
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
	srv.Source, srv.Delay, srv.ReplicateDoDB, srv.SkipErrors = s.slave.source().Name, s.req.Delay, s.req.ReplicateDoDB, s.req.SkipErrors
	if old := s.env.Cluster.Servers[srv.Name]; old != nil {
		srv.AddedAt = old.AddedAt
		if s.slave.moves(s.facts, s.env) != "" {
			srv.Source = old.Source
		}
	}
	return srv
}

// look gathers all that the plan is made of. It changes nothing.
func (s *slaveSession) look(ctx context.Context) error {
	var err error
	if s.master, err = s.dialMember(ctx, &s.slave.Master); err != nil {
		return err
	}
	if err := s.lookRelay(ctx); err != nil {
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

// memberTarget is the login on a member by repld's account for copies.
func (s *slaveSession) memberTarget(m *topology.Server) (mysql.Target, error) {
	a := s.env.Accounts[topology.AccountCopy]
	roots, err := RootsOf(s.p.DataDir, s.r.Cluster, m.Name)
	return mysql.Target{Name: m.Name, Address: m.Address, User: a.User, Password: a.Password, TLS: mysql.TLSFor(roots, m.Address)}, err
}

// dialMember connects to the master, or the relay, and proves that it is that.
func (s *slaveSession) dialMember(ctx context.Context, m *topology.Server) (*mysql.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.p.Timeouts.withDefaults().Dial)
	defer cancel()
	target, err := s.memberTarget(m)
	if err != nil {
		return nil, s.lookFault(m.Name, err)
	}
	conn, err := mysql.Dial(ctx, target)
	if err != nil {
		f := mysql.Explain(ctx, err, target)
		f.State = "nothing was changed"
		return nil, f
	}
	is, err := mysql.IdentityOf(ctx, conn)
	if err == nil {
		if diff := m.Identity.Differs(is); len(diff) > 0 {
			err = fmt.Errorf("another server answers at the address of %s: %v", m.Name, diff)
		}
	}
	if err != nil {
		_ = conn.Close()
		return nil, s.lookFault(m.Name, err)
	}
	return conn, nil
}

// stands is the server's position.
func (s *slaveSession) stands(ctx context.Context) (gtid.Position, error) {
	bounded, cancel := s.statement(ctx)
	defer cancel()
	at, err := mysql.SlavePos(bounded, s.conn)
	if err != nil {
		return at, s.lookFault(s.r.Name, err)
	}
	return at, nil
}
