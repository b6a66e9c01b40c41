package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/repld/repld/internal/api"
)

func newRejoin(c *cli) *cobra.Command {
	var r api.RejoinRequest
	cmd := &cobra.Command{
		Use:   "rejoin NAME",
		Short: "Bring a former master or broken slave back as a slave",
		Args:  oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			r.Name = args[0]
			if err := api.CheckName("server", r.Name); err != nil {
				return err
			}
			client, err := c.client()
			if err != nil {
				return err
			}
			return c.change(cmd.Context(), func(ctx context.Context, consent api.Consent, p api.Progress) (*api.Result, error) {
				r.Consent = consent
				return client.Rejoin(ctx, r, p)
			})
		},
	}
	cmd.Flags().BoolVar(&r.DiscardErrant, "discard-errant", false, "give up the transactions that only this server has (they are saved first)")
	return cmd
}
