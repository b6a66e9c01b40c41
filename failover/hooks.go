package failover

import (
	"context"
	"time"

	"github.com/repld/repld/topology"
)

// Hook names one of the user's programs; see docs/hooks.md.
type Hook string

// The hooks, by the names that the configuration gives them.
const (
	// HookPreFailover runs before a failover changes anything, and may veto it.
	HookPreFailover Hook = "pre_failover"
	// HookFence runs in each failover before the new master is opened; its success
	// means that the old master can no longer accept writes.
	HookFence Hook = "fence"
	// HookPostFailover runs when the new master is open and the others follow it.
	HookPostFailover Hook = "post_failover"
	// HookEvent is told of whatever happens.
	HookEvent Hook = "event"
)

// Hooks runs the user's programs.
type Hooks interface {
	// Run runs a program to its end or its timeout. The output is the last part of
	// what it printed; err is nil if it exited with 0.
	Run(ctx context.Context, h Hook, call HookCall) (output string, err error)
	// Notify has HookEvent run for a call, after those that were notified before
	// it. It never waits.
	Notify(call HookCall)
}

// The names of what happens, [HookCall.Event] for HookEvent.
const (
	EventHealth      = "health"
	EventDegraded    = "degraded"
	EventRearmed     = "rearmed"
	EventBegun       = "operation_begun"
	EventEnded       = "operation_ended"
	EventWritable    = "two_writable"
	EventOneWritable = "one_writable"
	EventDeclined    = "failover_declined"
)

// HookCall is what a program gets as JSON on its standard input. Nothing in it is
// secret. What is not known, or does not apply, is null or left out.
type HookCall struct {
	// Event is the hook's own name, or what happened for HookEvent.
	Event   string    `json:"event"`
	Cluster string    `json:"cluster"`
	Time    time.Time `json:"time"`
	// Health and Previous are words of `replctl status`; Previous is "" at first.
	Health   Health `json:"health,omitempty"`
	Previous Health `json:"previous,omitempty"`
	// Master is the recorded one; Epoch the one that the operation begins, else the
	// present one.
	Master string `json:"master"`
	Epoch  uint64 `json:"epoch"`
	// OldMaster and NewMaster are of a change of master; NewMaster is null as long
	// as it is not certain.
	OldMaster *HookServer    `json:"old_master"`
	NewMaster *HookServer    `json:"new_master"`
	Operation *HookOperation `json:"operation,omitempty"`
	// Durability is the state of the master: armed, degraded or off.
	Durability topology.DurabilityState `json:"durability,omitempty"`
	// AtRisk is how many transactions only the master has, null if unknown.
	AtRisk   *uint64   `json:"transactions_at_risk"`
	Problems []Problem `json:"problems"`
	Evidence []string  `json:"evidence"`
}

// HookServer is a server in a [HookCall].
type HookServer struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

// HookOperation is an entry of the history in a [HookCall].
type HookOperation struct {
	ID     string                 `json:"id"`
	Kind   topology.OperationKind `json:"kind"`
	Result topology.Result        `json:"result"`
	Server string                 `json:"server,omitempty"`
	Detail string                 `json:"detail,omitempty"`
	// Lost is null if unknown.
	Lost     *uint64  `json:"lost_transactions"`
	OpenedMS *float64 `json:"opened_ms"`
}

// OperationOf tells of an operation in a [HookCall].
func OperationOf(op *topology.Operation) *HookOperation {
	return &HookOperation{ID: op.ID, Kind: op.Kind, Result: op.Result, Server: op.Server, Detail: op.Detail,
		Lost: op.LostTransactions, OpenedMS: op.OpenedMS}
}

// noHooks is what a loop without hooks works with.
type noHooks struct{}

func (noHooks) Run(context.Context, Hook, HookCall) (string, error) { return "", nil }
func (noHooks) Notify(HookCall)                                     {}

// hookServer names a server of a cluster; nil for "".
func hookServer(c *topology.Cluster, name string) *HookServer {
	if name == "" {
		return nil
	}
	out := &HookServer{Name: name}
	if s := c.Servers[name]; s != nil {
		out.Address = s.Address
	}
	return out
}

// newCall is a call about a cluster as it is known now.
func newCall(event string, in Input) HookCall {
	c := in.View.Cluster
	return HookCall{Event: event, Cluster: c.Name, Time: in.View.Now.UTC(), Master: c.Master, Epoch: c.Epoch,
		Durability: c.DurabilityState, Problems: []Problem{}, Evidence: []string{}}
}

// hookCall is what a hook other than HookEvent is told.
func hookCall(in Input, a Action) HookCall {
	call := newCall(string(a.Hook), in)
	c := in.View.Cluster
	for _, ch := range c.Changes {
		if a.Hook == HookPostFailover && ch.Operation == a.For {
			call.OldMaster, call.NewMaster, call.Epoch = hookServer(c, ch.OldMaster), hookServer(c, ch.NewMaster), ch.Epoch
			call.Operation = &HookOperation{ID: ch.Operation, Kind: topology.OperationKind(ch.Kind), Result: topology.ResultDone}
		}
	}
	if i := c.Intent; i != nil && a.Hook != HookPostFailover {
		call.OldMaster, call.NewMaster, call.Epoch = hookServer(c, i.OldMaster), hookServer(c, i.To), i.Epoch
		call.Operation = &HookOperation{ID: i.ID, Kind: topology.OperationKind(i.Kind), Result: topology.ResultRunning}
	}
	call.Evidence = append(call.Evidence, in.Verdict.Evidence...)
	return call
}
