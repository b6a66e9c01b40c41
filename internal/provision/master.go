package provision

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/internal/mysql"
	"github.com/repld/repld/topology"
)

// MasterResult is what init master ends in: all that the caller records.
type MasterResult struct {
	Plan Plan
	// Changed is false if there was nothing to do, or for a dry run.
	Changed bool
	// ClusterID, Server, Accounts and Era are to be recorded together.
	ClusterID string
	Server    topology.Server
	Accounts  topology.Accounts
	Era       gtid.Era
	// GTIDBefore is the position just before repld's first transaction.
	GTIDBefore gtid.Position
	// CAPEM is the authority by which repld verifies the server.
	CAPEM []byte
	// EventsOn is true if the event scheduler ran before and was switched on again.
	EventsOn bool
}

// InitMaster makes a server the master of a cluster that has none. It changes
// nothing and reports no change if it is that already. On an error the server
// is as it was, or the error's State says what is left; giving the same request
// again goes on. The caller records the result.
func (p *Provisioner) InitMaster(ctx context.Context, r MasterRequest) (*MasterResult, error) {
	if err := r.Normalize(); err != nil {
		return nil, err
	}
	if err := p.namesFree(r.Request, topology.RoleMaster); err != nil {
		return nil, err
	}
	s, err := p.open(ctx, r.Request, topology.RoleMaster)
	if err != nil {
		return nil, err
	}
	defer s.close()
	plan := PlanMaster(s.r, s.facts, s.env)
	res := &MasterResult{Plan: plan}
	if err := Refusal(plan.Verb, r.Name, plan.Checks); err != nil || r.DryRun {
		return res, err
	}
	if len(plan.Steps) == 0 {
		return res, nil
	}
	if err := s.mayWrite(plan.Needs); err != nil {
		return res, err
	}
	if err := confirmed(plan, r.Request); err != nil {
		return res, err
	}
	return res, s.applyMaster(ctx, plan, res)
}

// namesFree refuses a name or an address that is taken. Nothing is contacted.
func (p *Provisioner) namesFree(r Request, role topology.Role) error {
	cluster := p.Cluster(r.Cluster)
	if role == topology.RoleMaster && cluster.Master != "" && cluster.Master != r.Name {
		return usage("has_master", fmt.Sprintf("cluster %s has the master %s already", r.Cluster, cluster.Master), "a cluster has one master", "use replctl init slave, or another --cluster")
	}
	for _, k := range p.Known() {
		same := k.Cluster == r.Cluster && k.Name == r.Name
		switch {
		case same && k.Address != r.Address:
			return usage("name_taken", fmt.Sprintf("the name %s is taken: it is the server at %s", r.Name, k.Address), "names are unique within a cluster, and a server's address stays", "choose another name, or replctl remove "+r.Name+" first")
		case !same && k.Address == r.Address:
			return usage("address_taken", fmt.Sprintf("the address %s is taken: it is server %s of cluster %s", r.Address, k.Name, k.Cluster), "a server belongs to one cluster, under one name", "give another address, or replctl remove "+k.Name+" first")
		}
	}
	return nil
}

// confirmed asks for what the plan needs a person's consent for.
func confirmed(plan Plan, r Request) error {
	if plan.Question == "" || r.Confirmed {
		return nil
	}
	return &fault.Error{
		Kind: fault.Unconfirmed, Code: "not_confirmed", What: plan.Question, Server: r.Name, Cause: plan.Outage,
		State: "nothing was changed", Do: "answer yes or give --yes (a restart: --restart now or never)", Document: plan.Text(),
	}
}

func (s *session) applyMaster(ctx context.Context, plan Plan, res *MasterResult) error {
	if err := s.configure(ctx, plan); err != nil {
		return err
	}
	if err := s.accounts(ctx); err != nil {
		return err
	}
	row := failover.ClusterRow{
		ClusterID: s.env.Pending.ClusterID, Cluster: s.r.Cluster, Epoch: max(1, s.env.Cluster.Epoch), Master: s.r.Name,
		Durability: string(s.p.Durability), Instance: s.p.Instance,
	}
	if err := s.announce(ctx, row); err != nil {
		return err
	}
	if err := s.openForWrites(ctx); err != nil {
		return err
	}
	if err := s.prove(ctx); err != nil {
		return err
	}
	s.fillMaster(res)
	return saveRoots(s.p.DataDir, s.r.Cluster, s.r.Name, s.caPEM)
}

