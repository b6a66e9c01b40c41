package failover

import (
	"fmt"
	"slices"
	"time"

	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// record keeps the history true to what was just journaled.
func (l *Loop) record(in Input, a Action) {
	for _, cmd := range a.Journal {
		switch c := cmd.(type) {
		case topology.RecordOpened:
			l.recordOpened(in, c)
		case topology.EndIntent:
			l.recordEnd(in, a, c)
		case topology.SetDurabilityState:
			l.recordDurability(in, a, c)
		}
	}
}

// recordOpened notes when, and with what loss, the new master was opened.
func (l *Loop) recordOpened(in Input, c topology.RecordOpened) {
	intent := in.View.Cluster.Intent
	l.cfg.Log.Warn("open", logCluster, l.cfg.Cluster, logServer, intent.Opening.Server, logEpoch, intent.Epoch,
		logMS, ms(c.At.Sub(intent.Symptom)))
	if o := intent.Opening; !o.Armed && in.View.Cluster.Durability != topology.Async && in.View.Cluster.DurabilityState == topology.DurabilityArmed {
		l.noteDurability(in, topology.DurabilityDegraded, topology.Operation{Kind: topology.OpDegrade, Server: o.Server, Epoch: intent.Epoch,
			StartedAt: c.At, Evidence: []string{"no acker could be expected when " + o.Server + " was opened"}}, o.Applied)
	}
	if l.op == nil {
		return
	}
	if intent.Opening.Server == intent.OldMaster {
		return
	}
	noteOpened(l.op, intent, c.At)
	st := in.View.Stream
	if st.Server == intent.OldMaster && !st.LastTx.IsZero() {
		l.outage = outage{op: l.op, lastTx: st.LastTx}
	}
}

// noteOpened fills in what is known of an operation once the new master is open.
func noteOpened(op *topology.Operation, intent *topology.Intent, at time.Time) {
	opened := ms(at.Sub(intent.Symptom))
	op.NewMaster, op.OpenedMS = intent.Opening.Server, &opened
	op.LostTransactions, op.Detail = lost(intent)
	if own, fetched := intent.Own[intent.Opening.Server]; fetched && intent.Opening.Applied.Seq > own.Seq {
		op.RescuedTransactions = intent.Opening.Applied.Seq - own.Seq
	}
}

// lost says what a failover lost, and how that is known.
func lost(in *topology.Intent) (*uint64, string) {
	missing := uint64(0)
	if in.Bound.Seq > in.Opening.Applied.Seq {
		missing = in.Bound.Seq - in.Opening.Applied.Seq
	}
	zero := uint64(0)
	switch {
	case in.AcceptLoss != nil && missing == 0:
		return nil, fmt.Sprintf("a person accepted the loss of up to %d transactions; none that was seen on the old master is missing, but a server that may hold more could not be asked", *in.AcceptLoss)
	case in.AcceptLoss != nil:
		return &missing, fmt.Sprintf("a person accepted the loss of up to %d transactions; counted up to the last one seen on the old master, %s", *in.AcceptLoss, in.Bound)
	case in.Kind == topology.IntentSwitchover:
		return &zero, "the new master had applied everything before it was opened"
	case in.Armed && missing == 0:
		return &zero, "the master waited for an acker with every commit"
	case in.Armed:
		return &zero, fmt.Sprintf("the master waited for an acker with every commit; %d transactions that nobody was told OK for were seen on it", missing)
	case in.Bound.IsZero():
		return nil, "may have lost transactions: the old master's last position is unknown"
	case missing == 0:
		return nil, "no transaction seen on the old master is missing; what it committed after " + in.Bound.String() + ", unseen, is unknown"
	}
	return &missing, "commits did not wait for an acker; counted up to the last transaction seen on the old master, " + in.Bound.String()
}

// recordEnd closes the operation of an intent.
func (l *Loop) recordEnd(in Input, a Action, c topology.EndIntent) {
	if l.op == nil {
		return
	}
	intent := in.View.Cluster.Intent
	total := ms(c.At.Sub(intent.Symptom))
	l.op.Result, l.op.EndedAt, l.op.TotalMS = a.Ends, c.At, &total
	if a.Ends != topology.ResultDone && len(a.Why) > 0 {
		l.op.Detail = a.Why[0]
	}
	l.save(l.op)
	l.cfg.Log.Warn("ended", logCluster, l.cfg.Cluster, logAction, intent.Kind, "result", a.Ends, logMS, total, logWhy, a.Why)
	l.tellOperation(EventEnded, l.cfg.Journal.Cluster(l.cfg.Cluster), l.op)
	l.op = nil
}

// recordDurability writes the history of degrading and re-arming.
func (l *Loop) recordDurability(in Input, a Action, c topology.SetDurabilityState) {
	kind := topology.OpRearm
	if c.State == topology.DurabilityDegraded {
		kind = topology.OpDegrade
	} else if in.View.Cluster.DurabilityState == topology.DurabilityOff {
		kind = topology.OpDurability
	}
	if c.Endless {
		kind = topology.OpDurability
	}
	was, evidence := in.View.Cluster, a.Why
	if c.State == topology.DurabilityDegraded {
		evidence = append(slices.Clone(evidence), newDecider(in).stakeText())
	}
	l.noteDurability(in, c.State, topology.Operation{Kind: kind, Server: was.Master, Epoch: was.Epoch, StartedAt: c.At, Evidence: evidence}, masterPosition(in))
}

// noteDurability writes one such entry, with what is at risk from a position on.
func (l *Loop) noteDurability(in Input, state topology.DurabilityState, op topology.Operation, at gtid.GTID) {
	total := 0.0
	op.Cluster, op.Result, op.EndedAt, op.TotalMS = l.cfg.Cluster, topology.ResultDone, op.StartedAt, &total
	op.Detail = fmt.Sprintf("%s -> %s at %s; %s", in.View.Cluster.DurabilityState, state, at, atRiskText(in.View.Cluster, state, at))
	l.cfg.Log.Warn("durability", logCluster, l.cfg.Cluster, "state", state, logWhy, op.Evidence)
	done, err := l.cfg.Journal.NewOperation(op)
	if err != nil {
		l.cfg.Log.Error("the history cannot be written", logCluster, l.cfg.Cluster, logError, err)
		return
	}
	l.tellDurability(in, done, state)
}

// atRiskText says what the loss of the master would cost from now on, or what it
// would have cost until now.
func atRiskText(c *topology.Cluster, state topology.DurabilityState, at gtid.GTID) string {
	switch {
	case state != topology.DurabilityArmed:
		return fmt.Sprintf("what the master commits after %s is lost with it unless a slave has received it", at)
	case c.DurabilityState == topology.DurabilityDegraded && c.Lineage.Contains(at, c.Floor):
		return fmt.Sprintf("%d transactions were committed without an acker", at.Seq-c.Floor.Seq)
	}
	return "commits wait for an acker from now on"
}

func masterPosition(in Input) gtid.GTID {
	if mv := in.View.Servers[in.View.Cluster.Master]; mv != nil {
		return mv.LastOK.BinlogPos.Of(in.View.Cluster.Lineage.Domain())
	}
	return gtid.GTID{}
}

// noteFirstAck notes the first commit that the new master is known to have
// acknowledged: repld's own, or an earlier one that the stream has seen.
func (l *Loop) noteFirstAck(at time.Time) {
	if l.outage.op == nil {
		return
	}
	op := l.outage.op
	length := ms(at.Sub(l.outage.lastTx))
	op.WriteOutageMS = &length
	l.outage = outage{}
	if op != l.op { // otherwise it is saved when it ends
		l.save(op)
	}
}

func (l *Loop) save(op *topology.Operation) {
	if err := l.cfg.Journal.SaveOperation(op); err != nil {
		l.cfg.Log.Error("the history cannot be written", logCluster, l.cfg.Cluster, logError, err)
	}
}
