package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/repld/repld/internal/api"
)

func newFailover(c *cli) *cobra.Command {
	var to string
	var acceptLoss uint64
	cmd := &cobra.Command{
		Use:   "failover",
		Short: "Promote a slave because the master is gone",
		Long:  "Promote a slave because the master is gone. Refused while the master lives.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := c.client()
			if err != nil {
				return err
			}
			r := api.FailoverRequest{To: to}
			if to != "" {
				if err := api.CheckName("server", to); err != nil {
					return err
				}
			}
			if cmd.Flags().Changed("accept-loss") {
				r.AcceptLoss = &acceptLoss
			}
			return c.change(cmd.Context(), func(ctx context.Context, consent api.Consent, p api.Progress) (*api.Result, error) {
				r.Consent = consent
				return client.Failover(ctx, r, p)
			})
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "`name` of the slave to promote (default: the one that has most)")
	cmd.Flags().Uint64Var(&acceptLoss, "accept-loss", 0, "`number` of transactions that may be lost; it is recorded")
	return cmd
}
