package failover

import "time"

// Policy is what the user has configured about failover. Its defaults are in
// internal/config; zero values are not sensible defaults.
type Policy struct {
	// Automatic is failover.mode: automatic. Without it only a person starts one.
	Automatic bool
	// RefusedGrace is how long a refusing master is given to restart.
	RefusedGrace time.Duration
	// HangTimeout is how long a master may stay silent before it is hung.
	HangTimeout time.Duration
	// AsyncWithoutFence allows an automatic failover in async without a fence hook.
	AsyncWithoutFence bool
	// BlockWindow is how long after an automatic failover no second one starts
	// unless acknowledged; 0 switches the rule off.
	BlockWindow time.Duration
	// SwitchoverTimeout is when a switchover that has not opened the new master is
	// rolled back.
	SwitchoverTimeout time.Duration
	// MaxLag is how far behind a slave may be and still be promoted by itself.
	MaxLag time.Duration
	// AckTimeout is how long semi-sync may have no acker before repld degrades it.
	AckTimeout time.Duration
	// ServerTimeout is rpl_semi_sync_master_timeout in semi-sync.
	ServerTimeout time.Duration
	// ProbeInterval and ProbeTimeout pace the monitor.
	ProbeInterval time.Duration
	ProbeTimeout  time.Duration
	// Hooks tells which programs are configured.
	Hooks ConfiguredHooks
	// UndoUnacknowledged is rejoin.unacknowledged: undo.
	UndoUnacknowledged bool
}

// ConfiguredHooks tells which of the user's programs there are to run.
type ConfiguredHooks struct{ PreFailover, Fence, PostFailover bool }
