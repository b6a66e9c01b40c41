package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/internal/mysql"
	"github.com/repld/repld/topology"
)

// PlanAdoptMaster plans what adopt does to the master.
func PlanAdoptMaster(r Request, f Facts, c Context) Plan {
	rules := slices.DeleteFunc(MasterRules(), func(rule Rule) bool { return rule.Code == "has_slaves" })
	plan := Plan{Verb: "adopt", Server: r.Name, Checks: Judge(rules, r, f, c), Needs: NeedsOf(topology.RoleMaster, r, f, c)}
	plan.configSteps(r, f)
	plan.add(StepAccounts, "create repld's accounts; its slaves get them by replication")
	plan.add(StepAnnounce, "create and write the table repld.cluster")
	plan.add(StepProve, "write a row, see it in the binary log, remove it")
	return plan
}

// PlanAdoptSlave plans what adopt does to a slave of the master whose facts are
// given. It is pure.
func PlanAdoptSlave(r Request, f Facts, c Context, master Facts) Plan {
	plan := Plan{Verb: "adopt", Server: r.Name, Checks: append(Judge(CommonRules(), r, f, c), judgeFollower(r, f, c, master)...)}
	plan.Needs = NeedsOf(topology.RoleSlave, r, f, c)
	plan.configSteps(r, f)
	how := "it replicates by GTID already"
	if s := defaultSource(f); s != nil && s.UsingGTID == "No" {
		how = "moved from file and position to GTID at " + orWord(f.SlavePos.String(), "the position that it has then")
	}
	plan.add(StepAttach, "apply what it received, then replicate with repld's account over verified TLS (%s); it becomes read-only", how)
	return plan
}

func defaultSource(f Facts) *mysql.SourceStatus {
	for i := range f.Sources {
		if f.Sources[i].Connection == "" {
			return &f.Sources[i]
		}
	}
	return nil
}

// judgeFollower are the rules about a slave and its master together.
func judgeFollower(r Request, f Facts, c Context, master Facts) []Check {
	var out []Check
	add := func(code string, row Check) {
		row.Code, row.Server = code, r.Name
		out = append(out, row)
	}
	add("follows", judgeFollows(f, c, master))
	add("slave_server_id", judgeOtherID(f, master))
	add("filters", judgeFilters(f))
	add("errant", judgeErrant(f, c, master))
	add("slave_version", judgeVersions(f, master))
	if n := len(f.DumpThreads); n > 0 {
		add("chain", refuse("point its slaves to the master first, adopt, and chain them again by replctl init slave NAME --source "+r.Name, "%d servers replicate from it: chains are not taken over as they are", n))
	}
	return out
}

func judgeFollows(f Facts, c Context, master Facts) Check {
	s := defaultSource(f)
	switch {
	case s == nil || s.Host == "":
		return refuse("use replctl init slave", "it is nobody's slave")
	case len(f.Sources) > 1:
		return refuse("remove the other connections", "it has %d replication connections", len(f.Sources))
	case s.ServerID != 0 && s.ServerID != master.Identity.ServerID:
		return refuse("adopt the set-up of its own master", "it is a slave of the server with server_id %d at %s:%d, the master's is %d", s.ServerID, s.Host, s.Port, master.Identity.ServerID)
	case s.ServerID == 0 && s.Port != master.Identity.Port:
		return refuse("adopt the set-up of its own master", "it is a slave of %s:%d, which is not the master", s.Host, s.Port)
	case s.Delay > 0:
		return refuse("set MASTER_DELAY=0 for the time of its adoption", "it is delayed by %s", s.Delay)
	case c.Pending.Verb == "adopt":
		return pass("its adoption was begun")
	case s.IO == "Connecting" && s.SQL == "Yes":
		return warn("", "its IO thread is connecting (%s): it is made to try again", orWord(s.LastIOError, "no error"))
	case s.IO != "Yes" || s.SQL != "Yes":
		return refuse("put its replication right, or set it up anew with replctl init slave", "its threads do not both run: IO %s (%s), SQL %s (%s)", s.IO, orWord(s.LastIOError, "no error"), s.SQL, orWord(s.LastSQLError, "no error"))
	}
	return pass("it follows %s:%d (Using_Gtid %s)", s.Host, s.Port, s.UsingGTID)
}

func judgeOtherID(f, master Facts) Check {
	if f.Identity.ServerID == master.Identity.ServerID {
		return refuse("give it another server_id", "it has the master's server_id %d", f.Identity.ServerID)
	}
	return pass("server_id %d", f.Identity.ServerID)
}

