package health

import (
	"context"
	"time"

	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// worker probes one server.
type worker struct {
	m      *Monitor
	server topology.Server
	prober Prober
	cancel context.CancelFunc
	kick   chan chan struct{}
	beat   chan struct{}
}

// setOff makes the worker probe, or probe once more after the probe under way.
func (w *worker) setOff() {
	select {
	case w.beat <- struct{}{}:
	default:
	}
}

// poke asks for a probe now; done is closed after it. It tells whether the
// request was taken.
func (w *worker) poke(done chan struct{}) bool {
	select {
	case w.kick <- done:
		return true
	default:
		return false
	}
}

func (w *worker) run(ctx context.Context) {
	defer w.prober.Close()
	w.setOff()
	for {
		var done []chan struct{}
		select {
		case <-ctx.Done():
			return
		case <-w.beat:
		case d := <-w.kick:
			done = append(done, d)
		}
		for more := true; more; {
			select {
			case d := <-w.kick:
				done = append(done, d)
			default:
				more = false
			}
		}
		obs := w.probe(ctx)
		if ctx.Err() != nil {
			return
		}
		w.m.record(w.server.Name, obs)
		for _, d := range done {
			close(d)
		}
	}
}

func (w *worker) probe(ctx context.Context) Observation {
	ctx, cancel := context.WithTimeout(ctx, w.m.cfg.Timeout)
	defer cancel()
	sent := time.Now()
	obs := w.prober.Probe(ctx)
	obs.Server, obs.Sent, obs.At = w.server.Name, sent, time.Now()
	return obs
}

// record folds an observation into the view.
func (m *Monitor) record(name string, obs Observation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sv := m.servers[name]
	if sv == nil {
		return
	}
	prev := *sv
	if obs.Reach.Answers() && !m.inTouch() {
		// repld was cut off from all of them, and whoever answers first is not the
		// only one that is there: the others are given their time anew.
		m.awake = obs.At
	}
	sv.fold(obs)
	sv.foldRate(prev.LastOK, obs, m.cluster.Lineage.Domain())
	if name == m.cluster.Master && obs.Reach == ReachOK && !obs.ReadOnly {
		m.raiseCeilings(obs)
	}
	lost := !obs.Reach.Answers()
	if lost && name == m.cluster.Master {
		m.hurry(obs.At.Add(time.Second))
	}
	if prev.Last.Slave != nil && prev.Last.Slave.IO == ThreadYes && obs.Slave != nil && obs.Slave.IO != ThreadYes {
		m.hurry(obs.At.Add(time.Second))
	}
	news := obs.news(&prev.Last)
	if news {
		m.stir(obs.At)
	}
	if news || obs.At.Before(m.urgent) {
		m.notify()
	}
}

// inTouch tells whether any server answered the latest probe of it. The lock is
// held.
func (m *Monitor) inTouch() bool {
	for _, sv := range m.servers {
		if sv.Last.Reach.Answers() {
			return true
		}
	}
	return false
}

// raiseCeilings notes, for each server that was found down before the probe of
// the master began, that it cannot have received more than the master had. A
// master that is closed has restarted, and may have lost what the server had
// received; it is opened only when that is settled.
func (m *Monitor) raiseCeilings(master Observation) {
	domain := m.cluster.Lineage.Domain()
	for _, sv := range m.servers {
		if sv.Refusals > 0 && sv.Ceiling.IsZero() && master.Sent.After(sv.RefusedFirst) {
			sv.Ceiling = master.BinlogPos.Of(domain)
		}
	}
}

// fold derives what single observations cannot show.
func (s *ServerView) fold(obs Observation) {
	prev := s.LastOK
	s.Last = obs
	s.foldRunning(prev, obs)
	if obs.Reach == ReachRefused {
		if s.Refusals == 0 {
			s.RefusedFirst = obs.At
		}
		s.Refusals++
	} else {
		s.Refusals, s.RefusedFirst = 0, time.Time{}
		s.Ceiling = gtid.GTID{}
	}
	if obs.Reach.Answers() {
		s.FailingSince = time.Time{}
	} else if s.FailingSince.IsZero() {
		s.FailingSince = obs.At
	}
	if obs.Reach != ReachOK {
		return
	}
	s.LastOK = obs
	if prev.Reach == ReachOK && obs.Started.Sub(prev.Started) > restartTolerance {
		s.RestartedAt = obs.Started
	}
	s.foldSlave(prev, obs)
	s.foldMaster(prev, obs)
}

// restartTolerance absorbs the whole seconds of a server's uptime.
const restartTolerance = 1500 * time.Millisecond

func (s *ServerView) foldSlave(prev, obs Observation) {
	if obs.Slave == nil {
		return
	}
	was, is := prev.Slave, obs.Slave
	if is.IO == ThreadYes {
		s.StreamingAt = obs.At
	}
	if was == nil || is.Heartbeats != was.Heartbeats || is.ReadPos != was.ReadPos ||
		is.SourceLogFile != was.SourceLogFile || !is.Received.Equal(was.Received) {
		s.Advanced = obs.At
	}
	if was == nil || is.ExecPos != was.ExecPos || is.ExecLogFile != was.ExecLogFile ||
		is.RelayLogPos != was.RelayLogPos || is.RelayLogFile != was.RelayLogFile || !obs.SlavePos.Equal(prev.SlavePos) {
		s.Applied = obs.At
	}
}

// rateSpan is about how long back [ServerView.ApplyRate] looks.
const rateSpan = 3 * time.Second

// foldRate derives what needs the applied and the received position: whether
// anything is left to apply, and the pace, averaged so that an observation counts
// the less the longer ago it is.
func (s *ServerView) foldRate(prev, obs Observation, domain uint32) {
	if obs.Reach != ReachOK || prev.Reach != ReachOK || !obs.At.After(prev.At) {
		return
	}
	was, is := prev.SlavePos.Of(domain).Seq, obs.SlavePos.Of(domain).Seq
	if st := obs.Slave; st != nil && st.Received.Of(domain).Seq > 0 && st.Received.Of(domain).Seq <= is {
		s.Applied = obs.At // with nothing to do it is not held up
	}
	if is <= was {
		return // idle, or held up: the pace is that of when it moves
	}
	span := obs.At.Sub(prev.At)
	pace := float64(is-was) / span.Seconds()
	weight := float64(span) / float64(span+rateSpan)
	if s.ApplyRate == 0 {
		weight = 1
	}
	s.ApplyRate += weight * (pace - s.ApplyRate)
}

func (s *ServerView) foldMaster(prev, obs Observation) {
	semi := obs.SemiSync
	if semi.MasterEnabled && semi.MasterOn && semi.Clients > 0 && semi.AfterSync {
		s.ArmedAt = obs.At
	}
	switch {
	case semi.Clients > 0 || obs.ReadOnly || !semi.MasterEnabled:
		// A slave has no ackers either: counted from then on, its time would be up
		// at the moment of its promotion.
		s.NoAckerSince = time.Time{}
	case s.NoAckerSince.IsZero():
		s.NoAckerSince = obs.At
	}
	switch {
	case semi.Waiting == 0 || semi.YesTx != prev.SemiSync.YesTx:
		s.WaitingSince = time.Time{}
	case s.WaitingSince.IsZero():
		s.WaitingSince = obs.At
	}
}
