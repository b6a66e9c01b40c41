package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/repld/repld/internal/api"
)

func newSwitchover(c *cli) *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "switchover",
		Short: "Make a slave the master, in order",
		Long: "Make a slave the master while the master lives. The old master becomes its slave. " +
			"Whatever goes wrong before the promotion is rolled back: then the old master goes on.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := c.client()
			if err != nil {
				return err
			}
			if to != "" {
				if err := api.CheckName("server", to); err != nil {
					return err
				}
			}
			return c.change(cmd.Context(), func(ctx context.Context, consent api.Consent, p api.Progress) (*api.Result, error) {
				return client.Switchover(ctx, api.SwitchoverRequest{Consent: consent, To: to}, p)
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "`name` of the slave to promote (default: the best one)")
	return cmd
}
