package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/internal/mysql"
	"github.com/repld/repld/topology"
)

// proveSlave shows that the server really replicates: both threads run, the
// connection is encrypted, it has caught up, and something that is created on
// the master appears and disappears.
func (s *slaveSession) proveSlave(ctx context.Context, srv topology.Server) error {
	s.p.step(StepProve, s.r.Name, "run", "see that it replicates")
	if err := s.awaitThreads(ctx); err != nil {
		return err
	}
	if err := s.proveEncrypted(ctx); err != nil {
		return err
	}
	goal, err := mysql.BinlogPos(ctx, s.master)
	if err != nil {
		return s.unprovedSlave(err)
	}
	if err := s.awaitPosition(ctx, goal, srv.Delay > 0); err != nil {
		return err
	}
	// What a delayed slave has received is all that it can show.
	if srv.Delay == 0 {
		if err := s.proveWitness(ctx); err != nil {
			return err
		}
	}
	s.p.step(StepProve, s.r.Name, "done", "it replicates")
	return nil
}

func (s *slaveSession) unprovedSlave(err error) error {
	var f *fault.Error
	if errors.As(err, &f) {
		return f
	}
	return s.fail("not_proved", "it could not be shown that the server replicates", err, stateAttached)
}

// status is the default connection's state.
func (s *slaveSession) status(ctx context.Context) (mysql.SourceStatus, error) {
	bounded, cancel := s.statement(ctx)
	defer cancel()
	list, err := mysql.Sources(bounded, s.conn)
	if err != nil {
		return mysql.SourceStatus{}, err
	}
	for _, c := range list {
		if c.Connection == "" {
			return c, nil
		}
	}
	return mysql.SourceStatus{}, errors.New("it is not a slave any more")
}

// broken is a fault if a thread has stopped for good.
func (s *slaveSession) broken(st mysql.SourceStatus) error {
	switch {
	case st.LastSQLError != "" && st.SQL == "No":
		return s.stopped("sql_thread_stopped", "the SQL thread stopped", st.LastSQLError)
	case st.LastIOError != "" && st.IO == "No":
		return s.stopped("io_thread_stopped", "the IO thread stopped", st.LastIOError)
	}
	return nil
}

func (s *slaveSession) stopped(code, what, text string) *fault.Error {
	f := s.fail(code, what, errors.New(text), stateAttached)
	f.Do = "run the command again with --clone dump to copy the data anew"
	return f
}

func (s *slaveSession) awaitThreads(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, proveTimeout)
	defer cancel()
	for {
		st, err := s.status(ctx)
		if err != nil {
			return s.unprovedSlave(err)
		}
		if st.IO == "Yes" && st.SQL == "Yes" {
			return nil
		}
		if err := s.broken(st); err != nil {
			return err
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return s.unprovedSlave(fmt.Errorf("after %s the IO thread is %s (%s) and the SQL thread %s (%s)", proveTimeout, st.IO, st.LastIOError, st.SQL, st.LastSQLError))
		}
	}
}

// proveEncrypted: MASTER_SSL alone proves nothing, for without verification a
// slave goes on in clear text with a master that has no TLS. The master itself
// refuses the account without TLS, whatever the slave's settings, and the slave
// verifies whom it talks to.
func (s *slaveSession) proveEncrypted(ctx context.Context) error {
	st, err := s.status(ctx)
	if err != nil {
		return s.unprovedSlave(err)
	}
	bounded, cancel := s.statement(ctx)
	defer cancel()
	open, err := mysql.HostsWithoutTLS(bounded, s.upstream(), mysql.UserReplication)
	if err != nil {
		return s.unprovedSlave(err)
	}
	var why string
	switch {
	case !st.TLS || !st.VerifyServer:
		why = "the slave's connection is set up without TLS or without verification"
	case len(open) > 0:
		why = fmt.Sprintf("the account %s on %s may log in without TLS from %v", mysql.UserReplication, s.slave.source().Name, open)
	default:
		return nil
	}
	f := s.fail("not_encrypted", "the replication connection is not proved to be encrypted", errors.New(why), stateAttached+", and was stopped")
	f.Kind, f.Do = fault.Refused, fmt.Sprintf("on the master: ALTER USER '%s'@'%%' REQUIRE SSL; then run the command again", mysql.UserReplication)
	if err := mysql.StopReplication(bounded, s.conn); err != nil {
		f.State = stateAttached + ", and could not be stopped: " + fault.Brief(err)
	}
	return f
}

