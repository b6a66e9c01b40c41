package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/repld/repld/internal/api"
)

func newHistory(c *cli) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "history [ID]",
		Short: "Show past operations, newest first, or one with its steps",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > api.MaxHistory {
				return usage("bad_flag", fmt.Sprintf("--limit %d is out of bounds", limit), fmt.Sprintf("give a number from 1 to %d", api.MaxHistory))
			}
			client, err := c.client()
			if err != nil {
				return err
			}
			ctx, cancel := c.deadline(cmd.Context(), readTimeout)
			defer cancel()
			l := c.look(false)
			if len(args) == 0 {
				list, err := client.History(ctx, limit)
				if err != nil {
					return err
				}
				return c.output(list, func() string { return renderHistory(list, l) })
			}
			op, err := client.Operation(ctx, args[0])
			if err != nil {
				return err
			}
			return c.output(op, func() string { return renderOperation(op, l) })
		},
	}
	cmd.Flags().IntVar(&limit, "limit", api.DefaultHistory, "at most this `number` of operations")
	return cmd
}

func renderHistory(list []api.Operation, l look) string {
	if len(list) == 0 {
		return "nothing has happened yet\n"
	}
	cols := []column{{"ID", 0, false}, {"STARTED (UTC)", 0, false}, {"KIND", 0, false}, {"SERVERS", 10, false}, {"RESULT", 0, false},
		{"DETECTED", 0, false}, {"OPENED", 0, false}, {"TOTAL", 0, false}, {"LOST", 0, false}}
	var rows [][]string
	for _, op := range list {
		rows = append(rows, []string{op.ID, shortTime(op.StartedAt), op.Kind, servers(op, l), op.Result,
			floatMS(op.DetectedMS), floatMS(op.OpenedMS), floatMS(op.TotalMS), lost(op)})
	}
	return renderTable(cols, rows, l)
}

func renderOperation(op *api.Operation, l look) string {
	var b strings.Builder
	row := func(name, value string) {
		b.WriteString(wrap(value, fmt.Sprintf("%-14s", name), strings.Repeat(" ", 14), l))
	}
	row("operation", op.ID)
	row("kind", op.Kind)
	row("servers", servers(*op, l))
	row("result", op.Result)
	row("started", op.StartedAt)
	if op.Epoch != nil {
		row("epoch", strconv.FormatUint(*op.Epoch, 10))
	}
	row("detected", floatMS(op.DetectedMS))
	row("opened", floatMS(op.OpenedMS))
	row("total", floatMS(op.TotalMS))
	row("write outage", floatMS(op.WriteOutageMS))
	if n := lost(*op); n != none {
		row("lost", n+" transactions")
	}
	if op.RescuedTransactions > 0 || lost(*op) != none { // only a change of master rescues any
		row("rescued", strconv.FormatUint(op.RescuedTransactions, 10)+" transactions")
	}
	if op.Detail != "" {
		row("detail", op.Detail)
	}
	if len(op.Steps) > 0 {
		var rows [][]string
		for _, s := range op.Steps {
			server := none
			if s.Server != nil {
				server = *s.Server
			}
			rows = append(rows, []string{s.Name, server, floatMS(&s.MS), s.Result})
		}
		b.WriteString("\n" + renderTable([]column{{"STEP", 10, false}, {"SERVER", 8, false}, {"TOOK", 0, false}, {"RESULT", 12, false}}, rows, l))
	}
	for _, s := range op.Steps {
		if s.Output != "" {
			b.WriteString("\noutput of " + s.Name + ":\n")
			for line := range strings.Lines(s.Output) {
				b.WriteString("  " + strings.TrimRight(line, "\n") + "\n")
			}
		}
	}
	if len(op.Evidence) > 0 {
		b.WriteString("\nevidence:\n")
		for _, e := range op.Evidence {
			b.WriteString(wrap(e, "  ", "    ", l))
		}
	}
	return b.String()
}

func servers(op api.Operation, l look) string {
	arrow := " → "
	if l.ascii {
		arrow = " -> "
	}
	switch {
	case op.OldMaster != nil && op.NewMaster != nil:
		return *op.OldMaster + arrow + *op.NewMaster
	case op.Server != nil:
		return *op.Server
	case op.NewMaster != nil:
		return *op.NewMaster
	case op.OldMaster != nil:
		return *op.OldMaster + arrow + unknown
	}
	return none
}

// lost is the number of transactions that a change of master lost; other
// operations cannot lose any.
func lost(op api.Operation) string {
	switch {
	case op.LostTransactions == nil && op.Kind != "failover" && op.Kind != "switchover":
		return none
	case op.LostTransactions == nil:
		return unknown
	}
	return strconv.FormatUint(*op.LostTransactions, 10)
}

// shortTime is a wire time to the second.
func shortTime(s string) string {
	day, clock, found := strings.Cut(s, "T")
	if !found || len(clock) < 8 {
		return s
	}
	return day + " " + clock[:8]
}

// floatMS prints what was measured in milliseconds, "-" if it was not.
func floatMS(ms *float64) string {
	if ms == nil {
		return none
	}
	if *ms < 10 {
		return strconv.FormatFloat(*ms, 'f', 1, 64) + "ms"
	}
	whole := int64(*ms + 0.5)
	return milliseconds(&whole)
}
