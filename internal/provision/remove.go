package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/mysql"
	"github.com/repld/repld/topology"
)

// RemoveRequest is what remove is asked to do.
type RemoveRequest struct {
	Cluster, Name string
	// PurgeConfig takes the drop-in, the certificate and repld's accounts away
	// too, so that the server is an ordinary one after its next restart.
	PurgeConfig bool
	// Admin is used instead of repld's own account if its User is set.
	Admin             Admin
	Confirmed, DryRun bool
}

// RemoveResult is what was, or would be, done. The caller forgets the server
// if Changed is true.
type RemoveResult struct {
	Plan     Plan
	Changed  bool
	Warnings []string
}

// The steps of remove.
const (
	StepStop  = "stop_replication"
	StepPurge = "purge_config"
	StepDrop  = "drop_accounts"
)

// PlanRemove plans remove. It refuses the master of a cluster that has slaves. The
// caller points the slaves of a relay to its source before it calls Remove.
func PlanRemove(r RemoveRequest, c topology.Cluster) (Plan, error) {
	plan := Plan{Verb: "remove", Server: r.Name, Question: fmt.Sprintf("Remove %s from cluster %s?", r.Name, r.Cluster)}
	srv := c.Servers[r.Name]
	if srv == nil {
		return plan, usage("unknown_server", fmt.Sprintf("cluster %s has no server %s", r.Cluster, r.Name), "it has "+orWord(strings.Join(c.Names(), ", "), "none"), "look at replctl status")
	}
	followers := c.Children(r.Name)
	if len(followers) > 0 && c.Master == r.Name {
		return plan, &fault.Error{Kind: fault.Refused, Code: "has_slaves", What: "remove is refused", Server: r.Name,
			Cause: "it has slaves: " + strings.Join(followers, ", "), State: "nothing was changed", Do: "remove those first, or make another server the master"}
	}
	if c.Intent != nil {
		return plan, &fault.Error{Kind: fault.Refused, Code: "intent_open", What: "remove is refused", Server: r.Name,
			Cause: fmt.Sprintf("a %s of the cluster is under way, and the server may hold transactions that it needs", c.Intent.Kind), State: "nothing was changed", Do: "wait until it has ended (replctl status)"}
	}
	for _, name := range followers {
		plan.add(StepRepoint, "let %s replicate from %s instead", name, srv.Source)
	}
	if srv.Role == topology.RoleSlave {
		plan.add(StepStop, "apply what was received, stop replication and forget its master; its data is left alone")
	}
	if r.PurgeConfig {
		plan.add(StepPurge, "take away the drop-in %s%s", srv.ConfigFile, map[bool]string{true: " and repld's certificate"}[srv.TLS == "repld"])
		plan.add(StepDrop, "drop repld's accounts and its database there; its settings are its own again after its next restart, until then it stays as it is")
	}
	return plan, nil
}

// Remove takes a server out of its cluster. A server that cannot be reached can
// be removed without PurgeConfig: the warnings say what was not done.
func (p *Provisioner) Remove(ctx context.Context, r RemoveRequest) (*RemoveResult, error) {
	if r.Cluster == "" {
		r.Cluster = "main"
	}
	cluster := p.Cluster(r.Cluster)
	plan, err := PlanRemove(r, cluster)
	res := &RemoveResult{Plan: plan}
	if err != nil || r.DryRun {
		return res, err
	}
	if !r.Confirmed {
		return res, confirmed(plan, Request{Name: r.Name})
	}
	rm := &removal{p: p, r: r, srv: *cluster.Servers[r.Name], res: res}
	if err := rm.run(ctx); err != nil {
		return res, err
	}
	res.Changed = true
	return res, nil
}

// removal is one remove under way.
type removal struct {
	p    *Provisioner
	r    RemoveRequest
	srv  topology.Server
	res  *RemoveResult
	conn *mysql.Conn
}

func (m *removal) run(ctx context.Context) error {
	if err := m.connect(ctx); err != nil {
		return err
	}
	if m.conn != nil {
		defer m.conn.Close()
		if err := m.stop(ctx); err != nil {
			return err
		}
	}
	if !m.r.PurgeConfig {
		return nil
	}
	if err := m.purge(ctx); err != nil {
		return err
	}
	return m.drop(ctx)
}

// connect logs in and proves that the recorded server answers. Without a
// connection the server is only forgotten.
func (m *removal) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, m.p.Timeouts.withDefaults().Dial)
	defer cancel()
	roots, err := RootsOf(m.p.DataDir, m.r.Cluster, m.r.Name)
	if err != nil {
		return err
	}
	own := m.p.Accounts(m.r.Cluster)[topology.AccountRepld]
	t := mysql.Target{Name: m.srv.Name, Address: m.srv.Address, User: own.User, Password: own.Password, TLS: mysql.TLSFor(roots, m.srv.Address)}
	if a := m.r.Admin; a.User != "" {
		t.User, t.Password, t.Socket = a.User, a.Password, a.Socket
	}
	conn, err := mysql.Dial(ctx, t)
	if err != nil {
		f := mysql.Explain(ctx, err, t)
		gone := f.Errno == 1045 && m.r.Admin.User == "" // dropped by an interrupted run
		if m.r.PurgeConfig && !gone {
			f.Do = "start the server, or remove it without --purge-config"
			return f
		}
		m.warn("the server was only forgotten, its replication was not stopped: " + f.What)
		return nil
	}
	is, err := mysql.IdentityOf(ctx, conn)
	if err == nil {
		if diff := m.srv.Identity.Differs(is); len(diff) > 0 {
			_ = conn.Close()
			m.warn("another server answers at " + m.srv.Address + ", nothing was done there: " + strings.Join(diff, ", "))
			return nil
		}
		m.conn = conn
		return nil
	}
	_ = conn.Close()
	return mysql.Explain(ctx, err, t)
}

