package topology

import (
	"errors"
	"testing"
	"time"

	"github.com/repld/repld/internal/gtid"
)

// running is a cluster of three with an armed master and an open intent.
func running(t *testing.T, kind IntentKind) *State {
	t.Helper()
	cmds := []Command{CreateCluster{Name: "main", ID: "c", Durability: SemiSync}}
	for i := range 3 {
		cmds = append(cmds, PutServer{"main", member(i)})
	}
	cmds = append(cmds,
		FoundEra{Cluster: "main", Master: "db1", Era: gtid.Era{Epoch: 1, Server: 1, First: 1}, At: time.Unix(1, 0)},
		SetDurabilityState{Cluster: "main", State: DurabilityArmed, At: time.Unix(2, 0)},
		BeginIntent{"main", Intent{ID: "7", Kind: kind, Epoch: 2, OldMaster: "db1"}})
	return after(t, &State{Clusters: map[string]*Cluster{}}, cmds...)
}

func after(t *testing.T, st *State, cmds ...Command) *State {
	t.Helper()
	next, err := st.Apply(cmds...)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func opening(server string, seq uint64, armed bool) SendOpening {
	return SendOpening{"main", "7", Opening{Server: server, Applied: gtid.GTID{Server: 1, Seq: seq}, Armed: armed, Sent: time.Unix(5, 0)}}
}

// What would let a second server open, or forget that one may be open, is
// refused whatever the decision was.
func TestCommandsRefuse(t *testing.T) {
	begun := running(t, IntentFailover)
	sent := after(t, begun, opening("db2", 5, true))
	for name, c := range map[string]struct {
		st   *State
		cmd  Command
		want error
	}{
		"a second intent":                      {begun, BeginIntent{"main", Intent{ID: "8"}}, ErrIntentOpen},
		"degrading while an intent is open":    {begun, SetDurabilityState{Cluster: "main", State: DurabilityDegraded}, ErrIntentOpen},
		"opening while a person must confirm":  {after(t, begun, RequireConfirmation{"main", "older"}), opening("db2", 5, true), ErrInconsistent},
		"opening another server after one":     {sent, opening("db3", 5, true), ErrInconsistent},
		"ending while a server may be open":    {sent, EndIntent{Cluster: "main", Intent: "7"}, ErrInconsistent},
		"an opened server that was never sent": {begun, RecordOpened{Cluster: "main", Intent: "7"}, ErrInconsistent},
		"a step of an intent of the past":      {sent, WithdrawOpening{"main", "6"}, ErrNoIntent},
		"removing the master of others":        {begun, RemoveServer{"main", "db1"}, ErrInconsistent},
		"an address that is taken":             {begun, PutServer{"main", Server{Name: "db9", Address: "db2:3306"}}, ErrExists},
		"dropping a cluster with servers":      {begun, DropCluster{"main"}, ErrInconsistent},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := c.st.Apply(c.cmd); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

func TestAnOpenedServerBeginsAnEra(t *testing.T) {
	st := after(t, running(t, IntentFailover), opening("db2", 5, true), RecordOpened{Cluster: "main", Intent: "7", At: time.Unix(9, 0)})
	c := st.Clusters["main"]
	if !c.ArmedSeen.Equal(time.Unix(5, 0)) {
		t.Errorf("seen armed at %v, want the time of the opening: it was armed before", c.ArmedSeen)
	}
	if c.Master != "db2" || c.Epoch != 2 || c.Floor.Seq != 5 || c.DurabilityState != DurabilityArmed {
		t.Errorf("cluster %+v", c)
	}
	if !c.Servers["db1"].MustFence || c.Servers["db1"].Source != "db2" || c.Servers["db3"].Source != "db2" {
		t.Errorf("servers %+v", c.Servers)
	}
	if !c.Lineage.Has(gtid.GTID{Server: 2, Seq: 6}) || c.Lineage.Has(gtid.GTID{Server: 1, Seq: 6}) || !c.Lineage.Has(gtid.GTID{Server: 1, Seq: 5}) {
		t.Errorf("lineage %v", c.Lineage)
	}
	if after(t, st, EndIntent{Cluster: "main", Intent: "7", At: time.Unix(10, 0), Automatic: true}).Clusters["main"].LastFailover.IsZero() {
		t.Error("block_window does not begin")
	}
}

// A position that was promised while an acker was out of reach stays promised.
func TestTheFloorOnlyRises(t *testing.T) {
	st := after(t, running(t, IntentReopen), EndIntent{Cluster: "main", Intent: "7"})
	degrade := func(g gtid.GTID) *Cluster {
		st = after(t, st, SetDurabilityState{Cluster: "main", State: DurabilityDegraded, Promised: g})
		return st.Clusters["main"]
	}
	if c := degrade(gtid.GTID{Server: 1, Seq: 8}); c.Floor.Seq != 8 || c.DurabilityState != DurabilityDegraded {
		t.Errorf("floor %v", c.Floor)
	}
	if c := degrade(gtid.GTID{Server: 1, Seq: 3}); c.Floor.Seq != 8 {
		t.Errorf("the floor sank to %v", c.Floor)
	}
	if c := degrade(gtid.GTID{Server: 9, Seq: 12}); c.Floor.Seq != 8 {
		t.Errorf("the floor left the lineage: %v", c.Floor)
	}
}

// A master that is opened again without an acker counts as degraded from the
// moment that the statement is sent, seen open or not.
func TestReopeningWithoutAnAckerDegradesAtOnce(t *testing.T) {
	c := after(t, running(t, IntentReopen), opening("db1", 5, false)).Clusters["main"]
	if c.DurabilityState != DurabilityDegraded || c.Floor.Seq != 5 {
		t.Errorf("%s, floor %v", c.DurabilityState, c.Floor)
	}
	c = after(t, running(t, IntentReopen), opening("db1", 5, true)).Clusters["main"]
	if c.DurabilityState != DurabilityArmed || c.Floor.Seq != 0 {
		t.Errorf("with one: %s, floor %v", c.DurabilityState, c.Floor)
	}
}
