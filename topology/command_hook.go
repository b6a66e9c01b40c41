package topology

import (
	"slices"
	"time"
)

// AllowFailover journals that hooks.pre_failover let an open failover go on.
type AllowFailover struct {
	Cluster, Intent string
	At              time.Time
}

func (c AllowFailover) cluster() string  { return c.Cluster }
func (c AllowFailover) structural() bool { return false }
func (c AllowFailover) apply(st *State) error {
	_, in, err := st.intent(c.Cluster, c.Intent)
	if err == nil {
		in.Allowed = c.At
	}
	return err
}

// RecordFenced journals that hooks.fence made sure that the old master of an
// open failover accepts no writes any more.
type RecordFenced struct {
	Cluster, Intent string
	At              time.Time
}

func (c RecordFenced) cluster() string  { return c.Cluster }
func (c RecordFenced) structural() bool { return false }
func (c RecordFenced) apply(st *State) error {
	_, in, err := st.intent(c.Cluster, c.Intent)
	if err == nil {
		in.Fenced = c.At
	}
	return err
}

// TakeOver journals that a person ordered what an open failover does by itself:
// the rules that hold back only what nobody ordered do so no longer.
type TakeOver struct{ Cluster, Intent string }

func (c TakeOver) cluster() string  { return c.Cluster }
func (c TakeOver) structural() bool { return false }
func (c TakeOver) apply(st *State) error {
	_, in, err := st.intent(c.Cluster, c.Intent)
	if err == nil {
		in.Manual = true
	}
	return err
}

// MarkTold journals that hooks.post_failover has been run for a change of master,
// whatever came of it.
type MarkTold struct{ Cluster, Operation string }

func (c MarkTold) cluster() string  { return c.Cluster }
func (c MarkTold) structural() bool { return false }
func (c MarkTold) apply(st *State) error {
	cl, err := st.find(c.Cluster)
	if err != nil {
		return err
	}
	cl.Changes = slices.DeleteFunc(cl.Changes, func(x Change) bool { return x.Operation == c.Operation })
	return nil
}
