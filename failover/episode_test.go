package failover

import (
	"log/slog"
	"testing"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/topology"
)

// notes is a journal that keeps the declined failovers.
type notes struct {
	forgetful
	list []topology.Declined
}

func (j *notes) Apply(cmds ...topology.Command) error {
	for _, cmd := range cmds {
		if n, ok := cmd.(topology.NoteDeclined); ok {
			j.list = append(j.list, n.Declined)
		}
	}
	return nil
}

// A failover that did not happen is remembered with the worst that was said of
// the master and what held it back, and ends when the master is in order again,
// when a failover comes after all, and also if repld was restarted meanwhile.
func TestEpisodes(t *testing.T) {
	alive, suspect := health.Verdict{State: health.StateAlive}, health.Verdict{State: health.StateSuspect, Evidence: []string{"silence"}}
	vetoed, dead := health.Verdict{State: health.StateVetoed, Evidence: []string{"db2 receives"}}, health.Verdict{State: health.StateDead, Evidence: []string{"refused"}}
	paused := Action{Kind: KindWait, Blocked: []Problem{{Code: "paused", Text: "automatic action is paused"}}}
	type look struct {
		v      health.Verdict
		a      Action
		change func(in *Input)
	}
	intent := func(k topology.IntentKind) func(*Input) {
		return func(in *Input) { in.View.Cluster.Intent = &topology.Intent{Kind: k} }
	}
	unkind := func(in *Input) {
		seen(*in, "db1", func(_ *health.ServerView, o *health.Observation, _ *health.SlaveStatus) {
			o.Reach, o.Err = health.ReachUnkind, "1040: Too many connections"
		})
	}
	restarting := func(in *Input) { in.View.Cluster.RestartUntil = in.View.Now.Add(time.Minute) }
	open := &topology.Declined{At: chainNow.Add(-time.Minute), Master: "db1", Verdict: "dead", Rules: []string{"paused: p"}}
	for name, c := range map[string]struct {
		before *topology.Declined
		looks  []look // one each second
		want   []string
	}{
		"nothing":                   {looks: []look{{alive, Action{}, nil}, {alive, Action{}, nil}}},
		"a silence":                 {looks: []look{{suspect, Action{}, nil}, {alive, Action{}, nil}}, want: []string{"suspect 1s"}},
		"a veto, then a silence":    {looks: []look{{vetoed, Action{}, nil}, {suspect, Action{}, nil}, {alive, Action{}, nil}}, want: []string{"vetoed 2s"}},
		"too many connections":      {looks: []look{{alive, Action{}, unkind}, {alive, Action{}, nil}}, want: []string{"unkind 1s"}},
		"dead while paused":         {looks: []look{{dead, paused, nil}, {dead, paused, nil}, {alive, Action{}, nil}}, want: []string{"dead paused", "dead paused 2s"}},
		"and restarted by itself":   {looks: []look{{dead, paused, nil}, {alive, Action{}, intent(topology.IntentReopen)}}, want: []string{"dead paused", "dead paused 1s"}},
		"and failed over by hand":   {looks: []look{{dead, paused, nil}, {dead, Action{}, intent(topology.IntentFailover)}, {alive, Action{}, nil}}, want: []string{"dead paused", "dead paused 1s"}},
		"and not seen in between":   {looks: []look{{dead, paused, nil}, {alive, Action{}, func(in *Input) { in.View.Cluster.Epoch = 2 }}}, want: []string{"dead paused", "dead paused 1s"}},
		"a failover at once":        {looks: []look{{suspect, Action{}, nil}, {dead, Action{}, intent(topology.IntentFailover)}, {alive, Action{}, nil}}},
		"repld restarted meanwhile": {before: open, looks: []look{{dead, paused, nil}, {alive, Action{}, nil}}, want: []string{"dead paused 1m1s"}},
		"and the master was back":   {before: open, looks: []look{{alive, Action{}, nil}}, want: []string{"dead paused 1m0s"}},
		"a restart on order":        {looks: []look{{dead, Action{}, restarting}, {alive, Action{}, nil}}},
	} {
		t.Run(name, func(t *testing.T) {
			j := &notes{}
			l := NewLoop(LoopConfig{Cluster: "main", Journal: j, Log: slog.New(slog.DiscardHandler)})
			for i, k := range c.looks {
				in := three()
				in.View.Cluster.Declined = c.before
				in.View.Now, in.Verdict = chainNow.Add(time.Duration(i)*time.Second), k.v
				if k.change != nil {
					k.change(&in)
				}
				l.watchEpisode(in, k.a)
			}
			if len(j.list) != len(c.want) {
				t.Fatalf("%+v, not %v", j.list, c.want)
			}
			for i, d := range j.list {
				got := d.Verdict
				if len(d.Rules) > 0 {
					got += " paused"
				}
				if !d.Until.IsZero() {
					got += " " + (d.Until.Sub(d.At)).String()
				}
				if want := c.want[i]; got != want || d.Master != "db1" {
					t.Errorf("%s (%+v), not %s", got, d, want)
				}
			}
		})
	}
}
