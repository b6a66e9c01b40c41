package failover

import (
	"testing"
	"time"

	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// A former master that was out of sight is compared before it follows, once for
// each start of it; a server that never was master, or has nothing of its own in
// its log, is not.
func TestAFormerMasterIsComparedBeforeItFollows(t *testing.T) {
	for name, c := range map[string]struct {
		change func(in *Input)
		want   Kind
	}{
		"lost":                            {func(*Input) {}, KindCompare},
		"back, and restarted":             {func(in *Input) { in.View.Cluster.Losses, in.View.Cluster.OpenedAt = nil, time.Unix(100, 0) }, KindCompare},
		"of a switchover, and running on": {func(in *Input) { in.View.Cluster.Losses, in.View.Cluster.OpenedAt = nil, in.View.Now }, KindAttach},
		"compared":                        {func(in *Input) { in.Effects["db2"] = Effect{Last: KindCompare, At: in.View.Now.Add(-time.Minute)} }, KindAttach},
		"compared in vain": {func(in *Input) {
			in.Effects["db2"] = Effect{Last: KindCompare, Failed: 1, At: in.View.Now.Add(-time.Minute)}
		}, KindCompare},
		"compared before it restarted": {func(in *Input) { in.Effects["db2"] = Effect{Last: KindCompare, At: time.Unix(900, 0)} }, KindCompare},
		"compared, its attaching failed": {func(in *Input) {
			in.Effects["db2"] = Effect{Last: KindAttach, Failed: 1, At: in.View.Now.Add(-time.Minute)}
		}, KindAttach},
		"never master": {func(in *Input) { in.View.Cluster.Servers["db2"].Identity.ServerID = 9 }, KindAttach},
		"a copy": {func(in *Input) {
			sv := in.View.Servers["db2"]
			sv.LastOK.SlavePos, sv.LastOK.BinlogPos, sv.LastOK.BinlogState = sv.LastOK.BinlogPos, gtid.Position{}, gtid.State{}
			sv.Last = sv.LastOK
		}, KindAttach},
	} {
		in, mv, sv := idle()
		c2 := in.View.Cluster
		c2.Lineage, c2.Epoch = gtid.Lineage{{Epoch: 1, Server: 2, First: 1}, {Epoch: 2, Server: 1, First: 9}}, 2
		c2.Servers["db2"].Identity.ServerID = 2
		c2.Losses = []*topology.Break{{Master: "db2"}}
		old := gtid.GTID{Server: 2, Seq: 8}
		sv.LastOK.SlavePos, sv.LastOK.BinlogPos, sv.LastOK.BinlogState, sv.LastOK.Started = gtid.Position{}, gtid.At(old), gtid.StateOf(old), time.Unix(1000, 0)
		sv.Last = sv.LastOK
		mv.LastOK.Sent, mv.LastOK.At = sv.Last.At.Add(time.Millisecond), sv.Last.At.Add(2*time.Millisecond)
		mv.Last = mv.LastOK
		in.Effects = map[string]Effect{}
		c.change(&in)
		a := Decide(in)
		if a.Kind != c.want || a.Kind == KindCompare && a.Last != old {
			t.Errorf("%s: %+v", name, a)
		}
	}
}
