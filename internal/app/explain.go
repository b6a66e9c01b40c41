package app

import (
	"context"
	"fmt"
	"time"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/topology"
)

// Explain implements [api.Reader].
func (s *service) Explain(_ context.Context, cluster, name string) (*api.Explanation, error) {
	c := s.memory.Cluster(cluster)
	if c == nil {
		return nil, api.UnknownCluster(cluster)
	}
	if name != "" && c.Servers[name] == nil {
		return nil, unknownServer(cluster, name, "replctl status")
	}
	in, ok := failover.Input{}, false
	if s.loops != nil {
		in, _, ok = s.loops.Report(cluster)
	}
	if !ok { // nobody watches it
		v := &health.View{Now: time.Now(), Cluster: c, Servers: map[string]*health.ServerView{}}
		for n := range c.Servers {
			v.Servers[n] = &health.ServerView{}
		}
		in = failover.Input{View: v, Verdict: health.Verdict{State: health.StateUnknown}}
	}
	if in.View.Cluster.Master == "" || name != "" && in.View.Cluster.Servers[name] == nil {
		return nil, &fault.Error{Kind: fault.Refused, Code: "no_master", What: "the cluster has no master yet", Cause: "nothing was set up",
			State: "nothing was changed", Do: "replctl init master NAME --address HOST:PORT"}
	}
	out := explanation(failover.Explain(in, name))
	out.Cluster, out.LastDeclined = cluster, declined(in.View.Cluster.Declined)
	if name == "" {
		out.Servers = []api.Explanation{}
		for _, n := range in.View.Cluster.Names() {
			out.Servers = append(out.Servers, *explanation(failover.Explain(in, n)))
		}
		return out, nil
	}
	out.Extra = []string{}
	for _, g := range in.View.Cluster.Servers[name].Diverged {
		out.Extra = append(out.Extra, g.String())
	}
	if len(out.Extra) > 0 {
		out.SavedUnder = fmt.Sprintf("errant/%s/%s", cluster, name)
	}
	return out, nil
}

func explanation(e failover.Explanation) *api.Explanation {
	out := &api.Explanation{Server: word(e.Server), Promotable: e.Promotable, Rules: []api.Rule{}}
	for _, r := range e.Rules {
		out.Rules = append(out.Rules, api.Rule{Code: r.Code, Holds: r.Holds, Measured: r.Measured, Needs: r.Needs, Text: r.Text})
	}
	return out
}

func declined(d *topology.Declined) *api.Declined {
	if d == nil {
		return nil
	}
	out := &api.Declined{Master: d.Master, Verdict: d.Verdict, At: api.FormatTime(d.At), Evidence: append([]string{}, d.Evidence...), Rules: append([]string{}, d.Rules...)}
	if !d.Until.IsZero() {
		ms := millis(d.Until.Sub(d.At))
		out.LastedMS = &ms
	}
	return out
}
