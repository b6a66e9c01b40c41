package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/repld/repld/internal/fault"
)

// load reads a configuration the way cmd/repld does. file is the text of the
// file; environ and args as a process gets them.
func load(t *testing.T, file string, environ []string, args ...string) (*Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "repld.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("repld", pflag.ContinueOnError)
	AddFlags(flags)
	if err := flags.Parse(append([]string{"--config", path}, args...)); err != nil {
		t.Fatal(err)
	}
	return Load(flags, environ)
}

func TestExampleHoldsEveryKeyAtItsDefault(t *testing.T) {
	text, err := os.ReadFile("../../examples/repld.yaml")
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := parseFile("examples/repld.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range Keys() {
		if parsed.lines[k.Name] == 0 {
			t.Errorf("examples/repld.yaml lacks %s", k.Name)
		}
	}
	c, err := load(t, string(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default(), c); diff != "" {
		t.Errorf("examples/repld.yaml is not the defaults (-default +example):\n%s", diff)
	}
}

func TestDocumentationListsEveryKeyWithItsDefault(t *testing.T) {
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "| `") {
			rows++
		}
	}
	for _, k := range Keys() {
		shown := k.Default
		if shown == "" {
			shown = `""`
		}
		if want := "| `" + k.Name + "` | `" + shown + "` |"; !strings.Contains(string(text), want) {
			t.Errorf("docs/configuration.md lacks a row that begins %s", want)
		}
	}
	if rows != len(Keys()) {
		t.Errorf("docs/configuration.md has %d rows of keys, there are %d keys", rows, len(Keys()))
	}
}

func TestNothingSetGivesTheDefaults(t *testing.T) {
	for name, file := range map[string]string{"empty": "", "comment": "# nothing\n", "empty sections": "failover:\nlog: {}\n"} {
		c, err := load(t, file, []string{"PATH=/bin", "REPLD_FAILOVER_MODE="})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(Default(), c); diff != "" {
			t.Errorf("%s (-default +loaded):\n%s", name, diff)
		}
	}
}

