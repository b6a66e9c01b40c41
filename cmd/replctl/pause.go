package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/internal/duration"
)

func newPause(c *cli) *cobra.Command {
	var length string
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Take no automatic action for a while",
		Long: "Take no automatic action: nothing is promoted, attached or degraded by itself, for example while servers are restarted on purpose. " +
			"A failover that is under way goes on.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var wanted time.Duration
			if length != "" {
				var err error
				if wanted, err = duration.Parse(length); err != nil || wanted < time.Second {
					return usage("bad_pause", "--for "+length+" is not a length of at least 1s", "give for example --for 30m")
				}
			}
			client, err := c.client()
			if err != nil {
				return err
			}
			return c.change(cmd.Context(), func(ctx context.Context, consent api.Consent, p api.Progress) (*api.Result, error) {
				return client.Pause(ctx, api.PauseRequest{Consent: consent, ForMS: wanted.Milliseconds()}, p)
			})
		},
	}
	cmd.Flags().StringVar(&length, "for", "", "`length` of the pause (default: until resume)")
	return cmd
}

func newResume(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "resume",
		Short: "Take automatic action again",
		Long:  "Take automatic action again after a pause. It also acknowledges the last failover, so that the next one need not wait for failover.block_window.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := c.client()
			if err != nil {
				return err
			}
			return c.change(cmd.Context(), func(ctx context.Context, consent api.Consent, p api.Progress) (*api.Result, error) {
				return client.Resume(ctx, api.ResumeRequest{Consent: consent}, p)
			})
		},
	}
}
