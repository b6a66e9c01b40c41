package config

import "time"

// Config is everything a user can set. Each field's comment says what the key
// does, its default and its danger; [Default] holds the defaults.
type Config struct {
	// DataDir holds repld's state, its certificate authority and saved errant
	// transactions; made with mode 0700. Default /var/lib/repld. Losing it loses
	// the accounts and the lineage of all clusters.
	DataDir string `mapstructure:"data_dir"`
	// Listen is the control socket, unix:///ABSOLUTE/PATH. Default
	// unix:///run/repld/repld.sock. Whoever may write to it may do everything.
	Listen string `mapstructure:"listen"`
	// SocketGroup is the group that may use the control socket, by name or
	// number; default "", the group that repld runs with.
	SocketGroup string   `mapstructure:"socket_group"`
	Log         Log      `mapstructure:"log"`
	Durability  string   `mapstructure:"durability"`
	SemiSync    SemiSync `mapstructure:"semi_sync"`
	Failover    Failover `mapstructure:"failover"`
	Rejoin      Rejoin   `mapstructure:"rejoin"`
	Hooks       Hooks    `mapstructure:"hooks"`
}

// Log is how repld logs to stderr.
type Log struct {
	// Level is debug, info, warn or error; default info.
	Level string `mapstructure:"level"`
	// Format is text or json; default text.
	Format string `mapstructure:"format"`
}

// SemiSync is how long commits wait for an acker.
type SemiSync struct {
	// AckTimeout is how long no acker may be connected before repld lets commits
	// go on without one; default 10s. Shorter gives up the guarantee sooner,
	// longer stalls writes longer.
	AckTimeout time.Duration `mapstructure:"ack_timeout"`
	// ServerTimeout is how long the server itself waits before it goes on
	// without an acker, should repld be gone too; default 30s, [Never] for
	// never. Nothing is lost only if a cut-off master is fenced within it; with
	// never, a master that lost its acker and its repld stops writing for good.
	ServerTimeout time.Duration `mapstructure:"server_timeout"`
}

// Never stands for a semi_sync.server_timeout of "never". It is not the
// longest Duration, so that it can be added to a time and to others.
const Never = 100 * 365 * 24 * time.Hour

// Failover is when a master is given up and who may follow it.
type Failover struct {
	// Mode is automatic or manual; default automatic. In manual mode only
	// `replctl failover` promotes a slave.
	Mode string `mapstructure:"mode"`
	// ProbeInterval is the pause between two looks at each server; default 100ms.
	ProbeInterval time.Duration `mapstructure:"probe_interval"`
	// ProbeTimeout is how long one look may take; default 1s.
	ProbeTimeout time.Duration `mapstructure:"probe_timeout"`
	// RefusedGrace is how long a master that refuses connections is given to
	// restart; default 0s. All of it is added to the outage of a real failure.
	RefusedGrace time.Duration `mapstructure:"refused_grace"`
	// HangTimeout is how long a master may accept connections and not answer,
	// while no slave receives anything, before it is hung; default 2s. Too short
	// takes a stall for a death.
	HangTimeout time.Duration `mapstructure:"hang_timeout"`
	// AsyncWithoutFence lets a master be replaced by itself that may still serve
	// others and whose commits wait for nobody, although no hooks.fence makes sure
	// that it does not; default false. With true, what such a master goes on to
	// acknowledge is lost.
	AsyncWithoutFence bool `mapstructure:"async_without_fence"`
	// BlockWindow is how long after an automatic failover no second one starts
	// unless a person orders it; default 5m. 0s switches the rule off: a
	// cluster whose masters keep dying is then walked through server by server.
	BlockWindow time.Duration `mapstructure:"block_window"`
	// SwitchoverTimeout is how long a switchover may take to open the new master;
	// default 10s. Then it is rolled back and the old master goes on.
	SwitchoverTimeout time.Duration `mapstructure:"switchover_timeout"`
	// MaxLag is how far behind a slave may be and still be promoted by itself;
	// default 10m.
	MaxLag time.Duration `mapstructure:"max_lag"`
}

// Rejoin is what happens to a former master that comes back.
type Rejoin struct {
	// Unacknowledged is undo or keep; default undo. With undo, extra
	// transactions that provably nobody was told OK for are saved and undone;
	// with keep the server stays out until a person decides.
	Unacknowledged string `mapstructure:"unacknowledged"`
}

// Hooks are programs that take part in a change of master: each an argv list,
// the program first; no shell looks at it. Empty: none.
type Hooks struct {
	// Timeout is how long each may run before it and its process group are
	// killed; default 10s. A failover waits for pre_failover and fence.
	Timeout time.Duration `mapstructure:"timeout"`
	// PreFailover runs before a failover changes anything; anything but exit 0
	// vetoes it.
	PreFailover []string `mapstructure:"pre_failover"`
	// Fence runs in each failover before the new master is opened. Its exit 0
	// means: the old master can no longer accept writes. An untrue one makes two
	// masters.
	Fence []string `mapstructure:"fence"`
	// PostFailover runs when the new master is open and the others follow it.
	PostFailover []string `mapstructure:"post_failover"`
	// Event runs for whatever happens, one after the other.
	Event []string `mapstructure:"event"`
}

// The words of failover.mode and rejoin.unacknowledged.
const (
	ModeAutomatic      = "automatic"
	ModeManual         = "manual"
	UnacknowledgedUndo = "undo"
	UnacknowledgedKeep = "keep"
)

// Default is the configuration of a user who sets nothing.
func Default() *Config {
	return &Config{
		DataDir:    "/var/lib/repld",
		Listen:     "unix:///run/repld/repld.sock",
		Log:        Log{Level: "info", Format: "text"},
		Durability: "semi-sync",
		SemiSync:   SemiSync{AckTimeout: 10 * time.Second, ServerTimeout: 30 * time.Second},
		Failover: Failover{
			Mode:          ModeAutomatic,
			ProbeInterval: 100 * time.Millisecond,
			ProbeTimeout:  time.Second,
			HangTimeout:   2 * time.Second,
			BlockWindow:   5 * time.Minute,
			MaxLag:        10 * time.Minute,

			SwitchoverTimeout: 10 * time.Second,
		},
		Rejoin: Rejoin{Unacknowledged: UnacknowledgedUndo},
		Hooks:  Hooks{Timeout: 10 * time.Second, PreFailover: []string{}, Fence: []string{}, PostFailover: []string{}, Event: []string{}},
	}
}
