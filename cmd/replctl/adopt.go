package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/repld/repld/internal/api"
)

func newAdopt(c *cli) *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use:   "adopt NAME [--address HOST:PORT]",
		Short: "Take over a server that already replicates, or a promotion made by hand",
		Args:  oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			base, err := f.request(args[0])
			if err != nil {
				return err
			}
			r := api.AdoptRequest{InitRequest: base}
			if err := r.Check(); err != nil {
				return err
			}
			client, err := c.client()
			if err != nil {
				return err
			}
			if r.Admin.Password, err = f.password(cmd.Context(), c); err != nil {
				return err
			}
			return c.change(cmd.Context(), func(ctx context.Context, consent api.Consent, p api.Progress) (*api.Result, error) {
				r.Consent = consent
				return client.Adopt(ctx, r, p)
			})
		},
	}
	f.add(cmd.Flags())
	return cmd
}
