package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/repld/repld/internal/api"
)

// change1 runs a verb whose first argument is a server's name.
func (c *cli) change1(cmd *cobra.Command, name string, do func(*api.Client, context.Context, api.Consent, api.Progress) (*api.Result, error)) error {
	if err := api.CheckName("server", name); err != nil {
		return err
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	return c.change(cmd.Context(), func(ctx context.Context, consent api.Consent, p api.Progress) (*api.Result, error) {
		return do(client, ctx, consent, p)
	})
}

func newStop(c *cli) *cobra.Command {
	var sqlOnly bool
	cmd := &cobra.Command{
		Use:   "stop NAME",
		Short: "Stop a slave's threads, for a backup or an analysis",
		Long: "Stop a slave's threads: the IO thread first, then, when all that was received is applied, the SQL thread, so that nothing is lost by a later start. " +
			"It stays so until replctl start.",
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.change1(cmd, args[0], func(client *api.Client, ctx context.Context, consent api.Consent, p api.Progress) (*api.Result, error) {
				return client.Stop(ctx, api.StopRequest{Consent: consent, Name: args[0], SQLOnly: sqlOnly}, p)
			})
		},
	}
	cmd.Flags().BoolVar(&sqlOnly, "sql-only", false, "stop applying only; the slave goes on receiving and acknowledging")
	return cmd
}

func newStart(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "start NAME",
		Short: "Start a slave's threads again",
		Long:  "Start a slave's threads again, whoever stopped them. What it had received is applied first.",
		Args:  oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.change1(cmd, args[0], func(client *api.Client, ctx context.Context, consent api.Consent, p api.Progress) (*api.Result, error) {
				return client.Start(ctx, api.StartRequest{Consent: consent, Name: args[0]}, p)
			})
		},
	}
}

func newMaintenance(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "maintenance NAME on|off",
		Short: "Leave a slave alone while a person works on it",
		Long: "Leave a slave alone while a person works on it: no action on it, no promotion of it, no alarm for it. It acknowledges no commits meanwhile, " +
			"and what it acknowledged before is on another server first.",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[1] != "on" && args[1] != "off" {
				return usage("bad_flag", "maintenance is on or off, not "+args[1], "replctl maintenance "+args[0]+" on")
			}
			return c.change1(cmd, args[0], func(client *api.Client, ctx context.Context, consent api.Consent, p api.Progress) (*api.Result, error) {
				return client.Maintenance(ctx, api.MaintenanceRequest{Consent: consent, Name: args[0], On: args[1] == "on"}, p)
			})
		},
	}
}

func newRestart(c *cli) *cobra.Command {
	var inPlace bool
	cmd := &cobra.Command{
		Use:   "restart NAME",
		Short: "Restart a server in order",
		Long: "Restart a server by the command that was given to init: a slave at once, a master after a switchover, after which it stays a slave. " +
			"It returns when the server is in service again.",
		Args: oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.change1(cmd, args[0], func(client *api.Client, ctx context.Context, consent api.Consent, p api.Progress) (*api.Result, error) {
				return client.Restart(ctx, api.RestartRequest{Consent: consent, Name: args[0], InPlace: inPlace}, p)
			})
		},
	}
	cmd.Flags().BoolVar(&inPlace, "in-place", false, "restart the master without a switchover: nobody can write meanwhile")
	return cmd
}
