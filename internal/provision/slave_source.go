package provision

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/internal/mysql"
	"github.com/repld/repld/topology"
)

// Upstream is another slave that a slave is to replicate from.
type Upstream struct {
	Server topology.Server
	Facts  mysql.AdminFacts
}

// StepRepoint is the step in which a member is pointed to another server.
const StepRepoint = "repoint"

// chosenSource finds the slave that --source names; nil for the master. It
// refuses what needs no connection to be refused.
func (p *Provisioner) chosenSource(r SlaveRequest) (*Upstream, error) {
	c := p.Cluster(r.Cluster)
	if r.Source == "" || r.Source == c.Master {
		return nil, nil
	}
	srv := c.Servers[r.Source]
	switch {
	case r.Source == r.Name:
		return nil, usage("same_server", r.Name+" cannot be its own source", "a server does not replicate from itself", "name the master or another slave in --source")
	case srv == nil:
		return nil, usage("unknown_server", fmt.Sprintf("cluster %s has no server %s", r.Cluster, r.Source), "it has "+orWord(strings.Join(c.Names(), ", "), "none"), "name one of them in --source")
	case c.Below(r.Source, r.Name):
		return nil, usage("source_loop", fmt.Sprintf("%s itself replicates from %s", r.Source, r.Name), "a loop of slaves would follow nobody", "name a server in --source that is not below "+r.Name)
	}
	return &Upstream{Server: *srv}, nil
}

// source is the server that the slave is to replicate from.
func (s *SlaveFacts) source() *topology.Server {
	if s.Relay != nil {
		return &s.Relay.Server
	}
	return &s.Master
}

// sourceFacts are that server's.
func (s *SlaveFacts) sourceFacts() *mysql.AdminFacts {
	if s.Relay != nil {
		return &s.Relay.Facts
	}
	return &s.MasterFacts
}

// moves names the server that a member is to be pointed to, "" if it replicates
// from the right one, or is no member yet.
func (s *SlaveFacts) moves(f Facts, c Context) string {
	srv := c.Cluster.Servers[s.Name]
	if !recorded(s.Name, c) || s.attachedTo(f) == nil || srv.Source == s.source().Name {
		return ""
	}
	return s.source().Name
}

// attachedTo is the member that the server already replicates from as repld
// would set it up; nil if there is none.
func (s *SlaveFacts) attachedTo(f Facts) *topology.Server {
	if s.Unfinished != nil {
		return nil
	}
	list := append([]topology.Server{*s.source()}, s.Others...)
	for i := range list {
		host, port, _, err := ParseAddress(list[i].Address)
		if err != nil {
			continue
		}
		for _, c := range f.Sources {
			if c.Connection == "" && c.Host == host && c.Port == port && c.User == mysql.UserReplication && c.UsingGTID == "Slave_Pos" && c.TLS && c.VerifyServer {
				return &list[i]
			}
		}
	}
	return nil
}

// judgeSource: what a relay does not pass on, or changes, never reaches those
// below it, and nothing shows it.
func (s *SlaveFacts) judgeSource(f Facts) Check {
	if s.Relay == nil {
		return pass("it replicates from the master")
	}
	r, is := &s.Relay.Server, &s.Relay.Facts
	const other = "name another source, or leave --source away"
	switch {
	case r.Joining || r.Reseeding:
		return refuse("wait until it is complete (replctl status)", "%s is being set up or seeded anew", r.Name)
	case len(r.Diverged) > 0 || r.MustFence:
		return refuse(other, "%s has transactions that the cluster does not have, or is not fenced yet", r.Name)
	case r.Delay > 0 || len(r.ReplicateDoDB) > 0 || r.SkipErrors != "":
		return refuse(other+"; the new slave can have a delay or a filter of its own", "%s is delayed, filtered or skips errors: so would be all that it passes on", r.Name)
	case !is.On("log_bin") || !is.On("log_slave_updates"):
		return refuse("set log-bin and log-slave-updates on "+r.Name+" and restart it", "%s passes nothing on: log_bin is %s, log_slave_updates %s; a slave below it would get nothing, and report no lag",
			r.Name, is.Value("log_bin"), is.Value("log_slave_updates"))
	case is.BinlogDoDB+is.BinlogIgnoreDB != "":
		return refuse("remove binlog-do-db and binlog-ignore-db from "+r.Name+"'s configuration and restart it", "the binary log of %s is filtered", r.Name)
	case !is.On("read_only"):
		return refuse("see replctl status", "%s accepts writes", r.Name)
	case is.On("skip_networking"):
		return refuse("remove skip-networking on "+r.Name+" and restart it", "skip_networking is ON on %s", r.Name)
	}
	if !runs(is) {
		return refuse("put it right first (replctl status)", "%s does not replicate itself, with both threads", r.Name)
	}
	return s.judgeRelayVersion(f)
}

func runs(is *mysql.AdminFacts) bool {
	for _, c := range is.Sources {
		if c.Connection == "" {
			return c.IO == "Yes" && c.SQL == "Yes"
		}
	}
	return false
}

func (s *SlaveFacts) judgeRelayVersion(f Facts) Check {
	own, err1 := mysql.ParseVersion(f.Version)
	relay, err2 := mysql.ParseVersion(s.Relay.Facts.Version)
	if err1 == nil && err2 == nil && (own.Major < relay.Major || own.Major == relay.Major && own.Minor < relay.Minor) {
		return refuse("upgrade this server to "+relay.String()+" or newer first", "version %s is older than %s of its source %s", own, relay, s.Relay.Server.Name)
	}
	return warn("", "it replicates from the slave %s: it is no acker, and the last choice for a promotion", s.Relay.Server.Name)
}

// lookRelay connects to the relay and gathers its facts.
func (s *slaveSession) lookRelay(ctx context.Context) error {
	relay := s.slave.Relay
	if relay == nil {
		return nil
	}
	var err error
	if s.relay, err = s.dialMember(ctx, &relay.Server); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	facts, err := mysql.GatherAdminFacts(bounded, s.relay)
	if err != nil {
		return s.lookFault(relay.Server.Name, err)
	}
	relay.Facts = *facts
	return nil
}

// upstream is a session on the server that the slave is to replicate from.
func (s *slaveSession) upstream() *mysql.Conn {
	if s.relay != nil {
		return s.relay
	}
	return s.master
}

// awaitRelay waits until the relay has all that the slave has: a slave that
// asks for what comes after something that its source lacks is refused.
func (s *slaveSession) awaitRelay(ctx context.Context, at gtid.Position) error {
	if s.relay == nil || s.slave.attachedTo(s.facts) != nil {
		return nil
	}
	name := s.slave.Relay.Server.Name
	moved, last := time.Now(), gtid.Position{}
	for {
		bounded, cancel := s.statement(ctx)
		now, err := mysql.SlavePos(bounded, s.relay)
		cancel()
		if err != nil {
			return s.lookFault(name, err)
		}
		if reached(now, at) {
			return nil
		}
		if !now.Equal(last) {
			moved, last = time.Now(), now
		}
		if time.Since(moved) > catchUpStall {
			return &fault.Error{Kind: fault.Failed, Code: "source_behind", What: "the source does not have what was copied", Server: name,
				Cause: fmt.Sprintf("it has stood at %s for %s, the data of %s is of %s", now, catchUpStall, s.r.Name, at),
				State: "the new slave is configured and read-only, its data is complete", Do: "see why " + name + " is behind (replctl status), then run the command again: it goes on"}
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return s.unprovedSlave(err)
		}
	}
}
