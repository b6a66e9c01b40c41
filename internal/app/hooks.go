package app

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/internal/config"
	"github.com/repld/repld/internal/hook"
	"github.com/repld/repld/topology"
)

// Log keys of hooks.
const (
	logHook   = "hook"
	logEvent  = "event"
	logOutput = "output"
)

// waitingEvents is how many events wait for hooks.event at most: with a program
// that always runs into its timeout, the oldest is then 40 minutes old.
const waitingEvents = 256

// hooks runs the programs that are configured, for all clusters.
type hooks struct {
	argv    map[failover.Hook][]string
	timeout time.Duration
	queue   *hook.Queue
	log     *slog.Logger
}

var _ failover.Hooks = (*hooks)(nil)

func newHooks(c config.Hooks, log *slog.Logger) *hooks {
	h := &hooks{timeout: c.Timeout, log: log, argv: map[failover.Hook][]string{
		failover.HookPreFailover: c.PreFailover, failover.HookFence: c.Fence, failover.HookPostFailover: c.PostFailover, failover.HookEvent: c.Event,
	}}
	h.queue = hook.NewQueue(waitingEvents, func(_ hook.Call, output string, err error) {
		if err != nil {
			log.Warn("hooks.event failed", logError, err, logOutput, output)
		}
	})
	return h
}

// Run implements [failover.Hooks].
func (h *hooks) Run(ctx context.Context, name failover.Hook, call failover.HookCall) (string, error) {
	c, err := h.call(name, call)
	if err != nil {
		return "", err
	}
	return hook.Run(ctx, c)
}

// Notify implements [failover.Hooks].
func (h *hooks) Notify(call failover.HookCall) {
	if len(h.argv[failover.HookEvent]) == 0 {
		return
	}
	c, err := h.call(failover.HookEvent, call)
	if err != nil {
		h.log.Error("an event cannot be told", logCluster, call.Cluster, logEvent, call.Event, logError, err)
		return
	}
	if !h.queue.Add(c) {
		h.log.Error("hooks.event is too slow: an event is lost", logCluster, call.Cluster, logEvent, call.Event, "lost", h.queue.Lost())
	}
}

func (h *hooks) call(name failover.Hook, call failover.HookCall) (hook.Call, error) {
	text, err := json.Marshal(call)
	if err != nil {
		return hook.Call{}, fmt.Errorf("hooks.%s: %w", name, err)
	}
	return hook.Call{Argv: h.argv[name], Stdin: append(text, '\n'), Timeout: h.timeout, Env: environment(call)}, nil
}

// environment is the short form of a call.
func environment(call failover.HookCall) []string {
	var before, after failover.HookServer
	if call.OldMaster != nil {
		before = *call.OldMaster
	}
	if call.NewMaster != nil {
		after = *call.NewMaster
	}
	return []string{
		"REPLD_EVENT=" + call.Event, "REPLD_CLUSTER=" + call.Cluster,
		"REPLD_OLD_MASTER=" + before.Name, "REPLD_OLD_MASTER_ADDRESS=" + before.Address,
		"REPLD_NEW_MASTER=" + after.Name, "REPLD_NEW_MASTER_ADDRESS=" + after.Address,
		"REPLD_EPOCH=" + strconv.FormatUint(call.Epoch, 10),
	}
}

// ended tells of an operation that a verb or a rejoin has ended; c may be nil.
func (h *hooks) ended(c *topology.Cluster, op *topology.Operation) {
	call := failover.HookCall{Event: failover.EventEnded, Cluster: op.Cluster, Time: time.Now().UTC(), Epoch: op.Epoch, Operation: failover.OperationOf(op),
		Problems: []failover.Problem{}, Evidence: append([]string{}, op.Evidence...)}
	if c != nil {
		call.Master, call.Durability, call.Epoch = c.Master, c.DurabilityState, c.Epoch
	}
	h.Notify(call)
}
