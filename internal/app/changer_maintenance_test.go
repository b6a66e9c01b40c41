package app

import (
	"testing"
	"time"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/health"
	"github.com/repld/repld/topology"
)

// A server is out of service once it acknowledges nothing any more and another
// one has all that the master had after that; never by a position from before.
func TestWhenAServerIsRetired(t *testing.T) {
	begun := now
	at := func(ms int) time.Time { return begun.Add(time.Duration(ms) * time.Millisecond) }
	type server struct {
		sent  int // ms after the order; the answer is 1 ms later
		at    string
		reach health.Reach
		acks  bool
	}
	ok, refused, silent := health.ReachOK, health.ReachRefused, health.ReachTimeout
	for name, c := range map[string]struct {
		master, db2, db3 server // db2 goes, db3 stays
		change           func(c *topology.Cluster)
		want             bool
	}{
		"all is known":                         {server{30, "0-1-9", ok, false}, server{20, "0-1-9", ok, false}, server{30, "0-1-9", ok, true}, nil, true},
		"it still acknowledges":                {server{30, "0-1-9", ok, false}, server{20, "0-1-9", ok, true}, server{30, "0-1-9", ok, true}, nil, false},
		"it was seen before the order":         {server{30, "0-1-9", ok, false}, server{-5, "0-1-9", ok, false}, server{30, "0-1-9", ok, true}, nil, false},
		"the master's position is from before": {server{20, "0-1-8", ok, false}, server{20, "0-1-9", ok, false}, server{30, "0-1-8", ok, true}, nil, false},
		"the other one lacks something":        {server{30, "0-1-9", ok, false}, server{20, "0-1-9", ok, false}, server{30, "0-1-8", ok, true}, nil, false},
		"the other one is out of reach":        {server{30, "0-1-9", ok, false}, server{20, "0-1-9", ok, false}, server{30, "0-1-9", refused, false}, nil, false},
		"the other one is never promoted":      {server{30, "0-1-9", ok, false}, server{20, "0-1-9", ok, false}, server{30, "0-1-1", ok, false}, func(c *topology.Cluster) { c.Servers["db3"].Promotion = topology.PromotionNever }, true},
		"it is down":                           {server{30, "0-1-9", ok, false}, server{20, "", refused, false}, server{30, "0-1-9", ok, true}, nil, true},
		"it is cut off":                        {server{30, "0-1-9", ok, false}, server{20, "", silent, false}, server{30, "0-1-9", ok, true}, nil, false},
		"it is cut off, and the only slave":    {server{30, "0-1-9", ok, false}, server{20, "", silent, false}, server{30, "0-1-1", ok, false}, func(c *topology.Cluster) { c.Servers["db3"].Promotion = topology.PromotionNever }, true},
		"it is cut off, nobody acknowledged":   {server{30, "0-1-9", ok, false}, server{20, "", silent, false}, server{30, "0-1-1", ok, true}, func(c *topology.Cluster) { c.Durability = topology.Async }, true},
		"the order is not in the view yet":     {server{30, "0-1-9", ok, false}, server{20, "0-1-9", ok, false}, server{30, "0-1-9", ok, true}, func(c *topology.Cluster) { c.Servers["db2"].Maintenance = false }, false},
		"the master is out of reach":           {server{30, "0-1-9", refused, false}, server{20, "0-1-9", ok, false}, server{30, "0-1-9", ok, true}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			v := view(t)
			db3 := *v.Cluster.Servers["db2"]
			db3.Name, db3.Address = "db3", "10.0.0.3:3306"
			v.Cluster.Servers["db3"], v.Servers["db3"] = &db3, &health.ServerView{}
			v.Cluster.Servers["db2"].Maintenance = true
			if c.change != nil {
				c.change(v.Cluster)
			}
			for name, s := range map[string]server{"db1": c.master, "db2": c.db2, "db3": c.db3} {
				o := health.Observation{Reach: s.reach, Sent: at(s.sent), At: at(s.sent + 1)}
				sv := &health.ServerView{}
				switch {
				case s.reach == ok:
					o.BinlogPos, o.SlavePos = pos(t, s.at), pos(t, s.at)
					o.SemiSync.SlaveOn = s.acks
				case s.reach == refused:
					sv.Refusals = 3
				}
				sv.Last = o
				v.Servers[name] = sv
			}
			r := retirement{name: "db2", begun: begun}
			rep := failover.Report{Servers: map[string]failover.ServerReport{"db3": {Promotable: c.db3.reach == ok}}}
			if got := r.done(failover.Input{View: v}, rep); got != c.want {
				t.Errorf("%v; missing: %q", got, r.missing)
			} else if !got && r.missing == "" {
				t.Error("it does not say what is missing")
			}
		})
	}
}

// That nothing would be lost is no warning.
func TestAPlanWarnsOnlyOfALossThatMayBe(t *testing.T) {
	some, nothing := uint64(3), uint64(0)
	for want, risk := range map[int][]*uint64{0: {&nothing}, 1: {nil, &some}} {
		for _, n := range risk {
			if got := failoverPlan(failover.FailoverPlan{AtRisk: n}).Warnings; len(got) != want {
				t.Errorf("want %d warnings: %q", want, got)
			}
		}
	}
}
