package provision

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/mysql"
	"github.com/repld/repld/topology"
)

// attach starts replication, by the very verb that later re-points the server.
func (s *slaveSession) attach(ctx context.Context, srv topology.Server) error {
	s.p.step(StepAttach, s.r.Name, "run", "replicate from "+s.slave.source().Name)
	source, err := s.source()
	if err != nil {
		return err
	}
	full := srv
	full.Joining = false
	s.result.Acker = len(full.NeverPromotable()) == 0 && full.Source == s.slave.Master.Name && s.env.Cluster.Durability != topology.Async
	a := s.env.Accounts[topology.AccountReplication]
	server := mysql.NewServer(mysql.Options{
		Server: srv.Name, Target: s.own, Identity: func() topology.Identity { return srv.Identity },
		Replication: func() mysql.Credentials { return mysql.Credentials{User: a.User, Password: a.Password} },
	})
	defer server.Close()
	bounded, cancel := context.WithTimeout(ctx, 3*s.p.Timeouts.withDefaults().Statement)
	defer cancel()
	err = server.Attach(bounded, failover.Attachment{Source: source, Acker: s.result.Acker, Delay: srv.Delay, DoDB: srv.ReplicateDoDB})
	if err != nil {
		return s.attachFault(bounded, err)
	}
	s.p.step(StepAttach, s.r.Name, "done", "it replicates")
	return nil
}

const stateAttached = "the server is configured and read-only, its data is complete; replication is set up"

func (s *slaveSession) attachFault(ctx context.Context, err error) error {
	f := s.fail("attach_failed", "replication could not be started", err, "the server is configured and read-only, its data is complete")
	if s.env.Cluster.Servers[s.r.Name] != nil {
		f.Do += "; or, if its data may be replaced by the master's: replctl rejoin " + s.r.Name
	}
	var connect *mysql.ConnectError
	if errors.As(err, &connect) {
		explained := mysql.Explain(ctx, err, s.own())
		f.Cause, f.Errno = explained.Cause, explained.Errno
		if problem := mysql.LoginProblem(s.facts.Logins, nil, mysql.UserRepld, "localhost", true, false); s.facts.Local && problem != "" {
			f.Cause += "; " + problem
		}
	}
	return f
}

var deniedHost = regexp.MustCompile(`Access denied for user '[^']*'@'([^']*)'`)

// trialFault puts what the slave itself met into words. The same error number
// stands for several causes; the master's accounts and an own handshake tell
// which it is.
func (s *slaveSession) trialFault(err error, state string) error {
	m := s.slave.source()
	f := s.fail("source_refused", "the server cannot replicate from "+m.Name, err, state)
	var trial *mysql.TrialError
	if !errors.As(err, &trial) {
		return f
	}
	f.Errno = trial.Errno
	switch trial.Errno {
	case 1045, 1597, 1698:
		f.Code = "replication_login"
		if problem := s.loginProblem(trial.Message); problem != "" {
			f.Cause = trial.Message + ": " + problem
		}
		f.Do = "put the account right on " + m.Name + ", then run the command again: it goes on"
	case 2002, 2003, 2005:
		f.Code = "source_unreachable"
		f.Cause = fmt.Sprintf("%s; repld itself reaches it; its bind_address is %s", trial.Message, orWord(s.slave.sourceFacts().Value("bind_address"), "*"))
		f.Do = "let " + s.r.Name + "'s host reach " + m.Address + " (name resolution, firewall, bind-address), then run the command again"
	case 2026:
		f.Code = "source_certificate"
		f.Cause = trial.Message + s.certificateProblem()
		f.Do = "give " + m.Name + " a certificate for " + m.Address + " from the authority " + TLSOf(s.r, s.facts).CA + ", then run the command again"
	case 1236:
		f.Kind, f.Code = fault.Refused, "position_refused"
		f.Do = "let repld copy the master's data: --clone dump"
	case 1593:
		f.Code = "server_id_taken"
		f.Do = "give --server-id with a number that no server has"
	}
	return f
}

// loginProblem names which of the causes behind "access denied" it is.
func (s *slaveSession) loginProblem(message string) string {
	host := "localhost"
	if m := deniedHost.FindStringSubmatch(message); m != nil {
		host = m[1]
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.p.Timeouts.withDefaults().Statement)
	defer cancel()
	// Anew: what was gathered for the plan may be older than the cause.
	facts, err := mysql.GatherAdminFacts(ctx, s.upstream())
	if err != nil {
		return ""
	}
	grants, err := mysql.GrantsMatching(ctx, s.upstream(), facts.Logins, mysql.UserReplication, host)
	if err != nil {
		return ""
	}
	if problem := mysql.LoginProblem(facts.Logins, grants, mysql.UserReplication, host, true, true); problem != "" {
		return problem
	}
	return "the account exists and may replicate, so its password is not the one that repld has recorded"
}

// certificateProblem is what an own handshake with the master finds.
func (s *slaveSession) certificateProblem() string {
	ctx, cancel := context.WithTimeout(context.Background(), s.p.Timeouts.withDefaults().Dial)
	defer cancel()
	host, _, _, err := ParseAddress(s.slave.source().Address)
	if err != nil {
		return ""
	}
	if err := mysql.VerifyTLS(ctx, s.slave.source().Address, s.pool(), host); err != nil {
		return ": " + strings.TrimSpace(fault.Brief(err))
	}
	return ": repld itself accepts the source's certificate, so it is the slave's authority file that differs or cannot be read"
}
