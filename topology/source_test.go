package topology

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// tree is db1 <- db2 <- db3, and db4 a slave of db1.
func tree(t *testing.T) *State {
	t.Helper()
	st := running(t, IntentFailover)
	return after(t, st, EndIntent{Cluster: "main", Intent: "7", At: time.Unix(3, 0)}, PutServer{"main", member(3)},
		SetSource{"main", "db3", "db2"}, SetSource{"main", "db4", "db1"})
}

func sources(st *State) map[string]string {
	out := map[string]string{}
	for name, s := range st.Clusters["main"].Servers {
		out[name] = s.Source
	}
	return out
}

func TestAChainIsRecorded(t *testing.T) {
	c := tree(t).Clusters["main"]
	if !c.Chained("db3") || c.Chained("db2") || c.Chained("db1") || c.Chained("db9") {
		t.Error("only db3 is chained")
	}
	if !slices.Equal(c.Children("db1"), []string{"db2", "db4"}) || !slices.Equal(c.Children("db2"), []string{"db3"}) || c.Children("db3") != nil {
		t.Error(c.Children("db1"), c.Children("db2"), c.Children("db3"))
	}
	if !c.Below("db3", "db1") || !c.Below("db3", "db2") || c.Below("db2", "db3") || c.Below("db4", "db2") {
		t.Error("who is below whom")
	}
	if got := c.At("::1", 3306); got != "" {
		t.Errorf("%q is no member", got)
	}
	c.Servers["db2"].Address = "[::1]:3307"
	if got := c.At("::1", 3307); got != "db2" {
		t.Errorf("%q", got)
	}
}

func TestASourceThatCannotBeIsRefused(t *testing.T) {
	st := tree(t)
	loop := *st.Clusters["main"].Servers["db2"]
	loop.Source = "db3"
	for name, c := range map[string]struct {
		cmd  Command
		want error
	}{
		"itself":                  {SetSource{"main", "db3", "db3"}, ErrInconsistent},
		"one that is below it":    {SetSource{"main", "db2", "db3"}, ErrInconsistent},
		"a loop by another way":   {PutServer{"main", loop}, ErrInconsistent},
		"one that does not exist": {SetSource{"main", "db3", "db9"}, ErrNoServer},
		"the master's":            {SetSource{"main", "db1", "db2"}, ErrInconsistent},
	} {
		if _, err := st.Apply(c.cmd); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if next := after(t, st, SetSource{"main", "db4", "db3"}, SetSource{"main", "db4", "db1"}); next.Clusters["main"].Servers["db4"].Source != "db1" {
		t.Error("back to the master")
	}
	open := after(t, st, BeginIntent{"main", Intent{ID: "7", Kind: IntentFailover, Epoch: 2, OldMaster: "db1"}})
	if _, err := open.Apply(SetSource{"main", "db3", "db1"}); !errors.Is(err, ErrIntentOpen) {
		t.Error(err)
	}
}

// Whoever becomes the master, the tree below it has no loop and no gap.
func TestATreeIsReRooted(t *testing.T) {
	for master, want := range map[string]map[string]string{
		"db2": {"db1": "db2", "db2": "", "db3": "db2", "db4": "db2"},
		"db3": {"db1": "db3", "db2": "db3", "db3": "", "db4": "db3"},
		"db4": {"db1": "db4", "db2": "db4", "db3": "db2", "db4": ""},
	} {
		st := tree(t)
		st = after(t, st, BeginIntent{"main", Intent{ID: "7", Kind: IntentFailover, Epoch: 2, OldMaster: "db1"}}, opening(master, 5, true),
			RecordOpened{Cluster: "main", Intent: "7", At: time.Unix(6, 0)})
		for name, source := range sources(st) {
			if source != want[name] {
				t.Errorf("under %s, %s has the source %q, want %q", master, name, source, want[name])
			}
		}
	}
	removed := after(t, tree(t), RemoveServer{"main", "db2"})
	if got := removed.Clusters["main"].Servers["db3"].Source; got != "db1" {
		t.Errorf("the relay is removed, its slave has the source %q", got)
	}
}
