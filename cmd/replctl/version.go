package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/repld/repld/internal/api"
)

// versions is what `version -o json` prints; server is null if repld cannot be
// reached, which is no error here.
type versions struct {
	Client api.Version  `json:"client"`
	Server *api.Version `json:"server"`
}

func newVersion(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of replctl and repld",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := c.client()
			if err != nil {
				return err
			}
			ctx, cancel := c.deadline(cmd.Context(), readTimeout)
			defer cancel()
			v := versions{Client: api.ThisVersion()}
			v.Server, err = client.Version(ctx)
			if err != nil {
				v.Server = nil
			}
			return c.output(v, func() string {
				server := "not reached at " + c.endpoint
				if v.Server != nil {
					server = describe(*v.Server)
				}
				return "replctl " + describe(v.Client) + "\nrepld   " + server + "\n"
			})
		},
	}
}

func describe(v api.Version) string {
	var more []string
	for _, s := range []string{v.Commit, v.Date} {
		if s != "" {
			more = append(more, s)
		}
	}
	if len(more) == 0 {
		return v.Version
	}
	return fmt.Sprintf("%s (%s)", v.Version, strings.Join(more, ", "))
}
