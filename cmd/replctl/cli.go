package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/internal/duration"
	"github.com/repld/repld/internal/fault"
)

// The words of --output.
const (
	formatTable = "table"
	formatWide  = "wide"
	formatJSON  = "json"
	formatYAML  = "yaml"
)

// cli is what every verb shares: the streams, the global flags and the exit
// code of a run without an error (status can end with 3 or 4).
type cli struct {
	stdin          *os.File
	stdout, stderr io.Writer
	env            func(string) (string, bool)

	endpoint, cluster, format, timeout string
	yes, dryRun                        bool

	exit int
}

func newRoot(c *cli) *cobra.Command {
	root := &cobra.Command{
		Use:           "replctl",
		Short:         "Set up and look at MariaDB replication that repld guards",
		SilenceErrors: true,
		SilenceUsage:  true,
		// Without a verb this is a mistake in a script, not a wish for help.
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unknown command %q", args[0])
			}
			return errors.New("a command is missing")
		},
		PersistentPreRunE: func(*cobra.Command, []string) error { return c.checkGlobals() },
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetOut(c.stdout)
	root.SetErr(c.stderr)
	endpoint := api.DefaultEndpoint
	if fromEnv, ok := c.env("REPLCTL_ENDPOINT"); ok && fromEnv != "" {
		endpoint = fromEnv
	}
	flags := root.PersistentFlags()
	flags.StringVar(&c.endpoint, "endpoint", endpoint, "repld's control socket, unix:///`path` (env REPLCTL_ENDPOINT)")
	flags.StringVar(&c.cluster, "cluster", api.DefaultCluster, "`name` of the cluster")
	flags.StringVarP(&c.format, "output", "o", formatTable, "`format` of what is printed: table, wide, json or yaml")
	flags.BoolVar(&c.yes, "yes", false, "agree to the plan without being asked")
	flags.BoolVar(&c.dryRun, "dry-run", false, "print the plan and change nothing")
	flags.StringVar(&c.timeout, "timeout", "", "give up waiting after this `duration`; a change goes on in repld")
	root.AddCommand(newInit(c), newStatus(c), newFailover(c), newSwitchover(c), newPause(c), newResume(c), newDurability(c), newStop(c), newStart(c), newMaintenance(c), newRestart(c), newRejoin(c), newRemove(c), newAdopt(c), newHistory(c), newExplain(c), newVersion(c))
	return root
}

func (c *cli) checkGlobals() error {
	if !slices.Contains([]string{formatTable, formatWide, formatJSON, formatYAML}, c.format) {
		given := c.format
		c.format = formatTable
		return usage("bad_flag", fmt.Sprintf("%q is not a value of --output", given), "use table, wide, json or yaml")
	}
	if c.timeout != "" {
		if d, err := duration.Parse(c.timeout); err != nil || d <= 0 {
			return usage("bad_flag", fmt.Sprintf("%q is not a value of --timeout", c.timeout), "give for example --timeout 30s")
		}
	}
	return nil
}

// formatInArgs finds --output before the flags are parsed, so that a mistake in
// them is reported in the wanted format too.
func formatInArgs(args []string) string {
	for i, a := range args {
		for _, name := range []string{"-o", "--output"} {
			if a == name && i+1 < len(args) && args[i+1] == formatJSON {
				return formatJSON
			}
			if a == name+"="+formatJSON || name == "-o" && a == name+formatJSON {
				return formatJSON
			}
		}
	}
	return formatTable
}

func (c *cli) client() (*api.Client, error) { return api.NewClient(c.endpoint, c.cluster) }

// readTimeout bounds a question to repld, which answers from memory.
const readTimeout = 15 * time.Second

// deadline bounds ctx by --timeout, or by def if it is not given; 0 is no bound.
func (c *cli) deadline(ctx context.Context, def time.Duration) (context.Context, context.CancelFunc) {
	d := def
	if c.timeout != "" {
		d, _ = duration.Parse(c.timeout) // checkGlobals has parsed it already
	}
	if d == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

// output prints v as JSON or YAML, or calls table for the other formats.
func (c *cli) output(v any, table func() string) error {
	switch c.format {
	case formatJSON:
		c.printJSON(c.stdout, v)
	case formatYAML:
		text, err := toYAML(v)
		if err != nil {
			return err
		}
		c.print(c.stdout, text)
	default:
		c.print(c.stdout, table())
	}
	return nil
}

// print ignores a write error: with stdout or stderr gone there is nobody to
// tell, and the exit code still speaks.
func (c *cli) print(w io.Writer, text string) { _, _ = io.WriteString(w, text) }

func (c *cli) printJSON(w io.Writer, v any) {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v)
}

// toYAML goes by way of JSON, so that both have the same names in the same
// order.
func toYAML(v any) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode YAML: %w", err)
	}
	var node yaml.Node
	if err := yaml.Unmarshal(text, &node); err != nil {
		return "", fmt.Errorf("encode YAML: %w", err)
	}
	blockStyle(&node)
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(&node); err != nil {
		return "", fmt.Errorf("encode YAML: %w", err)
	}
	return b.String(), nil
}

func blockStyle(n *yaml.Node) {
	// Only an empty list or object stays in JSON's notation; a string keeps its
	// quotes if it would otherwise be read as something else.
	if len(n.Content) > 0 || n.Kind == yaml.ScalarNode {
		n.Style = 0
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		n.SetString(n.Value)
		if isOldBool(n.Value) {
			n.Style = yaml.DoubleQuotedStyle
		}
	}
	for _, child := range n.Content {
		blockStyle(child)
	}
}

// isOldBool tells the words that a YAML 1.1 reader takes for true or false:
// io_thread: yes would be another type than io_thread: connecting.
func isOldBool(s string) bool {
	switch strings.ToLower(s) {
	case "y", "yes", "on", "n", "no", "off":
		return true
	}
	return false
}

func usage(code, what, do string) error {
	return &fault.Error{Kind: fault.Usage, Code: code, What: what, Cause: "the command line is not usable as it is",
		State: "nothing was changed", Do: do}
}

// oneName wants exactly one argument, the server's name.
func oneName(cmd *cobra.Command, args []string) error {
	switch len(args) {
	case 1:
		return nil
	case 0:
		return fmt.Errorf("%s needs the NAME of a server", strings.TrimPrefix(cmd.CommandPath(), "replctl "))
	}
	return fmt.Errorf("%s takes one NAME, not %d", strings.TrimPrefix(cmd.CommandPath(), "replctl "), len(args))
}
