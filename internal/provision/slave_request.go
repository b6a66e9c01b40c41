package provision

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/repld/repld/internal/mysql"
	"github.com/repld/repld/topology"
)

// CloneMode says where a new slave's data comes from.
type CloneMode string

// CloneAuto copies if the master holds anything; CloneDump always copies;
// CloneNone takes the data that is there, whose position is checked.
const (
	CloneAuto CloneMode = "auto"
	CloneDump CloneMode = "dump"
	CloneNone CloneMode = "none"
)

// SlaveRequest is what init slave is asked to do.
type SlaveRequest struct {
	Request
	// Source names the slave to replicate from; "", or its name, for the master.
	Source string
	// Clone is "" for auto.
	Clone CloneMode
	// ReplaceData is the consent to destroy foreign data on the server.
	ReplaceData bool
	// Delay is MASTER_DELAY, in whole seconds.
	Delay time.Duration
	// ReplicateDoDB are the schemas that are replicated; empty for all.
	ReplicateDoDB []string
	// SkipErrors is slave_skip_errors: error numbers with commas, or "all".
	SkipErrors string
}

var skipForm = regexp.MustCompile(`^(all|[0-9]{4,5}(,[0-9]{4,5})*)$`)

// Normalize fills in defaults and checks what can be checked without a server.
func (r *SlaveRequest) Normalize() error {
	if err := r.Request.Normalize(); err != nil {
		return err
	}
	switch r.Clone {
	case "":
		r.Clone = CloneAuto
	case CloneAuto, CloneDump, CloneNone:
	default:
		return usage("bad_clone", fmt.Sprintf("%q is not a way to get data", r.Clone), "the value is not one of those that exist", "use --clone auto, dump or none")
	}
	if r.Clone == CloneNone && r.ReplaceData {
		return usage("bad_clone", "--replace-data contradicts --clone none", "the one keeps the data that is there, the other replaces it", "give one of them")
	}
	if r.Delay < 0 || r.Delay%time.Second != 0 || r.Delay > 1<<31*time.Second {
		return usage("bad_delay", fmt.Sprintf("a delay of %s cannot be had", r.Delay), "the server counts whole seconds", "give --delay in whole seconds, for example 1h")
	}
	for _, db := range r.ReplicateDoDB {
		if db == "" || mysql.IsSystemSchema(db) || strings.ContainsAny(db, ",\n\r\x00") {
			return usage("bad_replicate_do_db", fmt.Sprintf("%q cannot be a replicated schema", db), "the value is not one of those that exist", "name a schema of your own in --replicate-do-db")
		}
	}
	r.SkipErrors = strings.ToLower(strings.ReplaceAll(r.SkipErrors, " ", ""))
	if r.SkipErrors != "" && !skipForm.MatchString(r.SkipErrors) {
		return usage("bad_skip_errors", fmt.Sprintf("%q is not a list of errors", r.SkipErrors), "the value is not one of those that exist", "give --skip-errors as error numbers with commas, or all")
	}
	r.SkipErrors = sortedNumbers(r.SkipErrors)
	r.also = r.slaveSettings()
	return nil
}

// slaveSettings are the lines that only this slave has. The filter stands in
// the file although it is also set live: a restart must not lose it.
func (r *SlaveRequest) slaveSettings() []Setting {
	var out []Setting
	for _, db := range r.ReplicateDoDB {
		out = append(out, Setting{Option: "replicate-wild-do-table", Value: wildPattern(db), When: Later,
			Why: "only " + db + " is replicated; the rule looks at the table that is changed, not at the current schema"})
	}
	if r.SkipErrors != "" {
		out = append(out, Setting{Option: "slave-skip-errors", Variable: "slave_skip_errors", Value: r.SkipErrors, Want: skipWant(r.SkipErrors), When: Restart,
			Why: "asked for; the server silently differs from its master afterwards and is never promoted"})
	}
	return out
}

// sortedNumbers writes a list of numbers as the server shows it; other words
// stay.
func sortedNumbers(list string) string {
	words := strings.Split(list, ",")
	slices.SortFunc(words, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	return strings.Join(slices.Compact(words), ",")
}

// skipWant is how the server shows the value: in upper case for all.
func skipWant(v string) string { return strings.ToUpper(v) }

// wildPattern is a schema's replicate-wild-do-table rule.
func wildPattern(db string) string {
	return strings.NewReplacer(`\`, `\\`, `_`, `\_`, `%`, `\%`).Replace(db) + ".%"
}

// neverPromotable tells whether the slave that is asked for could never be the
// master, and so is no acker.
func (r *SlaveRequest) neverPromotable() bool {
	s := topology.Server{Promotion: r.Promotion, Delay: r.Delay, ReplicateDoDB: r.ReplicateDoDB, SkipErrors: r.SkipErrors}
	return len(s.NeverPromotable()) > 0
}
