package health

import (
	"testing"
	"time"
)

// What single observations cannot show.
func TestFold(t *testing.T) {
	at := func(sec int) time.Time { return time.Unix(int64(1000+sec), 0) }
	ok := func(sec int) Observation {
		return Observation{Reach: ReachOK, Sent: at(sec), At: at(sec), Started: at(-50), Slave: &SlaveStatus{IO: ThreadYes, SQL: ThreadYes}}
	}
	s := &ServerView{}
	s.fold(ok(1))
	still := ok(2)
	s.fold(still)
	if !s.Advanced.Equal(at(1)) || !s.Applied.Equal(at(1)) || !s.StreamingAt.Equal(at(2)) {
		t.Errorf("nothing moved: advanced %v, applied %v, streaming %v", s.Advanced, s.Applied, s.StreamingAt)
	}
	beat := ok(3)
	beat.Slave.Heartbeats = 1
	s.fold(beat)
	if !s.Advanced.Equal(at(3)) || !s.Applied.Equal(at(1)) {
		t.Errorf("a heartbeat: advanced %v, applied %v", s.Advanced, s.Applied)
	}
	applied := ok(4)
	applied.Slave.Heartbeats, applied.Slave.RelayLogPos = 1, 700
	s.fold(applied)
	if !s.Advanced.Equal(at(3)) || !s.Applied.Equal(at(4)) {
		t.Errorf("inside one transaction: advanced %v, applied %v", s.Advanced, s.Applied)
	}
	s.fold(Observation{Reach: ReachTimeout, Sent: at(5), At: at(6)})
	if s.LastOK.At != at(4) || !s.FailingSince.Equal(at(6)) || s.Reachable() {
		t.Errorf("a failed probe: %+v", s)
	}
	again := ok(7)
	again.Started = at(6)
	s.fold(again)
	if !s.RestartedAt.Equal(at(6)) || !s.FailingSince.IsZero() {
		t.Errorf("a restart: %v, failing %v", s.RestartedAt, s.FailingSince)
	}
}

// A slave has no ackers. That time must not be up when it is promoted.
func TestTheTimeWithoutAckersBeginsWithTheOpening(t *testing.T) {
	at := func(sec int) time.Time { return time.Unix(int64(1000+sec), 0) }
	s := &ServerView{}
	s.fold(Observation{Reach: ReachOK, At: at(1), ReadOnly: true})
	s.fold(Observation{Reach: ReachOK, At: at(2), ReadOnly: true, SemiSync: SemiSync{MasterEnabled: true, MasterOn: true}})
	if !s.NoAckerSince.IsZero() {
		t.Errorf("a closed server lacks ackers since %v", s.NoAckerSince)
	}
	s.fold(Observation{Reach: ReachOK, At: at(9)})
	if !s.NoAckerSince.IsZero() {
		t.Errorf("a master that waits for nobody lacks ackers since %v", s.NoAckerSince)
	}
	for sec := 10; sec < 13; sec++ {
		s.fold(Observation{Reach: ReachOK, At: at(sec), SemiSync: SemiSync{MasterEnabled: true, MasterOn: true}})
	}
	if !s.NoAckerSince.Equal(at(10)) {
		t.Errorf("an open, armed master lacks ackers since %v", s.NoAckerSince)
	}
}

func TestFoldOfAMaster(t *testing.T) {
	at := func(sec int) time.Time { return time.Unix(int64(1000+sec), 0) }
	semi := func(sec, clients, waiting int, yes uint64) Observation {
		return Observation{Reach: ReachOK, At: at(sec), SemiSync: SemiSync{MasterEnabled: true, MasterOn: true, AfterSync: true, Clients: clients, Waiting: waiting, YesTx: yes}}
	}
	s := &ServerView{}
	s.fold(semi(1, 2, 0, 0))
	if !s.ArmedAt.Equal(at(1)) || !s.NoAckerSince.IsZero() {
		t.Errorf("armed at %v, no acker since %v", s.ArmedAt, s.NoAckerSince)
	}
	s.fold(semi(2, 0, 1, 0))
	s.fold(semi(3, 0, 1, 0))
	if !s.ArmedAt.Equal(at(1)) || !s.NoAckerSince.Equal(at(2)) || !s.WaitingSince.Equal(at(2)) {
		t.Errorf("armed at %v, no acker since %v, waiting since %v", s.ArmedAt, s.NoAckerSince, s.WaitingSince)
	}
	s.fold(semi(4, 1, 3, 5))
	if !s.WaitingSince.IsZero() || !s.NoAckerSince.IsZero() {
		t.Error("commits that are acknowledged in turn do not wait without progress")
	}
	s.fold(semi(5, 1, 3, 5))
	if !s.WaitingSince.Equal(at(5)) {
		t.Errorf("waiting since %v", s.WaitingSince)
	}
	after := semi(6, 1, 0, 5)
	after.SemiSync.AfterSync = false
	s.fold(after)
	if !s.ArmedAt.Equal(at(5)) {
		t.Error("AFTER_COMMIT was taken for armed")
	}
}
