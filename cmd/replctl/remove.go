package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/repld/repld/internal/api"
)

func newRemove(c *cli) *cobra.Command {
	var r api.RemoveRequest
	cmd := &cobra.Command{
		Use:   "remove NAME",
		Short: "Forget a server: its replication is stopped, its data left alone",
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
				return client.Remove(ctx, r, p)
			})
		},
	}
	cmd.Flags().BoolVar(&r.PurgeConfig, "purge-config", false, "also remove repld's configuration file and accounts from it")
	return cmd
}
