package provision

import (
	"fmt"
	"strings"

	"github.com/repld/repld/internal/fault"
)

// Result is how a check came out, in doctor's words.
type Result string

// A warning is shown and the verb goes on; a failure is a refusal.
const (
	OK   Result = "ok"
	Warn Result = "warn"
	Fail Result = "fail"
)

// Check is one row of the preflight list.
type Check struct {
	Code   string `json:"code"`
	Server string `json:"server"`
	Result Result `json:"result"`
	// Text holds the measured values.
	Text string `json:"text"`
	// Fix is what would change the result, "" if it is ok.
	Fix string `json:"fix,omitempty"`
	// Kind decides the exit code of a failure: Refused unless a rule says so.
	Kind fault.Kind `json:"-"`
}

func pass(format string, args ...any) Check {
	return Check{Result: OK, Text: fmt.Sprintf(format, args...)}
}

func warn(fix, format string, args ...any) Check {
	return Check{Result: Warn, Text: fmt.Sprintf(format, args...), Fix: fix}
}

func refuse(fix, format string, args ...any) Check {
	return Check{Result: Fail, Text: fmt.Sprintf(format, args...), Fix: fix, Kind: fault.Refused}
}

// as changes the kind of a failure.
func (c Check) as(k fault.Kind) Check {
	c.Kind = k
	return c
}

// Rule judges one aspect of a server. It is pure.
type Rule struct {
	Code  string
	Judge func(Request, Facts, Context) Check
}

// Judge applies rules in order. A server that fails the first rules (its
// version, the privileges) is judged by the others nevertheless: the user gets
// all that must be put right at once.
func Judge(rules []Rule, r Request, f Facts, c Context) []Check {
	out := make([]Check, 0, len(rules))
	for _, rule := range rules {
		row := rule.Judge(r, f, c)
		row.Code, row.Server = rule.Code, r.Name
		out = append(out, row)
	}
	return out
}

// Refusal turns the failures among checks into one fault, nil if there are
// none. Its code and exit code are the first failure's.
func Refusal(verb, server string, checks []Check) error {
	var causes, fixes []string
	var first *Check
	for i := range checks {
		if checks[i].Result != Fail {
			continue
		}
		if first == nil {
			first = &checks[i]
		}
		causes = append(causes, checks[i].Code+": "+checks[i].Text)
		if checks[i].Fix != "" {
			fixes = append(fixes, checks[i].Fix)
		}
	}
	if first == nil {
		return nil
	}
	return &fault.Error{
		Kind: first.Kind, Code: first.Code, What: verb + " is refused", Server: server,
		Cause: strings.Join(causes, "; "), State: "nothing was changed", Do: strings.Join(fixes, "; "),
	}
}

// some prints at most six of a list.
func some[T fmt.Stringer](list []T) string {
	var words []string
	for i, t := range list {
		if i == 6 {
			words = append(words, fmt.Sprintf("and %d more", len(list)-6))
			break
		}
		words = append(words, t.String())
	}
	return strings.Join(words, ", ")
}
