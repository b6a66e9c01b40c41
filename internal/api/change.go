package api

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/repld/repld/internal/fault"
)

// Consent is in every request for a change.
type Consent struct {
	// DryRun asks for the plan and changes nothing.
	DryRun bool `json:"dry_run,omitempty"`
	// Confirmed is the user's answer to the plan's question. Without it a plan
	// that asks one is refused with a fault of kind Unconfirmed.
	Confirmed bool `json:"confirmed,omitempty"`
}

// Admin is the administrator's login that init uses once.
type Admin struct {
	User     string `json:"user,omitempty"`
	Password string `json:"password,omitempty"`
	// Socket is a path on repld's host, for a login by unix_socket.
	Socket string `json:"socket,omitempty"`
}

// InitRequest asks for `init master` or `init slave`.
type InitRequest struct {
	Consent
	Name    string `json:"name"`
	Address string `json:"address"`
	Admin   Admin  `json:"admin"`
	// ServerID is 0 to keep a unique one or take the next free one.
	ServerID uint32 `json:"server_id,omitempty"`
	// ConfigFile is the drop-in's path, "" for the default of a local server.
	ConfigFile     string   `json:"config_file,omitempty"`
	ConfigCommand  []string `json:"config_command,omitempty"`
	RestartCommand []string `json:"restart_command,omitempty"`
	// Restart is now, never, or "" to ask.
	Restart string `json:"restart,omitempty"`
	// SSLCA, SSLCert and SSLKey are paths in the server's file system.
	SSLCA   string `json:"ssl_ca,omitempty"`
	SSLCert string `json:"ssl_cert,omitempty"`
	SSLKey  string `json:"ssl_key,omitempty"`
	// BinlogFormat is mixed, row, or "" for the flavour's default.
	BinlogFormat string `json:"binlog_format,omitempty"`
	// Promotion is prefer, neutral, avoid, never, or "" for neutral.
	Promotion string `json:"promotion,omitempty"`
	// Slave holds what only a slave takes; nil asks for a master.
	Slave *SlaveOptions `json:"slave,omitempty"`
}

// SlaveOptions are what only `init slave` takes.
type SlaveOptions struct {
	// Source is the slave to replicate from; "" for the master.
	Source string `json:"source,omitempty"`
	// Clone is auto, dump, none, or "" for auto.
	Clone string `json:"clone,omitempty"`
	// ReplaceData lets foreign data on the slave be destroyed.
	ReplaceData bool `json:"replace_data,omitempty"`
	// DelayMS is MASTER_DELAY in milliseconds; servers take whole seconds.
	DelayMS int64 `json:"delay_ms,omitempty"`
	// ReplicateDoDB are the only schemas to replicate; empty for all.
	ReplicateDoDB []string `json:"replicate_do_db,omitempty"`
	// SkipErrors is a list of error numbers, or "all".
	SkipErrors string `json:"skip_errors,omitempty"`
}

// AdoptRequest asks for `adopt`: of a server that repld does not know, which
// needs the same as init, or, with the name alone, of a promotion made by hand.
type AdoptRequest struct{ InitRequest }

// Check is like [InitRequest.Check], but the address may be left out.
func (r *AdoptRequest) Check() error {
	if err := CheckName("server", r.Name); err != nil {
		return err
	}
	return r.checkOptions()
}

// RemoveRequest asks for `remove`.
type RemoveRequest struct {
	Consent
	Name string `json:"name"`
	// PurgeConfig also takes repld's drop-in and accounts off the server.
	PurgeConfig bool `json:"purge_config,omitempty"`
}

// FailoverRequest asks for `failover`.
type FailoverRequest struct {
	Consent
	// To is the server to promote, "" to let repld choose.
	To string `json:"to,omitempty"`
	// AcceptLoss is how many transactions may be lost; nil if that was not said.
	AcceptLoss *uint64 `json:"accept_loss,omitempty"`
}

// PauseRequest asks for `pause`: no automatic action meanwhile.
type PauseRequest struct {
	Consent
	// ForMS limits the pause, in milliseconds; 0 does not.
	ForMS int64 `json:"for_ms,omitempty"`
}

// ResumeRequest asks for `resume`: automatic action goes on, and a block_window
// is acknowledged.
type ResumeRequest struct{ Consent }

// StopRequest asks for `stop`.
type StopRequest struct {
	Consent
	Name string `json:"name"`
	// SQLOnly stops the SQL thread alone.
	SQLOnly bool `json:"sql_only,omitempty"`
}

// StartRequest asks for `start`.
type StartRequest struct {
	Consent
	Name string `json:"name"`
}

// MaintenanceRequest asks for `maintenance`.
type MaintenanceRequest struct {
	Consent
	Name string `json:"name"`
	On   bool   `json:"on,omitempty"`
}

// RestartRequest asks for `restart`.
type RestartRequest struct {
	Consent
	Name string `json:"name"`
	// InPlace restarts a master without a switchover.
	InPlace bool `json:"in_place,omitempty"`
}

// DurabilityRequest asks for `durability set`.
type DurabilityRequest struct {
	Consent
	// Durability is async, semi-sync or lossless.
	Durability string `json:"durability"`
}

// Check refuses an unknown mode.
func (r *DurabilityRequest) Check() error {
	switch r.Durability {
	case "async", "semi-sync", "lossless":
		return nil
	}
	return usage("bad_durability", fmt.Sprintf("%q is not a durability", r.Durability), "the value is not one of those that exist",
		"use async, semi-sync or lossless")
}

// SwitchoverRequest asks for `switchover`.
type SwitchoverRequest struct {
	Consent
	// To is the server to promote, "" to let repld choose.
	To string `json:"to,omitempty"`
}

