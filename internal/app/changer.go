package app

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/internal/config"
	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/internal/provision"
	"github.com/repld/repld/topology"
)

// changer carries out what replctl asks for: it lets provision prepare servers
// and records what came of it.
type changer struct {
	store  *topology.Store
	cfg    *config.Config
	log    *slog.Logger
	guards *guards
	hooks  *hooks

	mu   sync.Mutex
	busy map[string]bool // clusters with a verb under way
}

var _ api.Changer = (*changer)(nil)

// exclusive lets one verb at a time work on a cluster.
func (ch *changer) exclusive(cluster string) (release func(), err error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.busy[cluster] {
		return nil, &fault.Error{Kind: fault.Failed, Code: "busy", What: "another verb is working on cluster " + cluster, Cause: "one verb at a time works on a cluster",
			State: "nothing was changed", Do: "wait for it: replctl history"}
	}
	ch.busy[cluster] = true
	return func() {
		ch.mu.Lock()
		defer ch.mu.Unlock()
		delete(ch.busy, cluster)
	}, nil
}

// provisioner works for one call.
func (ch *changer) provisioner(p api.Progress) *provision.Provisioner {
	pv := &provision.Provisioner{
		DataDir: ch.cfg.DataDir, Known: ch.known, Accounts: ch.store.Accounts, Instance: ch.store.Instance(),
		Cluster: func(name string) topology.Cluster {
			if c := ch.store.Cluster(name); c != nil {
				return *c
			}
			return topology.Cluster{Name: name}
		},
		Durability: topology.Durability(ch.cfg.Durability),
		Journal:    journal{ch.store}, Witness: provision.StreamWitness{ServerID: witnessID}, Log: ch.log,
	}
	if ch.cfg.SemiSync.ServerTimeout != config.Never {
		pv.ServerTimeout = ch.cfg.SemiSync.ServerTimeout
	}
	if p != nil {
		pv.Progress = func(step, server, status, text string) {
			p(api.Event{Step: step, Server: server, Status: statusWord(status), Text: text})
		}
	}
	return pv
}

// statusWord translates provision's word for how a step goes into the API's.
func statusWord(s string) string {
	switch s {
	case "run":
		return "start"
	case "done", "skipped", "failed", "warning", "progress":
		return s
	}
	return "progress"
}

// known lists every server of every cluster.
func (ch *changer) known() []provision.Known {
	var out []provision.Known
	for _, name := range ch.store.Clusters() {
		c := ch.store.Cluster(name)
		for _, s := range c.Servers {
			out = append(out, provision.Known{Cluster: name, Name: s.Name, Address: s.Address, Identity: s.Identity, Version: s.Version})
		}
	}
	return out
}

// Init implements [api.Changer].
func (ch *changer) Init(ctx context.Context, cluster string, r api.InitRequest, p api.Progress) (*api.Result, error) {
	release, err := ch.exclusive(cluster)
	if err != nil {
		return nil, err
	}
	defer release()
	if r.Slave != nil {
		return ch.initSlave(ctx, cluster, r, p)
	}
	return ch.initMaster(ctx, cluster, r, p)
}

func request(cluster string, r api.InitRequest) provision.Request {
	return provision.Request{
		Cluster: cluster, Name: r.Name, Address: r.Address,
		Admin:    provision.Admin{User: r.Admin.User, Password: r.Admin.Password, Socket: r.Admin.Socket},
		ServerID: r.ServerID, ConfigFile: r.ConfigFile, ConfigCommand: r.ConfigCommand, RestartCommand: r.RestartCommand,
		Restart: provision.RestartMode(r.Restart), SSLCA: r.SSLCA, SSLCert: r.SSLCert, SSLKey: r.SSLKey,
		BinlogFormat: r.BinlogFormat, Promotion: topology.Promotion(r.Promotion), Confirmed: r.Confirmed, DryRun: r.DryRun,
	}
}

