package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/repld/repld/internal/api"
)

func newDurability(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "durability",
		Short: "What commits wait for",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "set async|semi-sync|lossless",
		Short: "Change what commits wait for",
		Long: "Change what commits on the master wait for: nobody (async), one slave unless there is none (semi-sync), or one slave however long (lossless). " +
			"It returns when the master does so.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := api.DurabilityRequest{Durability: args[0]}
			if err := r.Check(); err != nil {
				return err
			}
			client, err := c.client()
			if err != nil {
				return err
			}
			return c.change(cmd.Context(), func(ctx context.Context, consent api.Consent, p api.Progress) (*api.Result, error) {
				r.Consent = consent
				return client.Durability(ctx, r, p)
			})
		},
	})
	return cmd
}
