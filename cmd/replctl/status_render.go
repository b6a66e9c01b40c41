package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/repld/repld/internal/api"
)

// In a table "?" is unknown, "-" is nothing there.
const (
	unknown = "?"
	none    = "-"
)

// renderStatus draws the cluster for people.
func renderStatus(s *api.Status, l look, wide bool) string {
	var b strings.Builder
	b.WriteString(headline(s, l))
	if len(s.Servers) == 0 {
		b.WriteString("\nThere is no server yet. Begin with:\n  replctl init master NAME --address HOST:PORT\n")
		return b.String()
	}
	b.WriteString("\n" + serverTable(s, l, wide))
	if problems := allProblems(s); len(problems) > 0 {
		b.WriteString("\nproblems:\n")
		for _, p := range problems {
			b.WriteString(renderProblem(p, l))
		}
	}
	if text := notPromotable(s, l); text != "" {
		b.WriteString("\nnot promotable:\n" + text)
	}
	if s.Master != nil {
		b.WriteString("\n" + renderForecast(s, l))
	}
	return b.String()
}

func headline(s *api.Status, l look) string {
	master := "no master"
	if s.Master != nil {
		master = "master " + *s.Master
	}
	mode := s.Mode
	if s.Paused {
		mode += " (paused)"
	}
	durability := s.Durability.Configured + " " + s.Durability.State
	if len(s.Durability.Ackers) > 0 {
		durability += " (" + strings.Join(s.Durability.Ackers, ", ") + ")"
	}
	text := wrap(strings.Join([]string{"cluster " + s.Cluster + ": " + s.Health, "epoch " + strconv.FormatUint(s.Epoch, 10), master, mode, durability}, ", "), "", "  ", l)
	color := yellow
	switch s.Health {
	case "healthy":
		color = green
	case "no_master", "blocked":
		color = red
	}
	prefix := "cluster " + s.Cluster + ": "
	return prefix + l.paint(color, s.Health) + strings.TrimPrefix(text, prefix+s.Health)
}

func serverTable(s *api.Status, l look, wide bool) string {
	cols := []column{
		{"NAME", 12, false}, {"ADDRESS", 12, true}, {"ROLE", 0, false}, {"STATE", 0, false}, {"LAG", 0, false},
		{"GTID", 10, true}, {"IO/SQL", 0, false}, {"TLS", 0, false}, {"PROMOTABLE", 0, false},
	}
	if wide {
		cols = append(cols, column{title: "RECEIVED"}, column{title: "LAG TX"}, column{title: "LAG BYTES"}, column{title: "READ ONLY"},
			column{title: "SERVER ID"}, column{title: "VERSION"}, column{title: "CLOCK"}, column{title: "OBSERVED"})
	}
	var rows [][]string
	for _, node := range tree(s.Servers, l) {
		server := node.server
		isMaster := server.Role == "master"
		promotable := yesNo(&server.Promotable)
		if isMaster {
			promotable = none
		}
		row := []string{
			node.prefix + server.Name, server.Address, server.Role, server.State, lag(server, isMaster),
			text(server.GTID), threads(server, isMaster), orNone(isMaster, yesNo(server.TLS)), promotable,
		}
		if wide {
			row = append(row, orNone(isMaster, text(server.GTIDReceived)), orNone(isMaster, number(server.LagTransactions)),
				orNone(isMaster, number(server.LagBytes)), yesNo(server.ReadOnly), strconv.FormatUint(uint64(server.ServerID), 10),
				server.Version, milliseconds(server.ClockOffsetMS), observed(server.ObservedMSAgo))
		}
		rows = append(rows, row)
	}
	return renderTable(cols, rows, l)
}

// treeNode is a server with the branch that leads to it.
type treeNode struct {
	prefix string
	server *api.ServerStatus
}

// tree puts each slave under its source. A server whose source is unknown, or
// that stands in a ring, is a root, so that each server appears once.
func tree(servers []api.ServerStatus, l look) []treeNode {
	branch, last, pipe := "├─", "└─", "│ "
	if l.ascii {
		branch, last, pipe = "|-", "`-", "| "
	}
	known := map[string]bool{}
	for _, s := range servers {
		known[s.Name] = true
	}
	children := map[string][]int{}
	var roots []int
	for i, s := range servers {
		if s.Source == nil || !known[*s.Source] || *s.Source == s.Name {
			roots = append(roots, i)
		} else {
			children[*s.Source] = append(children[*s.Source], i)
		}
	}
	// The master first, whatever the order of names.
	slices.SortStableFunc(roots, func(a, b int) int {
		return boolOrder(servers[a].Role == "master", servers[b].Role == "master")
	})
	var out []treeNode
	seen := map[int]bool{}
	var walk func(i int, own, below string)
	walk = func(i int, own, below string) {
		if seen[i] {
			return
		}
		seen[i] = true
		out = append(out, treeNode{own, &servers[i]})
		kids := children[servers[i].Name]
		for n, kid := range kids {
			if n == len(kids)-1 {
				walk(kid, below+last, below+"  ")
			} else {
				walk(kid, below+branch, below+pipe)
			}
		}
	}
	for _, r := range roots {
		walk(r, "", "")
	}
	for i := range servers {
		walk(i, "", "")
	}
	return out
}

