package provision

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/internal/mysql"
	"github.com/repld/repld/topology"
)

// shut closes the server. It was asked for: it is going to be a slave.
func (s *slaveSession) shut(ctx context.Context) error {
	bounded, cancel := s.statement(ctx)
	defer cancel()
	if err := mysql.Shut(bounded, s.conn); err != nil {
		return s.fail("not_shut", "the server could not be made read-only", err, "the server is configured, and as writable as it was")
	}
	return nil
}

// source is the server that the slave is to replicate from, or replicates from
// already, as the slave reaches it.
func (s *slaveSession) source() (failover.Source, error) {
	from := s.slave.attachedTo(s.facts)
	if from == nil {
		from = s.slave.source()
	}
	host, port, _, err := ParseAddress(from.Address)
	tls := TLSOf(s.r, s.facts)
	return failover.Source{Name: from.Name, Host: host, Port: port, CAFile: tls.CA, CertFile: tls.Cert, KeyFile: tls.Key}, err
}

// try lets the slave's own IO thread connect to the master, before anything
// that costs time or data depends on it.
func (s *slaveSession) try(ctx context.Context, fromSlavePos bool) error {
	s.p.step(StepTry, s.r.Name, "run", "connect to "+s.slave.source().Name+" as a slave")
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	source, err := s.source()
	if err != nil {
		return err
	}
	a := s.env.Accounts[topology.AccountReplication]
	err = mysql.TryReplication(ctx, s.conn, mysql.Trial{Source: source, User: a.User, Password: a.Password, FromSlavePos: fromSlavePos})
	if err != nil {
		return s.trialFault(err, "the server is configured and read-only; its data was not touched")
	}
	s.p.step(StepTry, s.r.Name, "done", s.slave.source().Name+" accepts it")
	return nil
}

// fill gives the server its data, or the position of the data that it has, and
// repld's accounts.
func (s *slaveSession) fill(ctx context.Context, kind copyKind) error {
	var err error
	switch kind {
	case copyDump:
		err = s.copyAll(ctx)
	case copyEmpty:
		err = s.startEmpty(ctx)
	case copyKeep:
		err = s.startRestored(ctx)
	}
	if err != nil {
		return err
	}
	bounded, cancel := s.statement(ctx)
	defer cancel()
	// An anonymous account of this server's own would be matched before repld's.
	if err := s.ownAccounts(bounded); err != nil {
		return s.fail("accounts_failed", "repld's accounts could not be made on the server", err, "its data is complete; it is read-only and does not replicate yet")
	}
	return nil
}

// copyAll copies the master's data.
func (s *slaveSession) copyAll(ctx context.Context) error {
	master := s.slave.Master.Name
	s.p.step(StepCopy, s.r.Name, "run", "copy from "+master)
	from, err := s.memberTarget(&s.slave.Master)
	if err != nil {
		return s.lookFault(master, err)
	}
	c := Copier{
		From:      Endpoint{Target: from, CAFile: rootsPath(s.p.DataDir, s.r.Cluster, master)},
		To:        Endpoint{Target: s.loadTarget(), CAFile: rootsPath(s.p.DataDir, s.r.Cluster, s.r.Name)},
		ClusterID: s.env.Cluster.ID, Source: master, Only: s.req.wantedSchemas(), Replace: s.req.ReplaceData,
		Keep: keepAccount(s.r.Admin.User), Log: s.p.Log, Progress: s.p.copyProgress(s.r.Name), Finishing: s.rememberCopy,
	}
	out, err := c.Run(ctx)
	if err != nil {
		s.p.step(StepCopy, s.r.Name, "failed", "the copy failed")
		return err
	}
	s.result.Copied, s.result.StartAt = &out, out.At
	s.p.step(StepCopy, s.r.Name, "done", fmt.Sprintf("%s copied, up to %s", sizeText(out.Bytes), out.At))
	return nil
}

// rememberCopy journals that what the server holds from now on is a copy.
func (s *slaveSession) rememberCopy(ctx context.Context, at gtid.Position) error {
	s.env.Pending.Verb, s.env.Pending.CopiedTo = "init-slave", &at
	return s.p.Journal.Save(ctx, s.r.Cluster, s.r.Name, s.env.Pending)
}