// fillMaster gathers what is to be recorded.
func (s *session) fillMaster(res *MasterResult) {
	pending, domain := s.env.Pending, uint32(num(s.facts.Value("gtid_domain_id")))
	res.Changed, res.ClusterID, res.Accounts, res.CAPEM, res.EventsOn = true, pending.ClusterID, s.env.Accounts.Clone(), s.caPEM, pending.EventsOn
	if pending.GTIDBefore != nil {
		res.GTIDBefore = *pending.GTIDBefore
	}
	res.Era = gtid.Era{Epoch: 1, Domain: domain, Server: s.facts.Identity.ServerID, First: res.GTIDBefore.Of(domain).Seq + 1}
	res.Server = s.record(topology.RoleMaster)
}

// record is the server as it is to be recorded, after configure.
func (s *session) record(role topology.Role) topology.Server {
	tls := TLSOf(s.r, s.facts)
	return topology.Server{
		Name: s.r.Name, Address: s.r.Address, Identity: s.facts.Identity, Flavor: s.facts.Flavor, Version: s.facts.Version,
		Role: role, Promotion: s.r.Promotion, ConfigFile: s.facts.Places.ConfigFile, ConfigCommand: s.facts.Places.ConfigCommand,
		RestartCommand: s.facts.Places.RestartCommand, TLS: tls.Source, CAFile: tls.CA, CertFile: tls.Cert, KeyFile: tls.Key,
		DropInSum: sumOf(RenderDropIn(s.r.Cluster, s.r.Name, SettingsFor(s.role, s.r, s.facts, s.env))), AddedAt: time.Now().UTC(),
	}
}

// accounts makes repld's accounts on the master. What they are, and where the
// binary log stood before repld's first transaction, is journaled first.
func (s *session) accounts(ctx context.Context) error {
	s.p.step(StepAccounts, s.r.Name, "run", "create repld's accounts")
	if err := s.rememberAccounts(ctx); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, 3*s.p.Timeouts.withDefaults().Statement)
	defer cancel()
	// The schema comes before the grants on it.
	for _, statement := range mysql.Schema() {
		if err := s.conn.Exec(bounded, statement); err != nil {
			return s.fail("accounts_failed", "repld's schema could not be created", err, s.leftOver())
		}
	}
	for purpose, grants := range accountGrants() {
		a := s.env.Accounts[purpose]
		for _, host := range accountHosts(s.facts) {
			if err := mysql.EnsureAccount(bounded, s.conn, a.User, host, mysql.Secret(a.Password), grants); err != nil {
				return s.fail("accounts_failed", "the account "+a.User+" could not be created", err, s.leftOver())
			}
		}
	}
	s.p.step(StepAccounts, s.r.Name, "done", "the accounts are there")
	return nil
}

// leftOver says what a verb that failed after configure leaves behind.
func (s *session) leftOver() string {
	text := "the drop-in is in effect; repld's accounts and schema may exist in part"
	return text + s.reopened(context.Background())
}

func (s *session) rememberAccounts(ctx context.Context) error {
	p := &s.env.Pending
	if len(s.env.Accounts) == 0 {
		repld, err := newPassword()
		if err != nil {
			return err
		}
		replication, err := newPassword()
		if err != nil {
			return err
		}
		copying, err := newPassword()
		if err != nil {
			return err
		}
		s.env.Accounts = topology.Accounts{
			topology.AccountCopy:        {Purpose: topology.AccountCopy, User: mysql.UserCopy, Password: copying},
			topology.AccountRepld:       {Purpose: topology.AccountRepld, User: UserRepld, Password: repld},
			topology.AccountReplication: {Purpose: topology.AccountReplication, User: UserReplication, Password: replication},
		}
	}
	p.Verb, p.Accounts = "init-master", s.env.Accounts
	if p.ClusterID == "" {
		p.ClusterID = s.env.Cluster.ID
	}
	if p.ClusterID == "" {
		id, err := randomHex(16)
		if err != nil {
			return err
		}
		p.ClusterID = id
	}
	if p.GTIDBefore == nil {
		bounded, cancel := s.statement(ctx)
		defer cancel()
		pos, err := mysql.BinlogPos(bounded, s.conn)
		if err != nil {
			return s.fail("look_failed", "the binary log's position could not be read", err, s.leftOver())
		}
		p.GTIDBefore = &pos
	}
	return s.p.Journal.Save(ctx, s.r.Cluster, s.r.Name, *p)
}

