package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/repld/repld/internal/api"
)

// Exit codes of status beside 0.
const (
	exitDegraded = 3
	exitNoMaster = 4
)

func newStatus(c *cli) *cobra.Command {
	var ascii bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the cluster, its problems, and what a failover now would do",
		Long: "Show the cluster, its problems, and what a failover now would do.\n" +
			"Exits 0 if it is healthy, 3 if it is degraded, 4 if no server takes writes.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := c.client()
			if err != nil {
				return err
			}
			ctx, cancel := c.deadline(cmd.Context(), readTimeout)
			defer cancel()
			s, err := client.Status(ctx)
			if err != nil {
				return err
			}
			c.exit = statusExit(s)
			return c.output(s, func() string {
				return renderStatus(s, c.look(ascii), c.format == formatWide)
			})
		},
	}
	cmd.Flags().BoolVar(&ascii, "ascii", false, "draw the tree in ASCII")
	return cmd
}

// statusExit judges by what takes writes, not by the word alone: a cluster that
// is failing over has a master again before it has finished. A degraded one may
// have a master that repld cannot read, and that serves others all the same.
func statusExit(s *api.Status) int {
	switch s.Health {
	case "healthy":
		return 0
	case "degraded":
		return exitDegraded
	}
	if s.Writable() && s.Health != "no_master" {
		return exitDegraded
	}
	return exitNoMaster
}

// look is how a table is drawn.
type look struct {
	ascii bool
	color bool
	// width is the most columns a line may take, 0 for no limit.
	width int
}

// maxWidth is what every table fits in, whatever the terminal: it is what
// people paste into tickets.
const maxWidth = 100

func (c *cli) look(ascii bool) look {
	l := look{ascii: ascii, color: !c.plainOutput(c.stdout), width: maxWidth}
	if c.format == formatWide {
		l.width = 0
	}
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if locale, _ := c.env(name); locale != "" {
			up := strings.ToUpper(locale)
			l.ascii = ascii || !strings.Contains(up, "UTF-8") && !strings.Contains(up, "UTF8")
			return l
		}
	}
	l.ascii = true
	return l
}

const (
	red    = "31"
	green  = "32"
	yellow = "33"
)

// paint colours text if the look has colours.
func (l look) paint(color, text string) string {
	if !l.color {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}
