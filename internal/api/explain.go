package api

import (
	"context"
	"net/http"
	"net/url"
)

// Explanation is the answer to `replctl explain`: why a server can or cannot be
// promoted or, without a server, whether a failover would begin.
type Explanation struct {
	Cluster string `json:"cluster,omitempty"`
	// Server is null for the cluster's own explanation.
	Server *string `json:"server"`
	// Promotable tells, without a server, whether anybody is.
	Promotable bool   `json:"promotable"`
	Rules      []Rule `json:"rules"`
	// LastDeclined is the last failover that did not happen, null if there was none.
	LastDeclined *Declined `json:"last_declined_failover"`
	// Servers are the explanations of all servers; only without a server.
	Servers []Explanation `json:"servers,omitempty"`
	// Extra are the transactions that only a diverged server has, SavedUnder where,
	// below data_dir, they were saved.
	Extra      []string `json:"extra_transactions,omitempty"`
	SavedUnder string   `json:"saved_under,omitempty"`
}

// Rule is one rule as it stands now.
type Rule struct {
	Code string `json:"code"`
	// Holds is false for a rule that is broken.
	Holds bool `json:"holds"`
	// Measured is what is so, Needs what the rule asks for.
	Measured string `json:"measured"`
	Needs    string `json:"needs"`
	Text     string `json:"text"`
}

// Declined is a failover that was called for, or nearly, and did not happen.
type Declined struct {
	Master  string `json:"master"`
	Verdict string `json:"verdict"`
	At      string `json:"at"`
	// LastedMS is how long the trouble lasted, null while it does.
	LastedMS *float64 `json:"lasted_ms"`
	Evidence []string `json:"evidence"`
	// Rules are those that held a failover back, none if the verdict did not call
	// for one.
	Rules []string `json:"rules"`
}

// Explain asks why a server can or cannot be promoted, or with an empty name
// about the cluster.
func (c *Client) Explain(ctx context.Context, server string) (*Explanation, error) {
	path := c.path("explain")
	if server != "" {
		path += "?" + url.Values{"server": {server}}.Encode()
	}
	return get[Explanation](ctx, c, path)
}

func (s *Server) getExplain(w http.ResponseWriter, r *http.Request) error {
	cluster, err := clusterOf(r)
	if err != nil {
		return err
	}
	name := r.URL.Query().Get("server")
	if name != "" {
		if err := CheckName("server", name); err != nil {
			return err
		}
	}
	e, err := s.read.Explain(r.Context(), cluster, name)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, e)
	return nil
}