// judgeFilters takes whole schemas only, in the one form that looks at the table
// that is changed and not at the session's current schema.
func judgeFilters(f Facts) Check {
	s := defaultSource(f)
	if s == nil {
		return pass("no filters")
	}
	if s.DoDB+s.IgnoreDB != "" || s.OtherFilters || s.WildDo != "" && wholeSchemas(s.WildDo) == nil {
		return refuse("replace them by replicate_wild_do_table=DB.%", "it has replication filters that are not taken over (do_db %q, ignore_db %q, wild_do_table %q)", s.DoDB, s.IgnoreDB, s.WildDo)
	}
	if s.WildDo != "" {
		return warn("", "it replicates only %s: it will never be promoted", s.WildDo)
	}
	return pass("no filters")
}

// wholeSchemas reads "a.%,b.%"; nil if it is something else.
func wholeSchemas(wildDo string) []string {
	if wildDo == "" {
		return nil
	}
	var out []string
	for rule := range strings.SplitSeq(wildDo, ",") {
		db, ok := strings.CutSuffix(strings.TrimSpace(rule), ".%")
		plain := strings.NewReplacer(`\_`, "_", `\%`, "%").Replace(db)
		if !ok || db == "" || strings.ContainsAny(strings.NewReplacer(`\_`, "", `\%`, "").Replace(db), "%_") {
			return nil
		}
		out = append(out, plain)
	}
	return out
}

// judgeErrant compares what the slave's binary log holds and where it stands
// with the master's history.
func judgeErrant(f Facts, c Context, master Facts) Check {
	var doubt []gtid.GTID
	for _, g := range beyond(c, f.BinlogState, master.BinlogState) {
		// A master that began as a copy says in gtid_slave_pos what it is a copy of.
		from := master.SlavePos.Of(g.Domain)
		switch {
		case from.Server == g.Server && from.Seq >= g.Seq:
		case from.Seq >= g.Seq:
			doubt = append(doubt, g)
		default:
			return refuse("set it up anew with replctl init slave --replace-data, or remove those transactions",
				"its binary log holds transactions that the master never had, up to %s (its own %s, the master's %s)", g, f.BinlogState, master.BinlogState)
		}
	}
	for _, d := range f.SlavePos.Domains() {
		if g := f.SlavePos.Of(d); !inHistory(c, master.BinlogState, g) && master.SlavePos.Of(d) != g {
			return refuse("set it up anew with replctl init slave", "it stands at %s, which is not in the master's history (%s)", g, gtidState(master.BinlogState))
		}
	}
	if len(doubt) > 0 {
		return warn("compare the data, for example with CHECKSUM TABLE", "its binary log holds %s, which is older than the master's own log: whether the master, a copy of %s, has them cannot be seen", gtid.StateOf(doubt...), master.SlavePos)
	}
	if !f.On("log_bin") {
		return warn("compare the data, for example with CHECKSUM TABLE", "it has no binary log: whether it has transactions of its own cannot be seen")
	}
	return pass("it stands at %s, on the master's history", orWord(f.SlavePos.String(), "the empty position"))
}

func judgeVersions(f, master Facts) Check {
	mine, err := mysql.ParseVersion(f.Version)
	theirs, err2 := mysql.ParseVersion(master.Version)
	if err == nil && err2 == nil && mine.Compare(theirs) < 0 && (mine.Major != theirs.Major || mine.Minor != theirs.Minor) {
		return refuse("upgrade it", "its version %s is older than the master's %s", f.Version, master.Version)
	}
	return pass("version %s", f.Version)
}

// take makes one slave a member: settings, then GTID, TLS and repld's account.
// The slave goes on replicating until right before its restart or its move.
func (a *adoption) take(ctx context.Context, s *session, plan Plan) error {
	if err := a.caughtUp(ctx, s); err != nil {
		return err
	}
	s.env.Pending.Verb = "adopt"
	if err := a.p.Journal.Save(ctx, a.r.Cluster, s.r.Name, s.env.Pending); err != nil {
		return err
	}
	stopped := false
	s.beforeRestart = func(ctx context.Context) error {
		stopped = true
		return a.halt(ctx, s)
	}
	err := s.configure(ctx, plan)
	if err == nil && !stopped {
		stopped = true
		err = a.halt(ctx, s)
	}
	if err == nil {
		err = a.attach(ctx, s)
	}
	if err != nil && stopped && s.conn != nil {
		// Everything received is applied: starting again loses nothing.
		again, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.p.Timeouts.withDefaults().Statement)
		defer cancel()
		if startErr := mysql.StartSlave(again, s.conn); startErr != nil {
			return fmt.Errorf("%w (and its replication is stopped: %w)", err, startErr)
		}
	}
	return err
}

