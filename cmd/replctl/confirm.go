package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/internal/fault"
)

// change runs one verb: first its plan, which also brings every refusal before
// any question, then, if the plan asks one, the user's answer, then the change.
// call posts the request with the given consent.
func (c *cli) change(ctx context.Context, call func(context.Context, api.Consent, api.Progress) (*api.Result, error)) error {
	ctx, cancel := c.deadline(ctx, 0)
	defer cancel()
	planned, err := call(ctx, api.Consent{DryRun: true}, nil)
	if err != nil {
		return err
	}
	plan := planned.Plan
	if plan == nil {
		plan = &api.Plan{}
	}
	if c.dryRun {
		return c.output(plan, func() string { return renderPlan(plan, true) })
	}
	if plan.Question != "" && !c.yes {
		if isTerminal(c.stdin) || c.format != formatJSON {
			c.print(c.stderr, renderPlan(plan, false))
		}
		if err := c.ask(ctx, plan.Question); err != nil {
			return err
		}
	}
	result, err := call(ctx, api.Consent{Confirmed: c.yes || plan.Question != ""}, c.progress)
	if err != nil {
		return err
	}
	return c.output(result, func() string { return renderResult(result) })
}

// progress prints one event on stderr. A program that asked for JSON gets none:
// the error, if there is one, must be all that it finds there.
func (c *cli) progress(e api.Event) {
	if c.format != formatJSON {
		c.print(c.stderr, renderEvent(e))
	}
}

// ask wants a yes on a terminal. Without one the answer is no.
func (c *cli) ask(ctx context.Context, question string) error {
	if !isTerminal(c.stdin) {
		return notConfirmed("there is no terminal to ask on: "+question, "run it again with --yes to agree, or --dry-run to look")
	}
	c.print(c.stderr, question+" [y/N] ")
	type answer struct {
		text string
		err  error
	}
	// A read of a terminal cannot be cancelled; the process ends soon after an
	// interrupt and takes the goroutine along.
	read := make(chan answer, 1)
	go func() {
		text, err := bufio.NewReader(c.stdin).ReadString('\n')
		read <- answer{text, err}
	}()
	select {
	case <-ctx.Done():
		c.print(c.stderr, "\n")
		return notConfirmed("no answer was given", "run it again")
	case a := <-read:
		if a.err != nil && !errors.Is(a.err, io.EOF) {
			return notConfirmed(fmt.Sprintf("the answer cannot be read: %v", a.err), "run it again with --yes to agree")
		}
		switch strings.ToLower(strings.TrimSpace(a.text)) {
		case "y", "yes":
			return nil
		}
		return notConfirmed("the answer was not yes", "run it again when you agree")
	}
}

func notConfirmed(cause, do string) error {
	return &fault.Error{Kind: fault.Unconfirmed, Code: "not_confirmed", What: "the plan is not confirmed", Cause: cause,
		State: "nothing was changed", Do: do}
}

// renderPlan prints a plan; with the drop-in it is for a reader who has time.
func renderPlan(p *api.Plan, document bool) string {
	var b strings.Builder
	if len(p.Steps) == 0 {
		b.WriteString("plan: nothing to do, everything is as wanted\n")
	} else {
		b.WriteString("plan:\n")
	}
	for i, s := range p.Steps {
		fmt.Fprintf(&b, "%3d. ", i+1)
		if s.Server != "" {
			b.WriteString(s.Server + ": ")
		}
		b.WriteString(s.Text + "\n")
		if s.Outage != "" {
			fmt.Fprintf(&b, "     outage: %s\n", s.Outage)
		}
	}
	for _, w := range p.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	if p.Question != "" && document {
		fmt.Fprintf(&b, "needs confirmation: %s\n", p.Question)
	}
	if p.Document != "" && document {
		b.WriteString("\n" + p.Document)
		if !strings.HasSuffix(p.Document, "\n") {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func renderEvent(e api.Event) string {
	var b strings.Builder
	switch e.Status {
	case "done", "skipped", "warning", "failed":
		fmt.Fprintf(&b, "%-8s", e.Status)
	default:
		fmt.Fprintf(&b, "%-8s", "...")
	}
	if e.Server != "" {
		b.WriteString(e.Server + ": ")
	}
	b.WriteString(e.Step)
	if e.Text != "" {
		b.WriteString(": " + e.Text)
	}
	return b.String() + "\n"
}

func renderResult(r *api.Result) string {
	var b strings.Builder
	text := r.Text
	if text == "" && !r.Changed {
		text = "nothing to do, everything is as wanted"
	}
	if text != "" {
		b.WriteString(strings.TrimSuffix(text, "\n") + "\n")
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	return b.String()
}
