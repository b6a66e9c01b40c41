package app

import (
	"github.com/repld/repld/failover"
	"github.com/repld/repld/internal/config"
)

// policy is what is configured, as the rules of failover take it.
func policy(c *config.Config) failover.Policy {
	return failover.Policy{
		Automatic:          c.Failover.Mode == config.ModeAutomatic,
		RefusedGrace:       c.Failover.RefusedGrace,
		HangTimeout:        c.Failover.HangTimeout,
		AsyncWithoutFence:  c.Failover.AsyncWithoutFence,
		BlockWindow:        c.Failover.BlockWindow,
		MaxLag:             c.Failover.MaxLag,
		SwitchoverTimeout:  c.Failover.SwitchoverTimeout,
		AckTimeout:         c.SemiSync.AckTimeout,
		ServerTimeout:      c.SemiSync.ServerTimeout,
		ProbeInterval:      c.Failover.ProbeInterval,
		ProbeTimeout:       c.Failover.ProbeTimeout,
		UndoUnacknowledged: c.Rejoin.Unacknowledged == config.UnacknowledgedUndo,
		Hooks: failover.ConfiguredHooks{
			PreFailover: len(c.Hooks.PreFailover) > 0, Fence: len(c.Hooks.Fence) > 0, PostFailover: len(c.Hooks.PostFailover) > 0,
		},
	}
}
