package mysql

import (
	"errors"
	"testing"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/health"
)

// No effect drops what a slave has received and not applied: with the SQL thread
// down it refuses, and leaves everything as it was.
func TestNoEffectDropsWhatIsNotApplied(t *testing.T) {
	master, slave, last := laggard(t)
	source := failover.Source{Name: "master", Host: master.Host, Port: uint16(master.Port)}
	for what, effect := range map[string]func() error{
		"detach": func() error { return slave.server.Detach(bounded(t)) },
		"attach": func() error { return slave.server.Attach(bounded(t), failover.Attachment{Source: source}) },
	} {
		if err := effect(); !errors.Is(err, errWouldWipe) {
			t.Errorf("%s: %v", what, err)
		}
	}
	slave.must(slave.server.StopIO(bounded(t)))
	if err := slave.server.StopSQL(bounded(t)); !errors.Is(err, errWouldWipe) {
		t.Errorf("stop SQL thread: %v", err)
	}
	master.must(master.Kill())
	slave.must(slave.server.DrainRelayLog(bounded(t)))
	slave.applied(last)
	if got := slave.rows(); got != "51" {
		t.Errorf("%s rows of 51", got)
	}
}

// A slave that receives at full speed is attached anew without losing anything:
// what had just come is applied before both threads are down together.
func TestAttachingAReceivingSlaveAppliesFirst(t *testing.T) {
	_, slave, last := laggard(t)
	slave.must(slave.server.StartSQL(bounded(t)))
	slave.must(slave.server.Detach(bounded(t)))
	o := slave.until("detached", func(o health.Observation) bool { return o.Slave == nil })
	if got := o.SlavePos.Of(0); got.Seq < last.Seq {
		t.Errorf("it stands at %s and had received %s", got, last)
	}
}
