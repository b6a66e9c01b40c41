package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"github.com/repld/repld/internal/duration"
	"github.com/repld/repld/internal/fault"
)

// DefaultFile is read if the user names no other; it may be missing.
const DefaultFile = "/etc/repld/repld.yaml"

// AddFlags adds --config and a flag of the same dotted name for every key.
func AddFlags(flags *pflag.FlagSet) {
	flags.String("config", DefaultFile, "configuration `file`")
	for _, k := range Keys() {
		flags.String(k.Name, k.Default, fmt.Sprintf("%s (`%s`)", k.Help, k.Kind))
	}
}

// Load reads the configuration from parsed flags (see [AddFlags]), the
// environment (as os.Environ gives it), the file and the defaults. Its errors
// are *fault.Error of kind Usage.
func Load(flags *pflag.FlagSet, environ []string) (*Config, error) {
	path, err := flags.GetString("config")
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	file, err := readFile(path, flags.Changed("config"))
	if err != nil {
		return nil, err
	}
	env, err := readEnv(environ)
	if err != nil {
		return nil, err
	}
	v := viper.New()
	// origin says for each key where its value was written, for errors.
	origin := map[string]string{}
	for _, k := range Keys() {
		v.SetDefault(k.Name, k.Default)
		origin[k.Name] = "the default of " + k.Name
		if line, ok := file.lines[k.Name]; ok {
			origin[k.Name] = fmt.Sprintf("%s, line %d: %s", path, line, k.Name)
		}
		// viper's own reading of the environment is not used: it would read the
		// process's, at any later time, and has no way to refuse an unknown name.
		if value, ok := env[k.Name]; ok {
			v.Set(k.Name, value)
			origin[k.Name] = "environment variable " + k.Env()
		}
		if flags.Changed(k.Name) {
			value, err := flags.GetString(k.Name)
			if err != nil {
				return nil, fmt.Errorf("read flag --%s: %w", k.Name, err)
			}
			v.Set(k.Name, value)
			origin[k.Name] = "flag --" + k.Name
		}
	}
	if err := v.MergeConfigMap(file.values); err != nil {
		return nil, fmt.Errorf("merge %s: %w", path, err)
	}
	return decode(v, origin)
}

// decode checks every value by itself, then all together.
func decode(v *viper.Viper, origin map[string]string) (*Config, error) {
	for _, k := range Keys() {
		if err := k.check(v.GetString(k.Name)); err != nil {
			return nil, badValue(origin[k.Name], err.Error())
		}
	}
	var c Config
	// UnmarshalExact: a key that has no field is a mistake in Keys.
	if err := v.UnmarshalExact(&c, viper.DecodeHook(mapstructure.DecodeHookFuncType(fromText))); err != nil {
		return nil, fmt.Errorf("decode configuration: %w", err)
	}
	if c.Failover.HangTimeout < 2*c.Failover.ProbeInterval {
		return nil, badValue(origin["failover.hang_timeout"], fmt.Sprintf(
			"%s is less than twice failover.probe_interval (%s): one lost probe would be a hung master",
			duration.Format(c.Failover.HangTimeout), duration.Format(c.Failover.ProbeInterval)))
	}
	if c.SemiSync.ServerTimeout < c.SemiSync.AckTimeout {
		return nil, badValue(origin["semi_sync.server_timeout"], fmt.Sprintf(
			"%s is less than semi_sync.ack_timeout (%s): the server would always give up before repld",
			duration.Format(c.SemiSync.ServerTimeout), duration.Format(c.SemiSync.AckTimeout)))
	}
	return &c, nil
}

// fromText reads lengths of time and lists of words.
func fromText(_, to reflect.Type, data any) (any, error) {
	text, ok := data.(string)
	switch {
	case !ok:
		return data, nil
	case to == reflect.TypeFor[[]string]():
		return parseList(text)
	case to != reflect.TypeFor[time.Duration]():
		return data, nil
	case text == "never":
		return Never, nil
	}
	return duration.Parse(text)
}

// readEnv picks the variables that set a key. A variable of our prefix that
// sets none is an error like an unknown key in the file: a failover.mode that
// is misspelt and ignored does the opposite of what the user wants. An empty
// variable is one that is not set.
func readEnv(environ []string) (map[string]string, error) {
	byEnv := map[string]string{}
	for _, k := range Keys() {
		byEnv[k.Env()] = k.Name
	}
	out := map[string]string{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if value == "" || !strings.HasPrefix(name, envPrefix) || isServiceLink(name) {
			continue
		}
		key, known := byEnv[name]
		if !known {
			return nil, unknownKey("environment variable "+name, name, envNames())
		}
		out[key] = value
	}
	return out, nil
}

// isServiceLink tells the variables that Kubernetes sets in every container for
// a service that happens to be called repld.
func isServiceLink(name string) bool {
	return strings.HasPrefix(name, envPrefix+"SERVICE_") || name == envPrefix+"PORT" ||
		strings.HasPrefix(name, envPrefix+"PORT_")
}

func envNames() []string {
	var out []string
	for _, k := range Keys() {
		out = append(out, k.Env())
	}
	return out
}

func keyNames() []string {
	var out []string
	for _, k := range Keys() {
		out = append(out, k.Name)
	}
	return out
}

func unknownKey(where, name string, known []string) error {
	do := "remove it; docs/configuration.md lists the keys"
	if near := nearest(name, known); near != "" {
		do = fmt.Sprintf("write %s, or remove it; docs/configuration.md lists the keys", near)
	}
	return &fault.Error{Kind: fault.Usage, Code: "config_unknown_key", What: where + ": there is no such key",
		Cause: "every key must be known, so that a misspelt one is not ignored", State: notStarted, Do: do}
}

func badValue(where, text string) error {
	return &fault.Error{Kind: fault.Usage, Code: "config_bad_value", What: where + ": bad value",
		Cause: text, State: notStarted, Do: "correct the value; docs/configuration.md lists the keys and their bounds"}
}

const notStarted = "repld did not start; nothing was changed"

// nearest is the known name within a few edits of name, "" if there is none.
func nearest(name string, known []string) string {
	best, bestDistance := "", max(2, len(name)/4)+1
	for _, k := range known {
		// A user often leaves out the section or writes it in another case.
		if _, last, ok := strings.Cut(k, "."); ok && strings.EqualFold(last, name) || strings.EqualFold(k, name) {
			return k
		}
		if d := distance(strings.ToLower(name), strings.ToLower(k)); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// distance is Levenshtein's.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		prev := slices.Clone(row)
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(prev[j+1]+1, row[j]+1, prev[j]+cost)
		}
	}
	return row[len(b)]
}