// RejoinRequest asks for `rejoin`.
type RejoinRequest struct {
	Consent
	Name string `json:"name"`
	// DiscardErrant gives the server's saved extra transactions up.
	DiscardErrant bool `json:"discard_errant,omitempty"`
}

// Plan is what a change would do.
type Plan struct {
	// Steps in their order; empty if everything is as wanted already.
	Steps []PlanStep `json:"steps"`
	// Question is what the user must agree to, "" if the change needs no
	// confirmation: it names what is restarted, destroyed or replaced.
	Question string `json:"question,omitempty"`
	// Warnings are worth a look and hold nothing back.
	Warnings []string `json:"warnings,omitempty"`
	// Document is a text the plan speaks of: the drop-in that would be written.
	Document string `json:"document,omitempty"`
}

// PlanStep is one step of a [Plan].
type PlanStep struct {
	Server string `json:"server,omitempty"`
	Text   string `json:"text"`
	// Outage says what the step interrupts, "" if nothing.
	Outage string `json:"outage,omitempty"`
}

// Result is how a change, or a dry run, ended well.
type Result struct {
	// Plan is set by a dry run.
	Plan *Plan `json:"plan,omitempty"`
	// Changed is false if everything was as wanted already.
	Changed bool `json:"changed"`
	// Text says in a sentence or a few lines what is so now.
	Text string `json:"text"`
	// Warnings are what the user should look at.
	Warnings []string `json:"warnings,omitempty"`
	// Operation is the history's entry, "" if there is none.
	Operation string `json:"operation,omitempty"`
}

// Event is a sign of progress of a running change.
type Event struct {
	Step   string `json:"step"`
	Server string `json:"server,omitempty"`
	// Status is start, progress, done, skipped, warning or failed.
	Status string `json:"status"`
	Text   string `json:"text,omitempty"`
}

// Progress takes the events of a change, from one goroutine at a time. It
// never blocks for long and never fails: the client may be gone.
type Progress func(Event)

// DefaultCluster is the cluster of a user who names none.
const DefaultCluster = "main"

// CheckName refuses a name of a server or cluster that could not stand in a
// path, a table or a certificate. What is "server" or "cluster".
func CheckName(what, name string) error {
	if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`).MatchString(name) {
		return usage("bad_name", fmt.Sprintf("%q is not a %s name", name, what),
			"a name has 1 to 63 letters, digits, '.', '_' or '-' and begins with a letter or digit", "choose another name")
	}
	return nil
}

// Check refuses what can be seen to be wrong without asking a server. repld
// checks again, and more.
func (r *InitRequest) Check() error {
	if err := CheckName("server", r.Name); err != nil {
		return err
	}
	if strings.TrimSpace(r.Address) == "" {
		return usage("bad_address", "--address is missing", "a server is reached by HOST:PORT", "give --address HOST:PORT")
	}
	if err := r.checkOptions(); err != nil || r.Slave == nil {
		return err
	}
	return r.Slave.check()
}

func (r *InitRequest) checkOptions() error {
	switch r.BinlogFormat {
	case "", "mixed", "row":
	case "statement":
		return usage("statement_format", "binlog format statement is refused",
			"under it UUID(), LIMIT without ORDER BY and the like give other rows on a slave than on the master, without any error",
			"use --binlog-format mixed or row")
	default:
		return oneOf("--binlog-format", r.BinlogFormat, "mixed", "row")
	}
	if err := oneOf("--restart", r.Restart, "", "now", "never"); err != nil {
		return err
	}
	if err := oneOf("--promotion", r.Promotion, "", "prefer", "neutral", "avoid", "never"); err != nil {
		return err
	}
	some := r.SSLCA != "" || r.SSLCert != "" || r.SSLKey != ""
	if all := r.SSLCA != "" && r.SSLCert != "" && r.SSLKey != ""; some && !all {
		return usage("bad_ssl_files", "--ssl-ca, --ssl-cert and --ssl-key belong together", "only some of them are given",
			"give all three, or none to use certificates made by repld")
	}
	return nil
}

func (s *SlaveOptions) check() error {
	if s.Source != "" {
		if err := CheckName("server", s.Source); err != nil {
			return err
		}
	}
	if err := oneOf("--clone", s.Clone, "", "auto", "dump", "none"); err != nil {
		return err
	}
	if s.DelayMS < 0 || s.DelayMS%1000 != 0 {
		return usage("bad_delay", "--delay takes whole seconds", "servers keep a delay in seconds", "give for example --delay 1h")
	}
	for _, db := range s.ReplicateDoDB {
		if db == "" || strings.ContainsAny(db, "/\\\x00\n") {
			return usage("bad_schema", fmt.Sprintf("%q is not a schema", db), "the value is not one of those that exist", "give --replicate-do-db DB once for each schema")
		}
	}
	if s.SkipErrors != "" && !regexp.MustCompile(`^(all|\d{1,5}(,\d{1,5})*)$`).MatchString(s.SkipErrors) {
		return usage("bad_skip_errors", fmt.Sprintf("%q is not a list of error numbers", s.SkipErrors), "the value is not one of those that exist",
			"give for example --skip-errors 1062,1032, or all")
	}
	return nil
}

func oneOf(flag, value string, allowed ...string) error {
	var shown []string
	for _, a := range allowed {
		if a == value {
			return nil
		}
		if a != "" {
			shown = append(shown, a)
		}
	}
	return usage("bad_flag", fmt.Sprintf("%q is not a value of %s", value, flag), "the value is not one of those that exist",
		fmt.Sprintf("use %s %s", flag, strings.Join(shown, " or ")))
}

func usage(code, what, cause, do string) error {
	return &fault.Error{Kind: fault.Usage, Code: code, What: what, Cause: cause, State: "nothing was changed", Do: do}
}
