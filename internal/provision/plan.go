package provision

import (
	"fmt"
	"slices"
	"strings"

	"github.com/repld/repld/internal/mysql"
	"github.com/repld/repld/topology"
)

// The codes of steps, in the order in which they are taken.
const (
	StepCertificate = "certificate"
	StepConfig      = "write_config"
	StepLive        = "set_live"
	StepRestart     = "restart"
	StepAccounts    = "create_accounts"
	StepAnnounce    = "announce"
	StepOpen        = "open"
	StepProve       = "prove"
)

// Step is one line of a plan.
type Step struct {
	Code   string `json:"code"`
	Server string `json:"server"`
	Text   string `json:"text"`
	// Outage is true if clients notice it.
	Outage bool `json:"outage,omitempty"`
}

// Plan is what a verb would do to one server. It is a pure function of what was
// measured and asked.
type Plan struct {
	Verb   string  `json:"verb"`
	Server string  `json:"server"`
	Checks []Check `json:"checks"`
	Steps  []Step  `json:"steps"`
	// Outage names what clients notice, "" if nothing.
	Outage string `json:"outage,omitempty"`
	// Question is what a person must agree to first, "" if nothing.
	Question string `json:"question,omitempty"`
	Needs    Needs  `json:"-"`
}

// PlanMaster plans init master.
func PlanMaster(r Request, f Facts, c Context) Plan {
	plan := Plan{Verb: "init master", Server: r.Name, Checks: Judge(MasterRules(), r, f, c)}
	plan.Needs = NeedsOf(topology.RoleMaster, r, f, c)
	plan.configSteps(r, f)
	if c.Cluster.Master == r.Name && !accountsMissing(f) {
		return plan
	}
	plan.add(StepAccounts, "create repld's accounts '%s' and '%s' with the fewest privileges that do and TLS required; slaves will get them by replication", UserRepld, UserReplication)
	plan.add(StepAnnounce, "create and write the table repld.cluster")
	if f.On("read_only") || len(plan.restarts()) > 0 {
		plan.add(StepOpen, "make it writable")
	}
	plan.add(StepProve, "log in with repld's own account over verified TLS; write a row, see it in the binary log, remove it")
	return plan
}

// configSteps are the steps that any role needs for its configuration.
func (p *Plan) configSteps(r Request, f Facts) {
	n := p.Needs
	if n.Certificate {
		p.add(StepCertificate, "make a certificate for %s and deliver it to %s", f.Host, TLSOf(r, f).Cert)
	}
	if n.WriteFile {
		p.add(StepConfig, "write the drop-in %s", placeName(f.Places))
	}
	restarts := p.restarts()
	switch {
	case len(restarts) > 0:
		p.add(StepRestart, "restart it (%s), for %s", commandText(f.Places), strings.Join(restarts, ", "))
		p.Steps[len(p.Steps)-1].Outage = true
		p.Outage = fmt.Sprintf("%s is restarted: its connections end, nothing answers until it is back, and it refuses writes until the last steps are done", r.Name)
		if r.Restart == RestartAsk {
			p.Question = fmt.Sprintf("Restart %s now?", r.Name)
		}
	case len(n.Live) > 0 || n.Reload:
		text := "set without a restart: " + describeSettings(n.Live, f)
		if n.Reload {
			text += "; load the new certificate"
		}
		p.add(StepLive, "%s", text)
	}
}

// restarts says what a restart is needed for, nothing if none is.
func (p *Plan) restarts() []string {
	var out []string
	for _, s := range p.Needs.Restart {
		if !strings.HasPrefix(s.Option, "ssl-") {
			out = append(out, s.Variable)
		} else if !slices.Contains(out, "TLS") {
			out = append(out, "TLS")
		}
	}
	return out
}

func (p *Plan) add(code, format string, args ...any) {
	p.Steps = append(p.Steps, Step{Code: code, Server: p.Server, Text: fmt.Sprintf(format, args...)})
}

func placeName(p Places) string {
	if len(p.ConfigCommand) > 0 {
		return "by " + quoteArgs(p.ConfigCommand)
	}
	return p.ConfigFile
}

func commandText(p Places) string {
	if len(p.RestartCommand) == 0 {
		return "by hand"
	}
	return quoteArgs(p.RestartCommand)
}

// quoteArgs shows an argument list so that it could be typed.
func quoteArgs(argv []string) string {
	words := make([]string, len(argv))
	for i, a := range argv {
		words[i] = a
		if a == "" || strings.ContainsAny(a, " \t'\"\\$&|;<>()*?") {
			words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// accountsMissing tells whether repld's accounts are not all there. Without the
// right to look nothing is known to be missing.
func accountsMissing(f Facts) bool {
	if len(f.Logins) == 0 {
		return false
	}
	for _, user := range []string{UserRepld, UserReplication} {
		for _, host := range accountHosts(f) {
			if !slices.ContainsFunc(f.Logins, func(l mysql.Login) bool { return l.User == user && l.Host == host }) {
				return true
			}
		}
	}
	return false
}

// accountHosts are the hosts that repld's accounts are made for.
func accountHosts(f Facts) []string { return append([]string{"%"}, shadowHosts(f)...) }

// Text is the plan for a person: the checks that are not ok, the steps, and the
// outage they mean.
func (p *Plan) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", p.Verb, p.Server)
	for _, c := range p.Checks {
		if c.Result == OK {
			continue
		}
		fmt.Fprintf(&b, "  %-4s  %s: %s", c.Result, c.Code, c.Text)
		if c.Fix != "" {
			fmt.Fprintf(&b, " [%s]", c.Fix)
		}
		b.WriteByte('\n')
	}
	if len(p.Steps) == 0 {
		b.WriteString("  nothing to do\n")
	}
	for i, s := range p.Steps {
		fmt.Fprintf(&b, "  %d. %s: %s\n", i+1, s.Server, s.Text)
	}
	if p.Outage != "" {
		fmt.Fprintf(&b, "  outage: %s\n", p.Outage)
	}
	return b.String()
}
