package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/repld/repld/internal/api"
)

func newExplain(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "explain [NAME]",
		Short: "Say why a server can or cannot be promoted, or why a failover did not happen",
		Long: "Say, rule by rule and with measured values, why a server can or cannot be promoted. Without a name: whether a failover would begin now, " +
			"and what is known of the last one that did not happen.",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) == 1 {
				name = args[0]
				if err := api.CheckName("server", name); err != nil {
					return err
				}
			}
			client, err := c.client()
			if err != nil {
				return err
			}
			ctx, cancel := c.deadline(cmd.Context(), readTimeout)
			defer cancel()
			e, err := client.Explain(ctx, name)
			if err != nil {
				return err
			}
			return c.output(e, func() string { return renderExplanation(e) })
		},
	}
}

func renderExplanation(e *api.Explanation) string {
	var b strings.Builder
	renderRules(&b, e)
	for i := range e.Servers {
		b.WriteString("\n")
		renderRules(&b, &e.Servers[i])
	}
	if len(e.Extra) > 0 {
		fmt.Fprintf(&b, "\nonly this server has: %s\nsaved under data_dir/%s\n", strings.Join(e.Extra, ", "), e.SavedUnder)
	}
	d := e.LastDeclined
	if d == nil {
		b.WriteString("\nno failover was declined yet\n")
		return b.String()
	}
	lasted := "it goes on"
	if d.LastedMS != nil {
		lasted = "it lasted " + floatMS(d.LastedMS)
	}
	fmt.Fprintf(&b, "\nlast failover that did not happen: %s was %s at %s, %s\n", d.Master, d.Verdict, d.At, lasted)
	for _, line := range d.Evidence {
		fmt.Fprintf(&b, "  evidence: %s\n", line)
	}
	for _, line := range d.Rules {
		fmt.Fprintf(&b, "  held back: %s\n", line)
	}
	return b.String()
}

func renderRules(b *strings.Builder, e *api.Explanation) {
	switch {
	case e.Server == nil:
		fmt.Fprintf(b, "a failover of cluster %s, rule by rule:\n", e.Cluster)
	case e.Promotable:
		fmt.Fprintf(b, "%s could be promoted:\n", *e.Server)
	default:
		fmt.Fprintf(b, "%s cannot be promoted:\n", *e.Server)
	}
	for _, r := range e.Rules {
		word := "yes"
		if !r.Holds {
			word = "NO "
		}
		fmt.Fprintf(b, "  %s  %-22s %s (%s)\n", word, r.Code, r.Needs, r.Measured)
	}
}