func (m *removal) warn(text string) {
	m.res.Warnings = append(m.res.Warnings, text)
	m.p.step("warning", m.srv.Name, "done", text)
}

// stop ends replication. What was received is applied first: the relay log goes
// with the connection. A broken slave's cannot be; its master lives and has it.
func (m *removal) stop(ctx context.Context) error {
	if m.srv.Role != topology.RoleSlave {
		return nil
	}
	m.p.step(StepStop, m.srv.Name, "run", "apply what was received and stop replication")
	ctx, cancel := context.WithTimeout(ctx, m.p.Timeouts.withDefaults().Restart)
	defer cancel()
	if err := mysql.StopFetching(ctx, m.conn); err != nil {
		if errors.Is(err, context.DeadlineExceeded) || mysql.Errno(err) != 0 {
			return m.fail("stop_failed", "replication could not be stopped", err, "the IO thread may be stopped, all received transactions are kept")
		}
		m.warn("not all that was received is applied: " + fault.Brief(err))
	}
	if err := mysql.ForgetSource(ctx, m.conn); err != nil {
		return m.fail("stop_failed", "replication could not be stopped", err, "the IO thread is stopped")
	}
	m.p.step(StepStop, m.srv.Name, "done", "it replicates no more")
	return nil
}

// purge takes the files away: never one that repld did not write.
func (m *removal) purge(ctx context.Context) error {
	m.p.step(StepPurge, m.srv.Name, "run", "take the drop-in away")
	if len(m.srv.ConfigCommand) > 0 {
		empty := dropInMark + "\n# The server was removed from repld; nothing is set here any more.\n"
		if out, err := runCommand(ctx, m.srv.ConfigCommand, empty, m.p.Timeouts.withDefaults().Command); err != nil {
			return m.partly(withOutput(err, out), "delete repld's drop-in on the server's host")
		}
	} else if err := m.removeDropIn(ctx); err != nil {
		return m.partly(err.Error(), "delete "+m.srv.ConfigFile+" on the server's host")
	}
	if m.srv.TLS == "repld" && m.local(ctx) {
		for _, path := range []string{m.srv.CertFile, m.srv.KeyFile, m.srv.CAFile} {
			if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
				m.warn(fault.Brief(err))
			}
		}
	}
	m.p.step(StepPurge, m.srv.Name, "done", "the drop-in is gone")
	return nil
}

func (m *removal) removeDropIn(ctx context.Context) error {
	text, err := os.ReadFile(m.srv.ConfigFile)
	switch {
	case os.IsNotExist(err) && m.local(ctx):
		return nil
	case os.IsNotExist(err):
		return fmt.Errorf("%s is not on this host", m.srv.ConfigFile)
	case err != nil:
		return err
	case !isOurs(string(text)):
		return fmt.Errorf("%s was not written by repld", m.srv.ConfigFile)
	}
	return os.Remove(m.srv.ConfigFile)
}

// local tells whether the server's files are on this host. Without a
// connection the drop-in's folder is the best evidence there is.
func (m *removal) local(ctx context.Context) bool {
	if m.conn == nil {
		_, err := os.Stat(filepath.Dir(m.srv.ConfigFile))
		return err == nil
	}
	ctx, cancel := context.WithTimeout(ctx, m.p.Timeouts.withDefaults().Statement)
	defer cancel()
	pid, err := mysql.GlobalVariable(ctx, m.conn, "pid_file")
	if err != nil {
		return false
	}
	f := Facts{AdminFacts: mysql.AdminFacts{Identity: m.srv.Identity, Settings: map[string]mysql.Setting{"pid_file": {Value: pid}}}}
	_, here := localServer(f)
	return here
}

// drop is last: repld's own account goes with it. Nothing of it is binlogged.
func (m *removal) drop(ctx context.Context) error {
	if m.conn == nil {
		m.warn("repld's accounts and its database were not dropped")
		return nil
	}
	m.p.step(StepDrop, m.srv.Name, "run", "drop repld's accounts and database")
	ctx, cancel := context.WithTimeout(ctx, m.p.Timeouts.withDefaults().Statement)
	defer cancel()
	if err := mysql.DropAccounts(ctx, m.conn); err != nil {
		return m.partly(fault.Brief(err), "on the server: SET sql_log_bin=0; DROP DATABASE repld; DROP USER '"+UserReplication+"'@'%', '"+UserRepld+"'@'%'; or give an administrator's login")
	}
	m.p.step(StepDrop, m.srv.Name, "done", "they are gone")
	return nil
}

func (m *removal) fail(code, what string, err error, state string) error {
	return &fault.Error{Kind: fault.Failed, Code: code, What: what, Server: m.srv.Name, Errno: mysql.Errno(err), Cause: fault.Brief(err), State: state + "; the server is still a member", Do: "put the cause right and run the command again", Err: err}
}

func (m *removal) partly(cause, do string) error {
	return &fault.Error{Kind: fault.Partly, Code: "purge_incomplete", What: "not everything of repld's could be taken away", Server: m.srv.Name, Cause: cause,
		State: "its replication is stopped; it is still a member", Do: do + ", then run replctl remove " + m.srv.Name + " without --purge-config"}
}
