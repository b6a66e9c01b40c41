package failover

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// still is an observer whose view does not change by itself.
type still struct{ view health.View }

func (s *still) View() *health.View                 { v := s.view; v.Now = time.Now(); return &v }
func (s *still) Changed() <-chan struct{}           { return nil }
func (s *still) SetCluster(*topology.Cluster)       {}
func (s *still) Refresh(context.Context, ...string) {}
func (s *still) Hurry(time.Duration)                {}

// forgetful is a journal that keeps nothing and counts what is begun.
type forgetful struct{ begun []topology.Intent }

func (j *forgetful) Cluster(string) *topology.Cluster { return nil }
func (j *forgetful) Apply(cmds ...topology.Command) error {
	for _, cmd := range cmds {
		if b, ok := cmd.(topology.BeginIntent); ok {
			j.begun = append(j.begun, b.Intent)
		}
	}
	return nil
}
func (j *forgetful) NewOperation(op topology.Operation) (*topology.Operation, error) {
	op.ID = "1"
	return &op, nil
}
func (j *forgetful) SaveOperation(*topology.Operation) error              { return nil }
func (j *forgetful) Operations(string, int) ([]topology.Operation, error) { return nil, nil }
func (j *forgetful) Instance() string                                     { return "test" }

// full is a journal on a full disk.
type full struct{ forgetful }

func (j *full) Apply(...topology.Command) error { return errors.New("no space left on device") }

// A journal that cannot be written is a problem that status shows, until it can.
func TestAnUnwritableJournalIsReported(t *testing.T) {
	in, _, _ := idle()
	in.View.Cluster.Paused = true
	watch := &still{*in.View}
	l := NewLoop(LoopConfig{Cluster: "main", Journal: &full{}, Observer: watch, Log: slog.New(slog.DiscardHandler)})
	l.input()
	a := Action{Kind: KindJournal, Journal: []topology.Command{topology.NoteSeen{}}}
	if l.perform(t.Context(), in, a) {
		t.Error("performed without a journal")
	}
	has := func() bool {
		_, r := l.Report()
		return slices.ContainsFunc(r.Problems, func(p Problem) bool { return p.Code == "journal_unwritable" && strings.Contains(p.Text, "no space") })
	}
	l.last = l.input()
	if !has() {
		t.Error("status does not say it")
	}
	l.cfg.Journal = &forgetful{}
	l.perform(t.Context(), in, a)
	if has() {
		t.Error("status still says it")
	}
}

// toldOf is an observer that heard of an earlier state; notedBefore a journal with
// a later one.
type toldOf struct{ still }

func (o *toldOf) SetCluster(c *topology.Cluster) { o.view.Cluster = c }

type notedBefore struct {
	forgetful
	cluster *topology.Cluster
}

func (j *notedBefore) Cluster(string) *topology.Cluster { return j.cluster.Clone() }

// Automatic action is switched off just before the loop starts, because the state
// file contradicts the servers: the first decision must know.
func TestALoopBeginsWithWhatIsJournaled(t *testing.T) {
	in, _, _ := idle()
	j := &notedBefore{cluster: in.View.Cluster.Clone()}
	j.cluster.ConfirmNeeded = "the file is older"
	l := NewLoop(LoopConfig{Cluster: "main", Journal: j, Observer: &toldOf{still{*in.View}}, Log: slog.New(slog.DiscardHandler)})
	l.resume()
	if a := Decide(l.input()); len(a.Blocked) == 0 || a.Blocked[0].Code != "confirmation_needed" {
		t.Errorf("the first decision is %+v", a)
	}
}

// An order that arrives while the master is alive is void. It must not be
// carried out when the master dies hours later, in manual mode, with nobody
// watching.
func TestAnOrderIsNotKeptForLater(t *testing.T) {
	at := time.Now().Add(-10 * time.Second)
	alive := health.Observation{Sent: at, At: at, Reach: health.ReachOK, LogBin: true, LogSlaveUpdates: true, BinlogPos: gtid.At(gtid.GTID{Server: 1, Seq: 9})}
	slave := alive
	slave.ReadOnly, slave.SlavePos = true, alive.BinlogPos
	slave.Slave = &health.SlaveStatus{SourceHost: "a", SourcePort: 1, IO: health.ThreadYes, SQL: health.ThreadYes, UsingGTID: "Slave_Pos", Received: alive.BinlogPos}
	c := &topology.Cluster{Name: "main", Epoch: 1, Master: "db1", Durability: topology.Async,
		Lineage: gtid.Lineage{{Epoch: 1, Server: 1, First: 1}},
		Servers: map[string]*topology.Server{
			"db1": {Name: "db1", Address: "a:1", Role: topology.RoleMaster, Promotion: topology.PromotionNeutral},
			"db2": {Name: "db2", Address: "b:1", Role: topology.RoleSlave, Source: "db1", Promotion: topology.PromotionNeutral},
		}}
	watch := &still{health.View{Cluster: c, Started: at, AwakeSince: at, Servers: map[string]*health.ServerView{
		"db1": {Last: alive, LastOK: alive}, "db2": {Last: slave, LastOK: slave, Advanced: at}}}}
	kept := &forgetful{}
	l := NewLoop(LoopConfig{Cluster: "main", Journal: kept, Observer: watch, Policy: Policy{HangTimeout: 2 * time.Second},
		Log: slog.New(slog.DiscardHandler), Server: func(topology.Server) Server { return nil }})
	l.announced = newDecider(l.input()).announcement()
	l.events = EventsSeen{Server: "db1", At: time.Now()}

	l.order = &Order{}
	l.step(t.Context(), t.Context())
	if len(kept.begun) > 0 {
		t.Fatal("a live master was given up")
	}
	dead := health.Observation{Sent: at.Add(time.Second), At: at.Add(time.Second), Reach: health.ReachRefused}
	slave.Sent, slave.At = at.Add(2*time.Second), at.Add(2*time.Second)
	stopped := *slave.Slave
	stopped.IO = health.ThreadConnecting
	slave.Slave = &stopped
	watch.view.Servers = map[string]*health.ServerView{
		"db1": {Last: dead, LastOK: alive, FailingSince: dead.At, Refusals: 3, RefusedFirst: at}, "db2": {Last: slave, LastOK: slave, Advanced: at}}
	if v := l.input().Verdict; !v.Lost() {
		t.Fatalf("the test's master is not lost: %+v", v)
	}
	l.step(t.Context(), t.Context())
	if len(kept.begun) > 0 {
		t.Error("an order from before was carried out in manual mode")
	}
	l.order = &Order{}
	l.step(t.Context(), t.Context())
	if len(kept.begun) == 0 || !kept.begun[0].Manual {
		t.Errorf("an order while the master is lost began %+v", kept.begun)
	}
}