func TestFlagBeatsEnvironmentBeatsFileBeatsDefault(t *testing.T) {
	file := "failover: {hang_timeout: 3s, max_lag: 7d, mode: manual}\nsemi_sync: {server_timeout: never}\n"
	env := []string{"REPLD_FAILOVER_HANG_TIMEOUT=4s", "REPLD_FAILOVER_MODE=automatic", "REPLD_SEMI_SYNC_ACK_TIMEOUT=20s"}
	c, err := load(t, file, env, "--failover.hang_timeout", "5s")
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Failover.HangTimeout = 5 * time.Second
	want.Failover.MaxLag = 7 * 24 * time.Hour
	want.SemiSync = SemiSync{AckTimeout: 20 * time.Second, ServerTimeout: Never}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEveryKeyCanBeSetInEachPlace(t *testing.T) {
	other := map[string]string{
		"data_dir": "/x", "listen": "unix:///x/y.sock", "socket_group": "0", "log.level": "debug", "log.format": "json",
		"durability": "semi-sync", "semi_sync.ack_timeout": "9s", "semi_sync.server_timeout": "never", "failover.mode": "manual",
		"failover.probe_interval": "200ms", "failover.probe_timeout": "2s", "failover.refused_grace": "1s", "failover.hang_timeout": "3s",
		"failover.block_window": "0s", "failover.max_lag": "1m", "failover.switchover_timeout": "20s", "rejoin.unacknowledged": "keep",
		"failover.async_without_fence": "true", "hooks.timeout": "1s", "hooks.pre_failover": `["/bin/true"]`, "hooks.fence": `["/bin/sh", "-c", "x y"]`,
		"hooks.post_failover": `["sh"]`, "hooks.event": `["/bin/cat"]`,
	}
	for _, k := range Keys() {
		value, ok := other[k.Name]
		if !ok {
			t.Errorf("%s: this test has no value for it", k.Name)
			continue
		}
		file := k.Name + ": " + value + "\n"
		if section, leaf, nested := strings.Cut(k.Name, "."); nested {
			file = section + ":\n  " + leaf + ": " + value + "\n"
		}
		fromFile, err := load(t, file, nil)
		if err != nil {
			t.Errorf("%s in the file: %v", k.Name, err)
			continue
		}
		fromEnv, err := load(t, "", []string{k.Env() + "=" + value})
		if err != nil {
			t.Errorf("%s in the environment: %v", k.Name, err)
		}
		fromFlag, err := load(t, "", nil, "--"+k.Name+"="+value)
		if err != nil {
			t.Errorf("%s as a flag: %v", k.Name, err)
		}
		if value != k.Default && cmp.Equal(fromFile, Default()) {
			t.Errorf("%s in the file changes nothing", k.Name)
		}
		if diff := cmp.Diff(fromFile, fromEnv); diff != "" {
			t.Errorf("%s: file and environment differ:\n%s", k.Name, diff)
		}
		if diff := cmp.Diff(fromFile, fromFlag); diff != "" {
			t.Errorf("%s: file and flag differ:\n%s", k.Name, diff)
		}
	}
}

func TestMistakesNameKeyAndPlaceAndWhatToDo(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		env  []string
		args []string
		want []string
	}{
		"unknown key":                 {file: "log: {level: info}\nfailver: {mode: manual}\n", want: []string{"line 2: failver", "no such key", "do: write failover"}},
		"unknown nested key":          {file: "failover:\n  mode: manual\n  hang_timeuot: 2s\n", want: []string{"line 3: failover.hang_timeuot", "do: write failover.hang_timeout"}},
		"key without its section":     {file: "mode: manual\n", want: []string{"line 1: mode", "do: write failover.mode"}},
		"another case":                {file: "Failover: {mode: manual}\n", want: []string{"line 1: Failover", "do: write failover"}},
		"key of a later version":      {file: "data_dir: /x\nhttp: 127.0.0.1:8420\n", want: []string{"line 2: http", "no such key"}},
		"set twice":                   {file: "durability: semi-sync\nlog: {}\ndurability: semi-sync\n", want: []string{"line 3: durability", "first in line 1"}},
		"a durability":                {file: "\ndurability: strong\n", want: []string{"line 2: durability", `"strong" is not a durability`}},
		"a durability by environment": {env: []string{"REPLD_DURABILITY=acid"}, want: []string{"environment variable REPLD_DURABILITY", `"acid" is not a durability`}},
		"number without unit":         {file: "failover:\n  hang_timeout: 2\n", want: []string{"line 2: failover.hang_timeout", "has no unit", "2s"}},
		"a list":                      {file: "failover:\n  mode: [manual]\n", want: []string{"line 2: failover.mode", "single value"}},
		"no value":                    {file: "durability:\n", want: []string{"line 1: durability", "no value"}},
		"section is a word":           {file: "failover: manual\n", want: []string{"line 1: failover", "keys and values"}},
		"bad word in flag":            {args: []string{"--failover.mode", "auto"}, want: []string{"flag --failover.mode", "automatic, manual"}},
		"zero interval":               {file: "failover: {probe_interval: 0s}\n", want: []string{"line 1: failover.probe_interval", "at least 10ms"}},
		"hang under 2 probes":         {file: "failover:\n  probe_interval: 1s\n", args: []string{"--failover.hang_timeout=1900ms"}, want: []string{"flag --failover.hang_timeout", "1.9s is less than twice", "(1s)"}},
		"hang default under 2 probes": {file: "failover:\n  probe_interval: 5s\n", want: []string{"failover.hang_timeout", "less than twice failover.probe_interval (5s)"}},
		"server gives up first":       {file: "semi_sync:\n  server_timeout: 5s\n", want: []string{"line 2: semi_sync.server_timeout", "less than semi_sync.ack_timeout (10s)"}},
		"unknown variable":            {env: []string{"REPLD_FAILOVER_MOD=manual"}, want: []string{"REPLD_FAILOVER_MOD", "do: write REPLD_FAILOVER_MODE"}},
		"relative data_dir":           {file: "data_dir: state\n", want: []string{"line 1: data_dir", "absolute"}},
		"tcp socket":                  {file: "listen: 127.0.0.1:99\n", want: []string{"line 1: listen", "unix:///path"}},
		"long socket":                 {file: "listen: unix:///" + strings.Repeat("x", 120) + "\n", want: []string{"line 1: listen", "121 bytes"}},
		"no such group":               {file: "socket_group: no-such-group-here\n", want: []string{"line 1: socket_group", "no group"}},
		"broken YAML":                 {file: "log:\n\tlevel: info\n", want: []string{"line 2", "do: correct the file"}},
		"two documents":               {file: "durability: semi-sync\n---\ndurability: semi-sync\n", want: []string{"line 2", "second document"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, c.file, c.env, c.args...)
			var f *fault.Error
			if !errors.As(err, &f) {
				t.Fatalf("got %v, want a fault", err)
			}
			if f.Kind != fault.Usage || f.State == "" || f.Do == "" || f.Cause == "" {
				t.Errorf("kind %d, cause %q, state %q, do %q", f.Kind, f.Cause, f.State, f.Do)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

func TestKubernetesServiceLinksAreNotKeys(t *testing.T) {
	env := []string{"REPLD_SERVICE_HOST=10.0.0.1", "REPLD_PORT=tcp://10.0.0.1:80", "REPLD_PORT_80_TCP=x"}
	if _, err := load(t, "", env); err != nil {
		t.Error(err)
	}
}

func TestMissingFileIsAnErrorOnlyIfTheUserNamedIt(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none.yaml")
	named := pflag.NewFlagSet("repld", pflag.ContinueOnError)
	AddFlags(named)
	if err := named.Parse([]string{"--config", missing}); err != nil {
		t.Fatal(err)
	}
	_, err := Load(named, nil)
	if err == nil || !strings.Contains(err.Error(), missing) || fault.As(err).Kind != fault.Usage {
		t.Errorf("named and missing: %v", err)
	}
	unnamed, err := readFile(missing, false)
	if err != nil || len(unnamed.values) != 0 {
		t.Errorf("not named and missing: %v, %v", unnamed, err)
	}
}

// A hook is a list of words in the file, JSON elsewhere; the program must be one
// that can be run.
func TestHooksAreLists(t *testing.T) {
	c, err := load(t, "hooks:\n  fence: [/bin/sh, -c, 'exit 0', 5]\n  event:\n  - sh\n  - a b\n", []string{`REPLD_HOOKS_PRE_FAILOVER=["/bin/true"]`},
		"--hooks.post_failover", `["/bin/false", "x"]`)
	if err != nil {
		t.Fatal(err)
	}
	want := Hooks{Timeout: 10 * time.Second, PreFailover: []string{"/bin/true"}, Fence: []string{"/bin/sh", "-c", "exit 0", "5"},
		PostFailover: []string{"/bin/false", "x"}, Event: []string{"sh", "a b"}}
	if diff := cmp.Diff(want, c.Hooks); diff != "" {
		t.Error(diff)
	}
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for value, says := range map[string]string{
		"[/nonexistent/fence]": "no such file", "[" + plain + "]": "permission denied", "[./fence]": "absolute", "/bin/sh": "takes a list",
		"[[/bin/sh]]": "one word", "": "takes a list", "[/bin/sh, null]": "one word", "['']": "cannot be run",
	} {
		_, err := load(t, "log:\n  level: info\nhooks:\n  fence: "+value+"\n", nil)
		if err == nil || !strings.Contains(err.Error(), "line 4: hooks.fence") || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", value, err)
		}
	}
	if _, err := load(t, "", []string{"REPLD_HOOKS_FENCE=/bin/sh"}); err == nil || !strings.Contains(err.Error(), "REPLD_HOOKS_FENCE") {
		t.Errorf("%v", err)
	}
	if c, err := load(t, "failover: {async_without_fence: true}\n", nil); err != nil || !c.Failover.AsyncWithoutFence {
		t.Errorf("%+v, %v", c, err)
	}
}
