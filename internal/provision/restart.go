package provision

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/mysql"
)

// mayRestart stops with the drop-in written if the restart is not repld's to do.
func (s *session) mayRestart(plan Plan) error {
	cause := ""
	switch {
	case s.r.Restart == RestartNever:
		cause = "--restart never was given"
	case len(s.facts.Places.RestartCommand) == 0:
		cause = s.facts.Places.RestartProblem
	default:
		return nil
	}
	by := "systemctl restart mariadb, or however it is started"
	if len(s.facts.Places.RestartCommand) > 0 {
		by = quoteArgs(s.facts.Places.RestartCommand)
	}
	return &fault.Error{
		Kind: fault.Partly, Code: "restart_needed", What: "the server must be restarted", Server: s.r.Name,
		Cause: fmt.Sprintf("%s; a restart is needed for %s", cause, strings.Join(plan.restarts(), ", ")),
		State: fmt.Sprintf("the drop-in is at %s; the running server was not changed, and will be read-only after the restart until the command is run again", placeName(s.facts.Places)),
		Do:    fmt.Sprintf("restart it (%s), then run the command again", by), Document: plan.Needs.DropIn,
	}
}

// restart restarts the server, waits for it and verifies what it runs with.
// Whether it was writable is saved before, because the drop-in closes it.
func (s *session) restart(ctx context.Context, plan Plan) error {
	if err := s.remember(ctx); err != nil {
		return err
	}
	if s.beforeRestart != nil {
		if err := s.beforeRestart(ctx); err != nil {
			return err
		}
	}
	command := s.facts.Places.RestartCommand
	s.p.step(StepRestart, s.r.Name, "run", quoteArgs(command))
	begun := time.Now()
	output, err := runCommand(ctx, command, "", s.p.Timeouts.withDefaults().Restart)
	if err != nil {
		return s.restartFault(ctx, "restart_failed", "the restart command failed", withOutput(err, output), err)
	}
	if err := s.awaitBack(ctx); err != nil {
		return s.restartFault(ctx, "restart_not_back", "the server did not come back after the restart", withOutput(err, output), err)
	}
	s.p.step(StepRestart, s.r.Name, "done", fmt.Sprintf("it is back after %d ms", time.Since(begun).Milliseconds()))
	return s.verify(ctx, plan)
}

// remember journals how the server was. An earlier run's word stands: after its
// restart the server is read-only by repld's own doing.
func (s *session) remember(ctx context.Context) error {
	if s.env.Pending.WasWritable {
		return nil
	}
	s.env.Pending.WasWritable = !s.facts.On("read_only")
	s.env.Pending.EventsOn = s.env.Pending.EventsOn || s.facts.On("event_scheduler")
	return s.p.Journal.Save(ctx, s.r.Cluster, s.r.Name, s.env.Pending)
}

// errStillOld is a server that was not restarted at all.
var errStillOld = errors.New("the command ended well, but the server still runs as before")

// awaitBack waits until a restarted server answers and is the same one. The old
// connection tells whether there was a restart: it ends with the old process.
func (s *session) awaitBack(ctx context.Context) error {
	limit := s.p.Timeouts.withDefaults().Back
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	old, was := s.conn, s.facts.Identity
	s.conn = nil
	defer func() { _ = old.Close() }()
	ended, begun := false, time.Now()
	last := errStillOld
	for {
		if !ended {
			ended = s.gone(ctx, old)
		}
		if !ended && time.Since(begun) > limit/3 {
			return fmt.Errorf("waited %s: %w", limit/3, errStillOld)
		}
		if ended {
			if last = s.redial(ctx, was.DataDir, was.Hostname); last == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			s.p.step(StepRestart, s.r.Name, "failed", "it is not back")
			return fmt.Errorf("waited %s: %w", limit, last)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// gone tells whether the process behind an open connection has ended.
func (s *session) gone(ctx context.Context, c *mysql.Conn) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := mysql.IdentityOf(ctx, c)
	return err != nil && mysql.Errno(err) == 0 && ctx.Err() == nil
}

func (s *session) redial(ctx context.Context, dataDir, hostname string) error {
	if err := s.connect(ctx); err != nil {
		return err
	}
	bounded, cancel := s.statement(ctx)
	defer cancel()
	is, err := mysql.IdentityOf(bounded, s.conn)
	if err != nil {
		return err
	}
	if is.DataDir != dataDir || is.Hostname != hostname {
		return fmt.Errorf("another server answers at %s: %s on %s", s.r.Address, is.DataDir, is.Hostname)
	}
	return nil
}

// restartFault says what a failed restart left: whether the server answers, and
// how to go back.
func (s *session) restartFault(ctx context.Context, code, what, cause string, err error) error {
	state := "the server does not answer"
	if s.conn != nil {
		bounded, cancel := s.statement(ctx)
		if _, aliveErr := mysql.IdentityOf(bounded, s.conn); aliveErr == nil {
			state = "the server runs as before"
		}
		cancel()
	}
	if errors.Is(err, errStillOld) {
		state = "the server runs as before"
	}
	if strings.HasSuffix(state, "answer") && s.connect(ctx) == nil {
		state = "the server answers" + s.reopened(ctx)
	}
	return &fault.Error{
		Kind: fault.Failed, Code: code, What: what, Server: s.r.Name, Cause: cause,
		State: state + "; the drop-in is at " + placeName(s.facts.Places),
		Do:    "look into the server's error log, put the cause right and run the command again; to go back remove the drop-in and restart the server", Err: err,
	}
}

// reopened makes a server that was writable before repld's restart writable
// again when a verb fails, unless it is a member already: then its being closed
// is the cluster's business. It gives the words for the error's state.
func (s *session) reopened(ctx context.Context) string {
	if !s.env.Pending.WasWritable || s.env.Cluster.Servers[s.r.Name] != nil || s.conn == nil {
		return ""
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.p.Timeouts.withDefaults().Statement)
	defer cancel()
	if err := mysql.OpenBy(bounded, s.conn); err != nil {
		return ", and the server is read-only: SET GLOBAL read_only=0 opens it (" + fault.Brief(err) + ")"
	}
	if s.env.Pending.EventsOn {
		if err := mysql.SetGlobal(bounded, s.conn, "event_scheduler", "ON"); err != nil {
			return ", and the server is writable as before, but its event scheduler is off"
		}
	}
	return ", and the server is writable as before"
}
