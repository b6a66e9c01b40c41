package provision

import (
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"

	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/topology"
)

// Admin is the administrator's login that is used once, to create repld's own
// account. It is never stored.
type Admin struct {
	User     string
	Password string
	// Socket is the path of a local socket to log in by (unix_socket); with it
	// the address is still proven to lead to the same server.
	Socket string
}

// RestartMode says what a user agrees to when something needs a restart.
type RestartMode string

// RestartAsk wants a confirmation; RestartNow is the consent; RestartNever stops
// with the drop-in written and says what remains.
const (
	RestartAsk   RestartMode = "ask"
	RestartNow   RestartMode = "now"
	RestartNever RestartMode = "never"
)

// Request holds what init master and init slave have in common.
type Request struct {
	Cluster string
	Name    string
	// Address is host:port as repld and the other servers reach the server. It
	// is made canonical by Normalize.
	Address string
	Admin   Admin
	// ServerID is the wanted server_id; 0 keeps a unique one or takes a free one.
	ServerID uint32
	// ConfigFile is the drop-in's path; "" is the default for a local server.
	ConfigFile string
	// ConfigCommand writes the drop-in it gets on stdin; an argument list, no shell.
	ConfigCommand  []string
	RestartCommand []string
	Restart        RestartMode
	// SSLCA, SSLCert and SSLKey are the user's own certificates, as paths in the
	// server's file system; all three or none.
	SSLCA, SSLCert, SSLKey string
	// BinlogFormat is "", "mixed" or "row".
	BinlogFormat string
	Promotion    topology.Promotion
	// also are further lines of the drop-in, for what only some slaves have.
	also []Setting
	// Confirmed is the answer to the question that the plan leads to.
	Confirmed bool
	// DryRun stops after the plan.
	DryRun bool
}

// MasterRequest is what init master is asked to do.
type MasterRequest struct {
	Request
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// Normalize fills in defaults and makes the address canonical. Its errors are
// faults of kind Usage: nothing has been contacted yet.
func (r *Request) Normalize() error {
	if r.Cluster == "" {
		r.Cluster = "main"
	}
	for what, name := range map[string]string{"cluster": r.Cluster, "server": r.Name} {
		if !nameForm.MatchString(name) {
			return usage("bad_name", fmt.Sprintf("%q is not a %s name", name, what),
				"a name has 1 to 63 letters, digits, '.', '_' or '-' and begins with a letter or digit", "choose another name")
		}
	}
	_, _, canonical, err := ParseAddress(r.Address)
	if err != nil {
		return err
	}
	r.Address = canonical
	switch r.BinlogFormat = strings.ToLower(r.BinlogFormat); r.BinlogFormat {
	case "", "mixed", "row":
	case "statement":
		return usage("statement_format", "binlog format statement is refused",
			"under it UUID(), LIMIT without ORDER BY and the like give other rows on a slave than on the master, without any error",
			"use --binlog-format mixed or row")
	default:
		return usage("bad_binlog_format", fmt.Sprintf("%q is not a binlog format", r.BinlogFormat), "the value is not one of those that exist", "use --binlog-format mixed or row")
	}
	if n := countSet(r.SSLCA, r.SSLCert, r.SSLKey); n != 0 && n != 3 {
		return usage("bad_ssl_files", "--ssl-ca, --ssl-cert and --ssl-key belong together", "only some of them are given", "give all three, or none to use certificates made by repld")
	}
	switch r.Restart {
	case "":
		r.Restart = RestartAsk
	case RestartAsk, RestartNow, RestartNever:
	default:
		return usage("bad_restart", fmt.Sprintf("%q is not an answer for --restart", r.Restart), "the value is not one of those that exist", "use --restart now or never")
	}
	if r.Promotion == "" {
		r.Promotion = topology.PromotionNeutral
	}
	if r.Promotion.Rank() < 0 {
		return usage("bad_promotion", fmt.Sprintf("%q is not a promotion preference", r.Promotion), "the value is not one of those that exist", "use prefer, neutral, avoid or never")
	}
	if r.Admin.User == "" {
		return usage("no_admin", "an administrator's login is needed once", "--admin-user is missing", "give --admin-user and --admin-password-file, or --admin-socket")
	}
	return nil
}

// ParseAddress reads host:port, host, [v6]:port or a bare IPv6 address; the
// default port is 3306. The canonical form has an IPv6 host in brackets and
// "localhost" replaced by 127.0.0.1: as MASTER_HOST the word would make a slave
// use its default socket, whatever the port. Errors are faults of kind Usage.
func ParseAddress(s string) (host string, port uint16, canonical string, err error) {
	bad := func(cause string) (string, uint16, string, error) {
		return "", 0, "", usage("bad_address", fmt.Sprintf("%q is not an address", s), cause, "give --address HOST:PORT, with an IPv6 host in brackets: [::1]:3306")
	}
	word := strings.TrimSpace(s)
	digits := "3306"
	switch {
	case word == "":
		return bad("it is empty")
	case net.ParseIP(word) != nil:
		host = word
	case strings.HasPrefix(word, "[") && strings.HasSuffix(word, "]"):
		host = word[1 : len(word)-1]
	case strings.Contains(word, ":"):
		if host, digits, err = net.SplitHostPort(word); err != nil {
			return bad(err.Error())
		}
	default:
		host = word
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n == 0 {
		return bad(fmt.Sprintf("%q is not a port", digits))
	}
	if host == "" || strings.ContainsAny(host, " \t\n/'\"[]@") {
		return bad("it has no usable host")
	}
	if strings.EqualFold(host, "localhost") {
		host = "127.0.0.1"
	}
	return host, uint16(n), net.JoinHostPort(host, strconv.Itoa(int(n))), nil
}

func usage(code, what, cause, do string) *fault.Error {
	return &fault.Error{Kind: fault.Usage, Code: code, What: what, Cause: cause, State: "nothing was changed", Do: do}
}

func countSet(words ...string) int {
	n := 0
	for _, w := range words {
		if w != "" {
			n++
		}
	}
	return n
}
