package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/test/rig"
)

// programs are real hooks: scripts that keep what they get in a folder.
type programs struct {
	t   *testing.T
	dir string
}

func newPrograms(t *testing.T) *programs { return &programs{t: t, dir: t.TempDir()} }

func (p *programs) path(name string) string { return filepath.Join(p.dir, name) }

// hook writes a script that keeps its input and environment, then does what is
// said, and gives its line in repld.yaml.
func (p *programs) hook(name, then string) string {
	p.t.Helper()
	text := fmt.Sprintf("#!/bin/sh\ncat > %[1]s.$$; env > %[1]s.env.$$; mv %[1]s.env.$$ %[1]s.env; cat %[1]s.$$ >> %[1]s.json; rm %[1]s.$$\n%[2]s\n", p.path(name), then)
	if err := os.WriteFile(p.path(name), []byte(text), 0o755); err != nil {
		p.t.Fatal(err)
	}
	return fmt.Sprintf("  %s: [%s, %s]", name, p.path(name), p.dir)
}

// call is what the tests look at of a hook's input.
type call struct {
	Event     string         `json:"event"`
	Cluster   string         `json:"cluster"`
	Health    string         `json:"health"`
	Previous  string         `json:"previous"`
	Master    string         `json:"master"`
	Epoch     uint64         `json:"epoch"`
	OldMaster map[string]any `json:"old_master"`
	NewMaster map[string]any `json:"new_master"`
	Operation *struct {
		ID, Kind, Result string
	} `json:"operation"`
	AtRisk   *uint64       `json:"transactions_at_risk"`
	Problems []api.Problem `json:"problems"`
}

// calls are the inputs of all runs so far.
func (p *programs) calls(name string) []call {
	p.t.Helper()
	text, err := os.ReadFile(p.path(name) + ".json")
	if err != nil && !os.IsNotExist(err) {
		p.t.Fatal(err)
	}
	var out []call
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			break // being written
		}
		var c call
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			p.t.Fatalf("%s: %v: %s", name, err, line)
		}
		out = append(out, c)
	}
	return out
}

func (p *programs) waitCall(name string, ok func(call) bool) call {
	p.t.Helper()
	var found call
	mariadb.Eventually(p.t, patience, func() error {
		all := p.calls(name)
		if i := slices.IndexFunc(all, ok); i >= 0 {
			found = all[i]
			return nil
		}
		return fmt.Errorf("no such call of %s among %+v", name, all)
	})
	return found
}

// noSecrets makes sure that no password of repld's or of the administrator's
// reached a hook, by its input or its environment.
func (p *programs) noSecrets(r *rig.Rig) {
	p.t.Helper()
	admin, err := os.ReadFile(r.Servers[0].PasswordFile())
	if err != nil {
		p.t.Fatal(err)
	}
	files, err := filepath.Glob(p.path("*"))
	if err != nil {
		p.t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			p.t.Fatal(err)
		}
		if s := strings.TrimSpace(string(admin)); s != "" && strings.Contains(string(text), s) || strings.Contains(strings.ToLower(string(text)), "password") {
			p.t.Errorf("%s holds a secret:\n%s", f, text)
		}
		if !strings.HasSuffix(f, ".env") {
			continue
		}
		for line := range strings.Lines(string(text)) {
			name, _, _ := strings.Cut(line, "=")
			if !slices.Contains([]string{"PATH", "HOME", "LANG", "PWD", "OLDPWD", "SHLVL", "_"}, name) && !strings.HasPrefix(name, "REPLD_") {
				p.t.Errorf("%s: a hook sees %s", f, line)
			}
		}
	}
}

// hookStep is the last run of a hook in a history entry.
func hookStep(op *api.Operation, name string) *api.Step {
	for i := len(op.Steps) - 1; i >= 0; i-- {
		if op.Steps[i].Name == "hook:"+name {
			return &op.Steps[i]
		}
	}
	return nil
}