// copyProgress passes a copy's progress on, at most once per second.
func (p *Provisioner) copyProgress(server string) func(Progress) {
	var last time.Time
	var phase string
	return func(now Progress) {
		if now.Phase == phase && time.Since(last) < time.Second {
			return
		}
		phase, last = now.Phase, time.Now()
		text := now.Phase
		if now.Phase == "copy" {
			text = sizeText(now.Bytes)
			// The estimate comes from statistics, which may be old.
			if now.Bytes < now.Estimate {
				text += " of about " + sizeText(now.Estimate)
			}
		}
		if now.Attempt > 1 {
			text += fmt.Sprintf(" (attempt %d)", now.Attempt)
		}
		p.step(StepCopy, server, "run", text)
	}
}

// loadTarget is the administrator's login, by now over verified TLS.
func (s *slaveSession) loadTarget() mysql.Target {
	t := mysql.Target{Name: s.r.Name, Address: s.r.Address, Socket: s.r.Admin.Socket, User: s.r.Admin.User, Password: s.r.Admin.Password}
	if t.Socket == "" {
		t.TLS = mysql.TLSFor(s.pool(), s.r.Address)
	}
	return t
}

// startEmpty lets everything arrive by replication, repld's own included.
func (s *slaveSession) startEmpty(ctx context.Context) error {
	at := *s.env.Cluster.Start
	bounded, cancel := s.statement(ctx)
	defer cancel()
	s.p.step(StepStartAt, s.r.Name, "run", "start from "+orWord(at.String(), "the very beginning"))
	if err := s.bringOwn(bounded); err != nil {
		return err
	}
	if err := mysql.StartEmpty(bounded, s.conn, at); err != nil {
		return s.fail("position_not_set", "the starting position could not be set", err, "the server is configured and read-only, and holds no data")
	}
	s.result.StartAt = at
	s.p.step(StepStartAt, s.r.Name, "done", "the position is set")
	return nil
}

// startRestored takes the data that is there, and lets the master itself say
// whether it can continue from its position.
func (s *slaveSession) startRestored(ctx context.Context) error {
	at := restoredPosition(s.facts)
	bounded, cancel := s.statement(ctx)
	defer cancel()
	s.p.step(StepStartAt, s.r.Name, "run", "start from "+at.String())
	if err := s.bringOwn(bounded); err != nil {
		return err
	}
	if !at.Equal(s.facts.SlavePos) {
		if err := mysql.SetSlavePos(bounded, s.conn, at); err != nil {
			return s.fail("position_not_set", "the starting position could not be set", err, "the server is configured and read-only; its data was not touched")
		}
	}
	if err := s.awaitRelay(ctx, at); err != nil {
		return err
	}
	if err := s.try(ctx, true); err != nil {
		return err
	}
	s.result.StartAt = at
	s.p.step(StepStartAt, s.r.Name, "done", s.slave.source().Name+" can continue from there")
	return nil
}

// bringOwn copies repld's own accounts from the master, so that repld can log
// in before they arrive by replication; that they arrive again does no harm.
func (s *slaveSession) bringOwn(ctx context.Context) error {
	accounts, err := mysql.ReadAccounts(ctx, s.master)
	if err == nil {
		_, err = mysql.WriteAccounts(ctx, s.conn, accounts, func(user, _ string) bool { return !slices.Contains(repldUsers(), user) })
	}
	if err != nil {
		return s.fail("accounts_failed", "repld's accounts could not be made on the server", err, "the server is configured and read-only; its data was not touched")
	}
	return nil
}

// ownAccounts makes repld's accounts also for the hosts of the server's own
// anonymous accounts, outside the binary log: it is a matter of this server.
func (s *slaveSession) ownAccounts(ctx context.Context) error {
	hosts := shadowHosts(s.facts)
	if len(hosts) == 0 {
		return nil
	}
	if err := mysql.WithoutBinlog(ctx, s.conn); err != nil {
		return err
	}
	for purpose, grants := range accountGrants() {
		a := s.env.Accounts[purpose]
		for _, host := range hosts {
			if err := mysql.EnsureAccount(ctx, s.conn, a.User, host, mysql.Secret(a.Password), grants); err != nil {
				return err
			}
		}
	}
	return nil
}

// accountGrants are repld's accounts with what each may do.
func accountGrants() map[string][]mysql.Grant {
	return map[string][]mysql.Grant{
		topology.AccountRepld:       append(mysql.DaemonGrants(), mysql.FarewellGrants()...),
		topology.AccountReplication: mysql.ReplicationGrants(),
		topology.AccountCopy:        mysql.CopyGrants(),
	}
}