func (s *session) announce(ctx context.Context, row failover.ClusterRow) error {
	s.p.step(StepAnnounce, s.r.Name, "run", "write repld.cluster")
	bounded, cancel := s.statement(ctx)
	defer cancel()
	if err := mysql.AnnounceBy(bounded, s.conn, row); err != nil {
		return s.fail("announce_failed", "the table repld.cluster could not be written", err, s.leftOver())
	}
	s.p.step(StepAnnounce, s.r.Name, "done", "repld.cluster is written")
	return nil
}

// openForWrites opens the server, and switches its events on if they ran before.
func (s *session) openForWrites(ctx context.Context) error {
	bounded, cancel := s.statement(ctx)
	defer cancel()
	s.p.step(StepOpen, s.r.Name, "run", "make it writable")
	if err := mysql.OpenBy(bounded, s.conn); err != nil {
		return s.fail("open_failed", "the server could not be made writable", err, "it is configured and read-only")
	}
	if s.env.Pending.EventsOn && !s.facts.On("event_scheduler") {
		if err := mysql.SetGlobal(bounded, s.conn, "event_scheduler", "ON"); err != nil {
			return s.fail("events_failed", "the event scheduler, which ran before, could not be switched on", err, "the server is configured and writable")
		}
	}
	s.p.step(StepOpen, s.r.Name, "done", "it is writable")
	return nil
}

// own is the login of repld's own account, over verified TLS.
func (s *session) own() mysql.Target {
	a := s.env.Accounts[topology.AccountRepld]
	return mysql.Target{Name: s.r.Name, Address: s.r.Address, User: a.User, Password: a.Password, TLS: mysql.TLSFor(s.pool(), s.r.Address)}
}

// prove shows that the whole works: repld's own account logs in over verified
// TLS and meets the same server, a row that it writes is seen by a reader of the
// binary log, and no trace is left.
func (s *session) prove(ctx context.Context) error {
	s.p.step(StepProve, s.r.Name, "run", "write a row and see it in the binary log")
	ctx, cancel := context.WithTimeout(ctx, 3*s.p.Timeouts.withDefaults().Statement)
	defer cancel()
	conn, err := mysql.Dial(ctx, s.own())
	if err != nil {
		f := mysql.Explain(ctx, err, s.own())
		if problem := mysql.LoginProblem(s.facts.Logins, nil, UserRepld, "localhost", true, false); s.facts.Local && problem != "" {
			f.Cause += "; " + problem
		}
		f.State = "the server is configured, its accounts exist"
		return f
	}
	defer conn.Close()
	is, err := mysql.IdentityOf(ctx, conn)
	if err != nil {
		return s.unproved(err)
	}
	if diff := s.facts.Identity.Differs(is); len(diff) > 0 {
		return s.unproved(fmt.Errorf("the address %s leads to another server: %s", s.r.Address, strings.Join(diff, ", ")))
	}
	if err := mysql.MakeProbe(ctx, s.conn); err != nil {
		return s.unproved(err)
	}
	err = s.seen(ctx, conn)
	clean, done := context.WithTimeout(context.WithoutCancel(ctx), s.p.Timeouts.withDefaults().Statement)
	defer done()
	if dropErr := mysql.DropProbe(clean, s.conn); err == nil {
		err = dropErr
	}
	if err != nil {
		return s.unproved(err)
	}
	s.p.step(StepProve, s.r.Name, "done", "the row was seen")
	return nil
}

func (s *session) seen(ctx context.Context, conn *mysql.Conn) error {
	token, err := randomHex(16)
	if err != nil {
		return err
	}
	watch, err := s.p.Witness.Watch(ctx, s.own())
	if err != nil {
		return err
	}
	defer watch.Close()
	written, err := mysql.Probe(ctx, conn, token)
	if err != nil {
		return err
	}
	return watch.Wait(ctx, written)
}

func (s *session) unproved(err error) *fault.Error {
	return s.fail("not_proved", "what is written on the server could not be seen in its binary log", err, "the server is configured and writable, its accounts exist")
}

// newPassword is 32 letters and digits from 160 random bits or more, which
// satisfy a policy that wants several kinds of characters.
func newPassword() (string, error) {
	word, err := randomHex(20)
	return "Rp-" + word, err
}

func randomHex(n int) (string, error) {
	raw := make([]byte, n)
	if _, err := rand.Read(raw); err != nil {
		return "", err
	}
	return hex.EncodeToString(raw), nil
}
