package config

import (
	"encoding/json"
	"fmt"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/repld/repld/internal/duration"
	"github.com/repld/repld/internal/hook"
)

// Key is one thing that a user can set.
type Key struct {
	// Name is the dotted name, for example "failover.probe_interval": also the
	// flag's name.
	Name string
	// Default as a user would write it.
	Default string
	// Kind is how a value looks, for --help and the documentation.
	Kind string
	// Help says in one line what the key does.
	Help string
	// check says what is wrong with a value; it sees no other key.
	check func(string) error
}

// Env is the name of the environment variable that sets the key.
func (k Key) Env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(k.Name, ".", "_"))
}

// Section is the part before the dot, "" for a key at the top.
func (k Key) Section() string {
	section, _, found := strings.Cut(k.Name, ".")
	if !found {
		return ""
	}
	return section
}

const (
	envPrefix = "REPLD_"
	// maxSocketPath is the room in sockaddr_un, less what a temporary name needs.
	maxSocketPath = 100
	minInterval   = 10 * time.Millisecond
	hour          = time.Hour
	day           = 24 * time.Hour
)

// Keys lists every key in the order of the documentation.
func Keys() []Key {
	return []Key{
		{"data_dir", "/var/lib/repld", "path", "directory of repld's state and certificate authority, made with mode 0700", absolute},
		{"listen", "unix:///run/repld/repld.sock", "unix:///path", "control socket for replctl", socket},
		{"socket_group", "", "group", "group that may use the control socket", group},
		{"log.level", "info", "debug|info|warn|error", "how much is logged", words("debug", "info", "warn", "error")},
		{"log.format", "text", "text|json", "how it is logged", words("text", "json")},
		{"durability", "semi-sync", "semi-sync", "what commits wait for in a new cluster", durability},
		{"semi_sync.ack_timeout", "10s", "duration", "how long no acker may be connected before repld lets commits go on without one", between(100*time.Millisecond, day)},
		{"semi_sync.server_timeout", "30s", "duration|never", "how long the server itself waits for an acker before it goes on without one", orNever(between(time.Second, 30*day))},
		{"failover.mode", "automatic", "automatic|manual", "whether a lost master is replaced by itself", words(ModeAutomatic, ModeManual)},
		{"failover.probe_interval", "100ms", "duration", "pause between two looks at each server", between(minInterval, time.Minute)},
		{"failover.probe_timeout", "1s", "duration", "how long one look may take", between(minInterval, time.Minute)},
		{"failover.refused_grace", "0s", "duration", "how long a refusing master is given to restart", between(0, hour)},
		{"failover.hang_timeout", "2s", "duration", "a master that is silent for this long, to repld and to every slave, is hung", between(2*minInterval, hour)},
		{"failover.async_without_fence", "false", "true|false", "replace a silent master whose commits wait for nobody although no hooks.fence stops it", words("true", "false")},
		{"failover.block_window", "5m", "duration", "no second automatic failover of a cluster within it; 0s switches the rule off", between(0, 30*day)},
		{"failover.switchover_timeout", "10s", "duration", "a switchover that has not opened the new master by then is rolled back", between(time.Second, time.Hour)},
		{"failover.max_lag", "10m", "duration", "a slave further behind is not promoted by itself", between(time.Second, 365*day)},
		{"rejoin.unacknowledged", "undo", "undo|keep", "extra transactions of a returned master that provably nobody was told OK for", words(UnacknowledgedUndo, UnacknowledgedKeep)},
		{"hooks.timeout", "10s", "duration", "how long a hook may run before it is killed", between(100*time.Millisecond, hour)},
		{"hooks.pre_failover", "[]", kindArgv, "program that runs before a failover changes anything, and vetoes it unless it exits with 0", argv},
		{"hooks.fence", "[]", kindArgv, "program that makes sure that the old master accepts no writes, before the new one is opened", argv},
		{"hooks.post_failover", "[]", kindArgv, "program that runs when the new master is open and the others follow it", argv},
		{"hooks.event", "[]", kindArgv, "program that is told of whatever happens", argv},
	}
}

// kindArgv is the [Key.Kind] of a list of words, written as JSON wherever it is
// not the file.
const kindArgv = "[program, argument, ...]"

// argv checks a list of words that is a program with its arguments, or empty.
func argv(v string) error {
	list, err := parseList(v)
	if err != nil || len(list) == 0 {
		return err
	}
	return hook.Check(list)
}

// parseList reads a JSON list of strings.
func parseList(v string) ([]string, error) {
	list := []string{}
	if err := json.Unmarshal([]byte(v), &list); err != nil || list == nil {
		return nil, fmt.Errorf("%q is not a list of words; write [\"/path/of/program\", \"argument\"]", v)
	}
	return list, nil
}

// words checks for one of a few words.
func words(allowed ...string) func(string) error {
	return func(v string) error {
		if slices.Contains(allowed, v) {
			return nil
		}
		return fmt.Errorf("%q is not one of: %s", v, strings.Join(allowed, ", "))
	}
}

func durability(v string) error {
	switch v {
	case "async", "semi-sync", "lossless":
		return nil
	}
	return fmt.Errorf("%q is not a durability; write async, semi-sync or lossless", v)
}

// between checks a length of time, bounds included.
func between(low, high time.Duration) func(string) error {
	return func(v string) error {
		d, err := duration.Parse(v)
		if err != nil {
			return err
		}
		if d < low || d > high {
			return fmt.Errorf("%s is out of bounds: at least %s, at most %s",
				v, duration.Format(low), duration.Format(high))
		}
		return nil
	}
}

func orNever(check func(string) error) func(string) error {
	return func(v string) error {
		if v == "never" {
			return nil
		}
		return check(v)
	}
}

func absolute(v string) error {
	if !filepath.IsAbs(v) {
		return fmt.Errorf("%q is not an absolute path", v)
	}
	return nil
}

func socket(v string) error {
	path, ok := strings.CutPrefix(v, "unix://")
	if !ok {
		return fmt.Errorf("%q is not a unix socket; write unix:///path", v)
	}
	if err := absolute(path); err != nil {
		return err
	}
	if len(path) > maxSocketPath {
		return fmt.Errorf("the path has %d bytes; a socket's path may have %d", len(path), maxSocketPath)
	}
	return nil
}

func group(v string) error {
	if v == "" {
		return nil
	}
	if _, err := strconv.ParseUint(v, 10, 31); err == nil {
		return nil
	}
	if _, err := user.LookupGroup(v); err != nil {
		return fmt.Errorf("there is no group %q on this host", v)
	}
	return nil
}
