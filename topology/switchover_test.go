package topology

import (
	"testing"
	"time"

	"github.com/repld/repld/internal/gtid"
)

// A switchover that is given up leaves repld owing the master an opening, and one
// that is rolled back with nobody to wait for keeps what was promised before.
func TestASwitchoverGivenUp(t *testing.T) {
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	st := &State{Clusters: map[string]*Cluster{}}
	one, two := gtid.GTID{Server: 1, Seq: 1}, gtid.GTID{Server: 1, Seq: 2}
	put := func(name string, id uint32) Command {
		return PutServer{Cluster: "main", Server: Server{Name: name, Address: "127.0.0.1:" + name[2:], Identity: Identity{ServerID: id, UID: name}, Role: RoleSlave, Promotion: PromotionNeutral}}
	}
	st = after(t, st, CreateCluster{Name: "main", ID: "c", Durability: SemiSync}, put("db1", 1), put("db2", 2),
		FoundEra{Cluster: "main", Master: "db1", Era: gtid.Era{Epoch: 1, Server: 1, First: one.Seq}, At: at},
		SetDurabilityState{Cluster: "main", State: DurabilityArmed, At: at},
		BeginIntent{Cluster: "main", Intent: Intent{ID: "1", Kind: IntentSwitchover, Epoch: 2, OldMaster: "db1", To: "db2"}})
	ended := after(t, st, EndIntent{Cluster: "main", Intent: "1", At: at})
	if !ended.Clusters["main"].Shutting {
		t.Error("after a switchover that ended without an opening nothing is owed")
	}
	if after(t, ended, MarkOpen{Cluster: "main"}).Clusters["main"].Shutting {
		t.Error("an open master is owed an opening")
	}
	back := after(t, st, RollBack{Cluster: "main", Intent: "1", Why: "late"}, SendOpening{Cluster: "main", Intent: "1",
		Opening: Opening{Server: "db1", Applied: two, Sent: at}}).Clusters["main"]
	if back.Floor != two || back.DurabilityState != DurabilityDegraded {
		t.Errorf("floor %s, %s after an unarmed opening, want %s, degraded", back.Floor, back.DurabilityState, two)
	}
}
