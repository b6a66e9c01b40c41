package provision

import (
	"strings"
	"testing"

	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/internal/mysql"
	"github.com/repld/repld/topology"
)

// A master that began as a copy has nothing older in its binary log. A server
// that has is sound; one with transactions of its own is not.
func TestServersBehindAMasterThatBeganAsACopy(t *testing.T) {
	lineage := gtid.Lineage{{Epoch: 1, Server: 2, First: 10}, {Epoch: 2, Server: 1, First: 101}}
	for name, c := range map[string]struct {
		lineage gtid.Lineage
		has     string
		want    string // the status of the rule
		restore bool   // whether --clone none takes it at its own position
	}{
		"all of the master's":             {lineage, "0-1-120", "ok", true},
		"the era before":                  {lineage, "0-2-100", "ok", true},
		"both":                            {lineage, "0-2-100,0-1-120", "ok", true},
		"a tail of the era before":        {lineage, "0-2-105", "fail", false},
		"its own":                         {lineage, "0-2-100,0-9-110", "fail", false},
		"newer than the master":           {lineage, "0-1-121", "fail", false},
		"older than the lineage":          {lineage, "0-9-5,0-2-100", "warn", false},
		"what the master is a copy of":    {nil, "0-2-100", "ok", false},
		"more than it is a copy of":       {nil, "0-2-101", "fail", false},
		"what one before that has left":   {nil, "0-3-40,0-2-100", "warn", false},
		"its own, beyond the copy's data": {nil, "0-3-140,0-2-100", "fail", false},
	} {
		t.Run(name, func(t *testing.T) {
			has, err := gtid.ParseState(c.has)
			if err != nil {
				t.Fatal(err)
			}
			at := gtid.At(has.Last(0))
			var f, m Facts
			f.BinlogState, f.BinlogPos, f.SlavePos = has, at, at
			f.Settings = map[string]mysql.Setting{"log_bin": {Value: "ON"}}
			m.BinlogState, m.SlavePos = gtid.StateOf(gtid.GTID{Server: 1, Seq: 120}), gtid.At(gtid.GTID{Server: 2, Seq: 100})
			ctx := Context{Cluster: topology.Cluster{Lineage: c.lineage}}
			if got := judgeErrant(f, ctx, m); string(got.Result) != c.want {
				t.Errorf("adopt: %+v", got)
			}
			if c.lineage == nil {
				return
			}
			err = checkRestored(at, f, ctx, SlaveFacts{MasterFacts: m.AdminFacts})
			if (err == nil) != c.restore {
				t.Errorf("--clone none: %v", err)
			}
			if err != nil && strings.Contains(err.Error(), "%!") {
				t.Error(err)
			}
		})
	}
}