// awaitPosition waits until the slave has applied, or only received, all up to
// goal: as long as it takes while it makes progress.
func (s *slaveSession) awaitPosition(ctx context.Context, goal gtid.Position, received bool) error {
	moved, last := time.Now(), gtid.Position{}
	for {
		st, err := s.status(ctx)
		if err != nil {
			return s.unprovedSlave(err)
		}
		if err := s.broken(st); err != nil {
			return err
		}
		now := st.Received
		if !received {
			bounded, cancel := s.statement(ctx)
			now, err = mysql.SlavePos(bounded, s.conn)
			cancel()
			if err != nil {
				return s.unprovedSlave(err)
			}
		}
		if reached(now, goal) {
			return nil
		}
		// One large transaction moves only the place in the log.
		if place := fmt.Sprint(st.ReadPos, st.ExecPos); !now.Equal(last) || place != s.place {
			moved, last, s.place = time.Now(), now, place
		}
		if time.Since(moved) > catchUpStall {
			return s.unprovedSlave(fmt.Errorf("it has stood at %s for %s, the master was at %s", now, catchUpStall, goal))
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return s.unprovedSlave(err)
		}
	}
}

// reached tells whether a slave of the same history is at goal or beyond.
func reached(now, goal gtid.Position) bool {
	for _, d := range goal.Domains() {
		if now.Of(d).Seq < goal.Of(d).Seq {
			return false
		}
	}
	return true
}

// proveWitness creates something on the master and looks for it on the slave.
func (s *slaveSession) proveWitness(ctx context.Context) error {
	w, err := s.witness()
	if err != nil || w == (mysql.Witness{}) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, proveTimeout)
	defer cancel()
	err = w.Create(ctx, s.master)
	if err == nil {
		err = s.awaitWitness(ctx, w, true)
	}
	clean, done := context.WithTimeout(context.WithoutCancel(ctx), s.p.Timeouts.withDefaults().Statement)
	defer done()
	if dropErr := w.Drop(clean, s.master); dropErr != nil {
		return s.unprovedSlave(fmt.Errorf("%s is left on %s: %w", w, s.slave.Master.Name, errors.Join(err, dropErr)))
	}
	if err == nil {
		err = s.awaitWitness(ctx, w, false)
	}
	if err != nil {
		return s.unprovedSlave(err)
	}
	return nil
}

// witness is a schema of a name that nobody uses; for a filtered slave a table
// in the first of its schemas that exists, none if none does.
func (s *slaveSession) witness() (mysql.Witness, error) {
	word, err := randomHex(6)
	if err != nil {
		return mysql.Witness{}, err
	}
	name := "repld_probe_" + word
	if len(s.req.ReplicateDoDB) == 0 {
		return mysql.Witness{Schema: name}, nil
	}
	for _, db := range s.req.ReplicateDoDB {
		if slices.Contains(names(s.slave.MasterHolding.Schemas), db) {
			return mysql.Witness{Schema: db, Table: name}, nil
		}
	}
	return mysql.Witness{}, nil
}

func (s *slaveSession) awaitWitness(ctx context.Context, w mysql.Witness, want bool) error {
	for {
		there, err := w.There(ctx, s.conn)
		if err != nil {
			return err
		}
		if there == want {
			return nil
		}
		st, err := s.status(ctx)
		if err == nil {
			err = s.broken(st)
		}
		if err != nil {
			return err
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return fmt.Errorf("%s, created on %s, did not come and go on the slave: %w", w, s.slave.Master.Name, err)
		}
	}
}