func (ch *changer) initMaster(ctx context.Context, cluster string, r api.InitRequest, p api.Progress) (*api.Result, error) {
	begun := time.Now()
	res, err := ch.provisioner(p).InitMaster(ctx, provision.MasterRequest{Request: request(cluster, r)})
	if err != nil {
		return nil, err
	}
	if r.DryRun {
		return &api.Result{Plan: planOf(res.Plan)}, nil
	}
	if !res.Changed {
		return &api.Result{Text: fmt.Sprintf("%s is the master of %s already: nothing to do", r.Name, cluster)}, nil
	}
	if err := ch.recordMaster(cluster, res); err != nil {
		return nil, err
	}
	ch.operation(topology.Operation{Cluster: cluster, Kind: topology.OpInit, Server: r.Name, NewMaster: r.Name, Epoch: 1, StartedAt: begun})
	return &api.Result{Changed: true, Text: fmt.Sprintf("%s is the master of %s", r.Name, cluster), Warnings: warningsOf(res.Plan)}, nil
}

// recordMaster writes down the new master: accounts first, for without them the
// rest is of no use.
func (ch *changer) recordMaster(cluster string, res *provision.MasterResult) error {
	if err := ch.store.PutAccounts(cluster, res.Accounts); err != nil {
		return err
	}
	c := ch.store.Cluster(cluster)
	var cmds []topology.Command
	if c == nil {
		cmds = append(cmds, topology.CreateCluster{Name: cluster, ID: res.ClusterID, Durability: topology.Durability(ch.cfg.Durability)})
	}
	cmds = append(cmds, topology.PutServer{Cluster: cluster, Server: res.Server})
	if c == nil || c.Master == "" {
		before := res.GTIDBefore
		floor := gtid.GTID{Domain: res.Era.Domain, Server: res.Era.Server, Seq: res.Era.First - 1}
		if floor.Seq == 0 {
			floor = gtid.GTID{}
		}
		cmds = append(cmds, topology.FoundEra{Cluster: cluster, Master: res.Server.Name, Era: res.Era, Floor: floor, Start: &before, At: time.Now()})
	}
	if err := ch.store.Apply(cmds...); err != nil {
		return err
	}
	return ch.store.SavePending(cluster, res.Server.Name, nil)
}

// operation records a finished verb in the history; without a result it is done.
func (ch *changer) operation(op topology.Operation) string {
	total := millis(time.Since(op.StartedAt))
	op.Result, op.EndedAt, op.TotalMS = cmp.Or(op.Result, topology.ResultDone), time.Now(), &total
	done, err := ch.store.NewOperation(op)
	if err != nil {
		ch.log.Error("the history cannot be written", logCluster, op.Cluster, logError, err)
		return ""
	}
	ch.hooks.ended(ch.store.Cluster(op.Cluster), done)
	return done.ID
}

// planOf translates a plan for the client.
func planOf(p provision.Plan) *api.Plan {
	out := &api.Plan{Steps: []api.PlanStep{}, Question: p.Question, Warnings: warningsOf(p)}
	if p.Needs.WriteFile {
		out.Document = p.Needs.DropIn
	}
	for _, s := range p.Steps {
		step := api.PlanStep{Server: s.Server, Text: s.Text}
		if s.Outage {
			step.Outage = p.Outage
		}
		out.Steps = append(out.Steps, step)
	}
	return out
}

func warningsOf(p provision.Plan) []string {
	var out []string
	for _, c := range p.Checks {
		if c.Result != provision.OK {
			text := fmt.Sprintf("%s: %s", c.Code, c.Text)
			if c.Fix != "" {
				text += " (" + c.Fix + ")"
			}
			out = append(out, text)
		}
	}
	return out
}

// journal keeps what must survive a crash in the middle of a verb.
type journal struct{ store *topology.Store }

// Pending implements [provision.Journal].
func (j journal) Pending(_ context.Context, cluster, server string) (provision.Pending, error) {
	var p provision.Pending
	raw, err := j.store.Pending(cluster, server)
	if err != nil || raw == nil {
		return p, err
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return p, fmt.Errorf("what an interrupted verb left about %s: %w", server, err)
	}
	return p, nil
}

// Save implements [provision.Journal].
func (j journal) Save(_ context.Context, cluster, server string, p provision.Pending) error {
	if p.Empty() {
		return j.store.SavePending(cluster, server, nil)
	}
	raw, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("what is pending on %s: %w", server, err)
	}
	return j.store.SavePending(cluster, server, raw)
}

// witnessID is the server_id of the short streams that prove a set-up; it is
// outside of what init gives to servers and of what followers use.
const witnessID = 0xEFFFFFFE