func boolOrder(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// allProblems are the cluster's and, each once, the servers'.
func allProblems(s *api.Status) []api.Problem {
	out := slices.Clone(s.Problems)
	for _, server := range s.Servers {
		for _, p := range server.Problems {
			if p.Server == "" {
				p.Server = server.Name
			}
			if !slices.ContainsFunc(out, func(q api.Problem) bool { return q.Code == p.Code && q.Server == p.Server }) {
				out = append(out, p)
			}
		}
	}
	return out
}

func renderProblem(p api.Problem, l look) string {
	first := "  "
	if p.Server != "" {
		first += p.Server + ": "
	}
	out := wrap(p.Text+" ["+p.Code+"]", first, "    ", l)
	if p.Do != "" {
		out += wrap(p.Do, "    do: ", "        ", l)
	}
	return out
}

// notPromotable says why, for each slave that is not, unless a problem with the
// same code says it already.
func notPromotable(s *api.Status, l look) string {
	problems := allProblems(s)
	var b strings.Builder
	for _, server := range s.Servers {
		for _, p := range server.NotPromotableBecause {
			said := slices.ContainsFunc(problems, func(q api.Problem) bool { return q.Code == p.Code && q.Server == server.Name })
			if said || server.Role == "master" {
				continue
			}
			p.Server = server.Name
			b.WriteString(renderProblem(p, l))
		}
	}
	return b.String()
}

func renderForecast(s *api.Status, l look) string {
	f := s.Forecast
	first := "If " + *s.Master + " died now: "
	if slices.ContainsFunc(s.Servers, func(m api.ServerStatus) bool { return m.Name == *s.Master && m.State == "unreachable" }) {
		first = "A failover of " + *s.Master + " now: "
	}
	risk := "how many transactions would be lost is unknown"
	switch {
	case f.TransactionsAtRisk == nil:
	case *f.TransactionsAtRisk == 0:
		risk = "no transaction would be lost"
	case *f.TransactionsAtRisk == 1:
		risk = "1 transaction could be lost"
	default:
		risk = fmt.Sprintf("%d transactions could be lost", *f.TransactionsAtRisk)
	}
	var out string
	switch {
	case len(f.BlockedBecause) > 0 && f.Candidate != nil:
		out = wrap(*f.Candidate+" could follow, "+risk+", but not by itself:", first, "  ", l)
	case len(f.BlockedBecause) > 0:
		out = wrap("nobody would follow by itself:", first, "  ", l)
	case f.Candidate == nil:
		return wrap("nobody could follow.", first, "  ", l)
	default:
		return wrap(*f.Candidate+" would follow, "+risk+".", first, "  ", l)
	}
	for _, p := range f.BlockedBecause {
		out += renderProblem(p, l)
	}
	return out
}

func lag(s *api.ServerStatus, isMaster bool) string {
	switch {
	case isMaster:
		return none
	case s.LagMS == nil:
		return unknown
	}
	return milliseconds(s.LagMS)
}

func threads(s *api.ServerStatus, isMaster bool) string {
	if isMaster {
		return none
	}
	io, sql := text(s.IOThread), text(s.SQLThread)
	if io == "connecting" {
		io = "conn"
	}
	return io + "/" + sql
}

func text(s *string) string {
	switch {
	case s == nil:
		return unknown
	case *s == "":
		return none
	}
	return *s
}

func yesNo(b *bool) string {
	switch {
	case b == nil:
		return unknown
	case *b:
		return "yes"
	}
	return "no"
}

func orNone(isNone bool, s string) string {
	if isNone {
		return none
	}
	return s
}

func number(n *uint64) string {
	if n == nil {
		return unknown
	}
	return strconv.FormatUint(*n, 10)
}

// milliseconds is short: 12ms, 3.4s, 5m12s, 2h5m.
func milliseconds(ms *int64) string {
	if ms == nil {
		return unknown
	}
	d := time.Duration(*ms) * time.Millisecond
	switch abs := d.Abs(); {
	case abs < time.Second:
		return strconv.FormatInt(*ms, 10) + "ms"
	case abs < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	case abs < time.Hour:
		return d.Round(time.Second).String()
	case abs < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return strconv.Itoa(int(d.Hours()/24)) + "d"
}

func observed(ms *int64) string {
	if ms == nil {
		return "never"
	}
	return milliseconds(ms) + " ago"
}
