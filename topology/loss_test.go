package topology

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/repld/repld/internal/gtid"
)

// lost is a cluster whose masters db1 and then db2 were lost, db3 being out of
// reach during the first failover; db3 is the master.
func lost(t *testing.T) *State {
	t.Helper()
	st := after(t, running(t, IntentFailover), opening("db2", 5, true),
		RecordOpened{Cluster: "main", Intent: "7", At: time.Unix(9, 0), Unseen: []string{"db3"}}, EndIntent{Cluster: "main", Intent: "7"})
	return after(t, st, BeginIntent{"main", Intent{ID: "8", Kind: IntentFailover, Epoch: 3, OldMaster: "db2", Armed: true}},
		SendOpening{"main", "8", Opening{Server: "db3", Applied: gtid.GTID{Server: 2, Seq: 9}}},
		RecordOpened{Cluster: "main", Intent: "8", At: time.Unix(19, 0)}, EndIntent{Cluster: "main", Intent: "8"})
}

// 1. Each lost master has its own evidence; a second loss takes none away.
// 2. It ends when the server is back, is seeded anew, removed or master again.
// 3. Evidence that is destroyed is never taken for evidence that nothing was there.
func TestEachLossHasItsOwnEvidence(t *testing.T) {
	st := lost(t)
	c := st.Clusters["main"]
	one, two := c.Loss("db1"), c.Loss("db2")
	if one == nil || two == nil || one.Fork.Seq != 5 || two.Fork.Seq != 9 || !two.Armed || !slices.Equal(one.Unseen, []string{"db3"}) || len(two.Unseen) > 0 {
		t.Fatalf("losses %+v %+v", one, two)
	}
	for name, cmd := range map[string]Command{
		"seen following": MarkExamined{"main", "db1"},
		"seeded anew":    MarkReseeding{"main", "db1", false},
		"let in again":   MarkDiverged{Cluster: "main", Server: "db1"},
		"removed":        RemoveServer{"main", "db1"},
		"adopted":        FoundEra{Cluster: "main", Master: "db1", Era: gtid.Era{Epoch: 4, Server: 1, First: 20}},
	} {
		if c := after(t, st, cmd).Clusters["main"]; c.Loss("db1") != nil || c.Loss("db2") == nil {
			t.Errorf("%s: losses %+v", name, c.Losses)
		}
	}
	if b := after(t, st, MarkExamined{"main", "db3"}).Clusters["main"].Loss("db1"); len(b.Unseen)+len(b.Forgotten) > 0 {
		t.Errorf("db3 was examined: %+v", b)
	}
	for name, cmd := range map[string]Command{
		"re-seeded": MarkReseeding{"main", "db3", true}, "set up anew": MarkJoining{"main", "db3", true},
	} {
		b := after(t, st, cmd, MarkExamined{"main", "db3"}).Clusters["main"].Loss("db1")
		if len(b.Unseen) > 0 || !slices.Equal(b.Forgotten, []string{"db3"}) {
			t.Errorf("%s: %+v", name, b)
		}
	}
	if one.GivenUp {
		t.Error("nobody gave anything up")
	}
	given := after(t, running(t, IntentFailover), AcceptLoss{"main", "7", 3}, opening("db2", 5, true), RecordOpened{Cluster: "main", Intent: "7"})
	if !given.Clusters["main"].Loss("db1").GivenUp {
		t.Error("what a person gave up is not remembered")
	}
	if c.Servers["db3"].Followed != 3 || c.Servers["db2"].Followed != 2 || c.Servers["db1"].Followed != 1 {
		t.Errorf("who followed what: %+v", c.Servers)
	}
	if n := after(t, st, MarkFollowing{"main", []string{"db1"}}).Clusters["main"].Servers["db1"].Followed; n != 3 {
		t.Errorf("db1 followed epoch %d", n)
	}
}

// A state file of a version that kept only the last loss is read as it is.
func TestAStateFileWithTheLastLossOnly(t *testing.T) {
	p := newPlace(t)
	s := p.open(t)
	sample(t, s)
	c := s.Cluster("main")
	must(t, s.Close())
	raw, err := json.Marshal(c)
	must(t, err)
	var fields map[string]any
	must(t, json.Unmarshal(raw, &fields))
	fields["broken"] = map[string]any{"epoch": 1, "master": "db2", "at": "2026-01-02T03:04:05Z", "armed": true, "fork": "0-1-5", "no_tx": 3, "unseen": []string{"db3"}}
	for _, server := range fields["servers"].(map[string]any) {
		delete(server.(map[string]any), "followed")
	}
	raw, err = json.Marshal(fields)
	must(t, err)
	db, err := bolt.Open(filepath.Clean(p.state), 0o600, nil)
	must(t, err)
	must(t, db.Update(func(tx *bolt.Tx) error { return tx.Bucket(bucketClusters).Put([]byte("main"), raw) }))
	must(t, db.Close())
	s = p.open(t)
	b := s.Cluster("main").Loss("db2")
	if b == nil || !b.Armed || b.Fork.Seq != 5 || b.NoTx != 3 || !slices.Equal(b.Unseen, []string{"db3"}) {
		t.Fatalf("%+v", b)
	}
	// It is written in the new form, and only there.
	must(t, s.Apply(MarkFollowing{"main", []string{"db1"}}))
	must(t, s.Close())
	s = p.open(t)
	defer s.Close()
	if c := s.Cluster("main"); len(c.Losses) != 1 || c.Servers["db1"].Followed != 1 {
		t.Errorf("%+v", c)
	}
}

// A server that is seeded anew follows the present master from then on: what it
// held before says nothing about it.
func TestASeededServerFollowsThePresentMaster(t *testing.T) {
	st := &State{Clusters: map[string]*Cluster{"main": {Name: "main", Epoch: 4, Servers: map[string]*Server{"db1": {Name: "db1", Followed: 1}}}}}
	st = after(t, st, MarkReseeding{Cluster: "main", Server: "db1", Reseeding: true})
	if f := st.Clusters["main"].Servers["db1"].Followed; f != 4 {
		t.Errorf("it followed epoch %d last", f)
	}
}
