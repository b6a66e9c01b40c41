package provision

import (
	"context"
	"fmt"

	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/mysql"
	"github.com/repld/repld/topology"
)

// ReseedRequest asks to give a member of a cluster the master's data anew.
type ReseedRequest struct {
	Cluster string
	// Server is a former master whose extra transactions are given up, or a broken
	// slave.
	Server string
	// Progress hears how the copy goes on; it may be nil.
	Progress func(Progress)
}

// Reseed replaces all data of a member by a copy of the master's, by repld's
// own account for copies, no administrator needed. The server keeps its
// identity and its configuration; its binary log is reset, its gtid_slave_pos
// is the copy's position, and it is left read-only, replicating from nobody:
// Attach it next.
//
// It destroys what the server has. The caller has fenced it, has saved its
// extra transactions ([SaveErrant]), and knows that nothing in its relay log is
// the last copy of anything. Nothing on it is changed before the master has
// begun to deliver, and a copy that ends early is begun anew by the next call:
// the server then holds [mysql.CopyState], is read-only and follows nobody.
func (p *Provisioner) Reseed(ctx context.Context, r ReseedRequest) (Copied, error) {
	cluster := p.Cluster(r.Cluster)
	srv, master := cluster.Servers[r.Server], cluster.Servers[cluster.Master]
	if srv == nil || master == nil || srv == master {
		return Copied{}, &fault.Error{Kind: fault.Refused, Code: "no_reseed", What: "the server cannot be seeded anew", Server: r.Server,
			Cause: fmt.Sprintf("it must be a member of cluster %s and not its master, which is %q", r.Cluster, cluster.Master), State: "nothing was changed", Do: "replctl status"}
	}
	from, err := p.CopyEndpoint(r.Cluster, *master)
	if err != nil {
		return Copied{}, err
	}
	to, err := p.CopyEndpoint(r.Cluster, *srv)
	if err != nil {
		return Copied{}, err
	}
	report := p.copyProgress(r.Server)
	c := Copier{
		From: from, To: to, ClusterID: cluster.ID, Source: master.Name, Replace: true, Log: p.Log, Keep: keepAccount(""),
		Before: func(ctx context.Context, conn *mysql.Conn) error { return p.beforeReseed(ctx, conn, *srv) },
		Check:  func(ctx context.Context, conn *mysql.Conn) error { return sameServer(ctx, conn, *master) },
		Progress: func(now Progress) {
			report(now)
			if r.Progress != nil {
				r.Progress(now)
			}
		},
	}
	if len(srv.ReplicateDoDB) > 0 {
		c.Only = append([]string{mysql.OwnSchema}, srv.ReplicateDoDB...)
	}
	return c.Run(ctx)
}

// CopyEndpoint is a member as the account for copies reaches it.
func (p *Provisioner) CopyEndpoint(cluster string, srv topology.Server) (Endpoint, error) {
	roots, err := RootsOf(p.DataDir, cluster, srv.Name)
	if err != nil {
		return Endpoint{}, &fault.Error{Kind: fault.Failed, Code: "no_authority", What: "the server's certificate cannot be verified", Server: srv.Name,
			Cause: fault.Brief(err), State: "nothing was changed", Do: "restore repld's data directory from a backup", Err: err}
	}
	a := p.Accounts(cluster)[topology.AccountCopy]
	return Endpoint{
		Target: mysql.Target{Name: srv.Name, Address: srv.Address, User: a.User, Password: a.Password, TLS: mysql.TLSFor(roots, srv.Address)},
		CAFile: rootsPath(p.DataDir, cluster, srv.Name),
	}, nil
}

// beforeReseed looks at the server for the last time before it loses its data.
func (p *Provisioner) beforeReseed(ctx context.Context, conn *mysql.Conn, srv topology.Server) error {
	if err := sameServer(ctx, conn, srv); err != nil {
		return err
	}
	facts, err := mysql.GatherAdminFacts(ctx, conn)
	if err != nil {
		return err
	}
	if len(facts.DumpThreads) > 0 {
		return &fault.Error{Kind: fault.Refused, Code: "has_slaves", What: "the server cannot be seeded anew", Server: srv.Name,
			Cause: fmt.Sprintf("other servers replicate from it: %v", facts.DumpThreads), State: "nothing was changed", Do: "give those servers another master first"}
	}
	if !facts.On("read_only") {
		return &fault.Error{Kind: fault.Refused, Code: "not_fenced", What: "the server cannot be seeded anew", Server: srv.Name,
			Cause: "it is writable", State: "nothing was changed", Do: "repld fences it first; see replctl status"}
	}
	return mysql.ForgetSources(ctx, conn)
}

func sameServer(ctx context.Context, conn *mysql.Conn, srv topology.Server) error {
	is, err := mysql.IdentityOf(ctx, conn)
	if err != nil {
		return err
	}
	if diff := srv.Identity.Differs(is); len(diff) > 0 {
		return &fault.Error{Kind: fault.Refused, Code: "other_server", What: "another server answers at the address", Server: srv.Name,
			Cause: fmt.Sprint(diff), State: "nothing was changed", Do: "check where " + srv.Address + " leads"}
	}
	return nil
}