// halt stops a slave so that a restart, or a change to GTID mode, drops nothing.
func (a *adoption) halt(ctx context.Context, s *session) error {
	s.p.step(StepAttach, s.r.Name, "run", "apply what was received and stop")
	bounded, cancel := context.WithTimeout(ctx, s.p.Timeouts.withDefaults().Restart)
	defer cancel()
	err := mysql.StopFetching(bounded, s.conn)
	if err == nil {
		err = mysql.StopSlave(bounded, s.conn)
	}
	if err != nil {
		return s.fail("stop_failed", "the slave could not be stopped safely", err, "its IO thread may be stopped, all it received is kept")
	}
	return nil
}

// caughtUp waits until the slave has what the master has now: then it has
// repld's accounts too, and a position by GTID even if it was set up by file.
func (a *adoption) caughtUp(ctx context.Context, s *session) error {
	bounded, cancel := s.statement(ctx)
	want, err := mysql.BinlogPos(bounded, a.master.conn)
	cancel()
	if err != nil {
		return a.master.fail("look_failed", "the binary log's position could not be read", err, "the master is configured; the slaves are as they were")
	}
	domain := uint32(num(a.master.facts.Value("gtid_domain_id")))
	wait, done := context.WithTimeout(ctx, s.p.Timeouts.withDefaults().Back)
	defer done()
	// The master may have been restarted just now.
	if err := mysql.Reconnect(wait, s.conn); err != nil {
		return s.fail("reconnect_failed", "the slave could not be made to connect again", err, "the master is a member; this slave replicates as before")
	}
	for {
		have, err := mysql.SlavePos(wait, s.conn)
		if err == nil && have.Of(domain).Seq >= want.Of(domain).Seq {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("it stands at %s, the master at %s", orWord(have.String(), "the empty position"), want)
		}
		select {
		case <-wait.Done():
			return s.fail("slave_behind", "the slave does not catch up", errors.Join(err, wait.Err()), "the master is a member; this slave replicates as before")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// attach points the stopped slave to the master by GTID and waits until both
// threads run and it has what the master has.
func (a *adoption) attach(ctx context.Context, s *session) error {
	own := s.own()
	repl := s.env.Accounts[topology.AccountReplication]
	server := mysql.NewServer(mysql.Options{
		Server: s.r.Name, Target: func() mysql.Target { return own }, Identity: func() topology.Identity { return s.facts.Identity },
		Replication: func() mysql.Credentials { return mysql.Credentials{User: repl.User, Password: repl.Password} },
	})
	defer server.Close()
	rec := a.slaveRecord(s)
	bounded, cancel := s.statement(ctx)
	defer cancel()
	err := server.Attach(bounded, failover.Attachment{
		Source: failover.Source{Name: a.r.Name, Host: a.master.facts.Host, Port: a.master.facts.Port, CAFile: rec.CAFile, CertFile: rec.CertFile, KeyFile: rec.KeyFile},
		Delay:  rec.Delay, DoDB: rec.ReplicateDoDB,
	})
	if err != nil {
		return s.fail("attach_failed", "the slave could not be pointed to the master by GTID", err, "it is configured; its replication is stopped, all it received is applied")
	}
	if err := a.streaming(ctx, s); err != nil {
		return err
	}
	s.p.step(StepAttach, s.r.Name, "done", "it replicates by GTID over TLS")
	return nil
}

func (a *adoption) streaming(ctx context.Context, s *session) error {
	wait, done := context.WithTimeout(ctx, s.p.Timeouts.withDefaults().Back)
	defer done()
	for {
		list, err := mysql.Sources(wait, s.conn)
		if err == nil && len(list) == 1 && list[0].IO == "Yes" && list[0].SQL == "Yes" && list[0].TLS {
			return a.caughtUp(ctx, s)
		}
		if err == nil && len(list) == 1 {
			err = fmt.Errorf("IO thread %s (%s), SQL thread %s (%s)", list[0].IO, orWord(list[0].LastIOError, "no error"), list[0].SQL, orWord(list[0].LastSQLError, "no error"))
		}
		select {
		case <-wait.Done():
			return s.fail("not_streaming", "the slave does not replicate", errors.Join(err, wait.Err()), "it is configured and points to the master by GTID")
		case <-time.After(50 * time.Millisecond):
		}
	}
}
