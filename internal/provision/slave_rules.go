package provision

import (
	"fmt"
	"slices"
	"strings"

	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/mysql"
)

// SlaveRules are what init slave judges besides [CommonRules]: the server
// against the master that it is to follow. They are pure.
func SlaveRules(r SlaveRequest, s SlaveFacts) []Rule {
	kind := func(f Facts, c Context) copyKind { k, _ := decideCopy(r, f, c, s); return k }
	rule := func(code string, judge func(Facts, Context) Check) Rule {
		return Rule{code, func(_ Request, f Facts, c Context) Check { return judge(f, c) }}
	}
	return append(CommonRules(),
		rule("same_server", func(f Facts, _ Context) Check { return s.judgeSame(f) }),
		rule("source_unusable", func(f Facts, _ Context) Check { return s.judgeSource(f) }),
		rule("version_of_source", func(f Facts, _ Context) Check { return s.judgeVersion(f) }),
		rule("master_address", func(f Facts, _ Context) Check { return s.judgeMasterAddress(f) }),
		rule("master_binlog_filter", func(Facts, Context) Check { return s.judgeMasterFilter() }),
		rule("lower_case_table_names", func(Facts, Context) Check { return s.judgeLowerCase() }),
		rule("time_zone", func(Facts, Context) Check { return s.judgeTimeZone() }),
		rule("collations", func(Facts, Context) Check { return s.judgeCollations() }),
		rule("packet_of_source", func(Facts, Context) Check { return s.judgePackets() }),
		rule("other_source", func(f Facts, _ Context) Check { return s.judgeSources(f) }),
		rule("has_slaves", func(f Facts, _ Context) Check { return s.judgeSlaves(f) }),
		rule("existing_data", func(f Facts, c Context) Check { return s.judgeData(r, kind(f, c)) }),
		rule("restored_position", func(f Facts, c Context) Check { return s.judgePosition(f, c, kind(f, c)) }),
		rule("disk_space", func(f Facts, c Context) Check { return s.judgeSpace(kind(f, c)) }),
		rule("incomplete_data", func(_ Facts, c Context) Check { return s.judgeGaps(r, c) }),
		rule("filters", func(Facts, Context) Check { return s.judgeFilters(r) }),
		rule("skip_errors", func(Facts, Context) Check { return s.judgeSkip(r) }),
	)
}

func (s *SlaveFacts) judgeSame(f Facts) Check {
	m := s.Master.Identity
	if m.UID == f.Identity.UID && m.DataDir == f.Identity.DataDir && m.Hostname == f.Identity.Hostname {
		return refuse("give the address of another server", "the address leads to %s, the master itself", s.Master.Name).as(fault.Usage)
	}
	return pass("it is another server than %s", s.Master.Name)
}

func (s *SlaveFacts) judgeVersion(f Facts) Check {
	own, err1 := mysql.ParseVersion(f.Version)
	master, err2 := mysql.ParseVersion(s.MasterFacts.Version)
	if err1 != nil || err2 != nil {
		return pass("%s under %s", f.Version, s.MasterFacts.Version)
	}
	// A patch level may be lower: the binary log's format changes with releases.
	if own.Major < master.Major || own.Major == master.Major && own.Minor < master.Minor {
		return refuse("upgrade this server to "+master.String()+" or newer first", "version %s is older than the master's %s: it may not understand what it is sent", own, master)
	}
	return pass("%s under a master of %s", own, master)
}

// judgeMasterAddress finds a master that only its own host can reach.
func (s *SlaveFacts) judgeMasterAddress(f Facts) Check {
	host, _, _, err := ParseAddress(s.Master.Address)
	if err != nil {
		return refuse("replctl remove "+s.Master.Name+" and init it under a usable address", "the master's address %s: %v", s.Master.Address, err)
	}
	bind := s.MasterFacts.Value("bind_address")
	switch {
	case s.MasterFacts.On("skip_networking"):
		return refuse("remove skip-networking on "+s.Master.Name+" and restart it", "skip_networking is ON on the master: no slave can connect to it")
	case f.Loopback:
		return pass("both are on this host")
	case isLoopback(host):
		return refuse("init the master under an address that other hosts reach", "the master's address %s is a loopback address, but this server is at %s", s.Master.Address, f.Host)
	case isLoopback(bind):
		return refuse("set bind-address on "+s.Master.Name+" to its own address or *, and restart it", "bind_address is %s on the master: %s cannot connect to it", bind, f.Host)
	}
	return pass("the master listens at %s", s.Master.Address)
}

func (s *SlaveFacts) judgeMasterFilter() Check {
	m := &s.MasterFacts
	if m.BinlogDoDB != "" || m.BinlogIgnoreDB != "" {
		return refuse("remove binlog-do-db and binlog-ignore-db from "+s.Master.Name+"'s configuration and restart it",
			"the master's binary log is filtered (binlog_do_db %q, binlog_ignore_db %q): by the current schema, not by the table that is changed", m.BinlogDoDB, m.BinlogIgnoreDB)
	}
	return pass("the master's binary log is not filtered")
}

func (s *SlaveFacts) judgeLowerCase() Check {
	own, master := s.Traits.LowerCase, s.MasterTraits.LowerCase
	if own != master {
		return refuse("install this server anew with lower_case_table_names="+master, "lower_case_table_names is %s, the master's is %s: names of schemas and tables would not be found", own, master)
	}
	return pass("lower_case_table_names is %s on both", own)
}

// judgeTimeZone: a statement that was written under time_zone=SYSTEM means
// another moment on a server whose system has another zone, without any error.
func (s *SlaveFacts) judgeTimeZone() Check {
	own, m := s.Traits, s.MasterTraits
	text := fmt.Sprintf("the system's time zone is %s (%+d s from UTC), the master's is %s (%+d s)", own.SystemTimeZone, own.UTCOffset, m.SystemTimeZone, m.UTCOffset)
	switch {
	case own.UTCOffset == m.UTCOffset:
		return pass("%s", text)
	case strings.EqualFold(m.BinlogFormat, "ROW"):
		return warn("start both servers with the same time zone", "%s; harmless as long as the master's binlog_format is ROW", text)
	case !strings.EqualFold(m.TimeZone, "SYSTEM"):
		return warn("start both servers with the same time zone", "%s; harmless as long as no session sets time_zone=SYSTEM, for the master's time_zone is %s", text, m.TimeZone)
	}
	return refuse("start this server with the master's time zone (timezone= in [mysqld_safe], TZ in its service), or set binlog_format=ROW on the master",
		"%s; with binlog_format=%s and time_zone=SYSTEM, times in statements would be stored wrongly without an error", text, m.BinlogFormat)
}

func (s *SlaveFacts) judgeCollations() Check {
	if len(s.UnknownCollations) > 0 {
		return refuse("upgrade this server", "the master uses collations that this server does not know: %s", shorten(s.UnknownCollations))
	}
	return pass("all collations of the master are known")
}

func (s *SlaveFacts) judgePackets() Check {
	master, own := s.MasterTraits.MaxAllowedPacket, s.Traits.SlaveMaxAllowedPacket
	if own < master {
		return warn("", "slave_max_allowed_packet is %d, the master's max_allowed_packet %d: larger events would stop replication with error 1153; it is raised to %s", own, master, slaveMaxPacket)
	}
	return pass("slave_max_allowed_packet is %d, the master's max_allowed_packet %d", own, master)
}

func (s *SlaveFacts) judgeSources(f Facts) Check {
	if s.attached(f) {
		return pass("it replicates from %s", s.attachedTo(f).Name)
	}
	host, port, _, _ := ParseAddress(s.source().Address)
	for _, c := range f.Sources {
		// What an interrupted run of this very verb left.
		ours := c.Connection == mysql.CheckConnection || c.Connection == "" && c.Host == host && c.Port == port && c.User == mysql.UserReplication
		if c.Host != "" && !ours {
			return refuse("end its replication first: STOP ALL SLAVES; RESET SLAVE ALL", "it is a slave of %s:%d (connection %q)", c.Host, c.Port, c.Connection)
		}
	}
	return pass("it is nobody's slave")
}

// judgeSlaves: a copy resets the binary log that its slaves read.
func (s *SlaveFacts) judgeSlaves(f Facts) Check {
	if len(f.DumpThreads) > 0 && !s.attached(f) {
		return refuse("remove its slaves first, or give them another master", "other servers replicate from it: %s", strings.Join(f.DumpThreads, ", "))
	}
	return pass("nobody replicates from it")
}

func (s *SlaveFacts) judgeData(r SlaveRequest, kind copyKind) Check {
	if kind == copyNothing || kind == copyKeep {
		return pass("its data stays")
	}
	foreign := foreignSchemas(s.Holding, s.Unfinished)
	if len(foreign) > 0 && !r.ReplaceData {
		return refuse("back up what you need, then give --replace-data; or --clone none if it is a restored backup of the master",
			"it already holds data, which becoming a slave would destroy: %s", describeSchemas(foreign))
	}
	var notes []string
	if len(foreign) > 0 {
		notes = append(notes, "its own data is destroyed: "+describeSchemas(foreign))
	}
	var extra []string
	for _, a := range s.Holding.OtherAccounts(append(repldUsers(), s.AdminUser)...) {
		if !slices.Contains(s.MasterHolding.Accounts, a) {
			extra = append(extra, a.String())
		}
	}
	if len(extra) > 0 {
		notes = append(notes, "accounts that the master does not have stay: "+shorten(extra))
	}
	if len(notes) > 0 {
		return warn("", "%s", strings.Join(notes, "; "))
	}
	return pass("it holds no data")
}

func (s *SlaveFacts) judgePosition(f Facts, c Context, kind copyKind) Check {
	if kind != copyKeep {
		return pass("the position comes from the master")
	}
	p := restoredPosition(f)
	if err := checkRestored(p, f, c, *s); err != nil {
		return refuse("set gtid_slave_pos to the position of the backup, restore a newer backup of this master, or let repld copy (--clone dump)", "the restored data cannot be continued from: %v", err)
	}
	return pass("its data goes up to %s, from which the master can continue", p)
}

func (s *SlaveFacts) judgeSpace(kind copyKind) Check {
	need := s.MasterHolding.Bytes()
	switch {
	case kind != copyDump:
		return pass("nothing is copied")
	case !s.FreeKnown:
		return pass("about %s are copied; the server's free space is not known", sizeText(need))
	// What it replaces is freed first; a loaded table is seldom larger than the
	// one it is a copy of.
	case s.Free+s.Holding.Bytes() < need+need/10:
		return refuse("make room on its disk", "about %s are needed, %s are free", sizeText(need+need/10), sizeText(s.Free+s.Holding.Bytes()))
	}
	return pass("about %s are copied, %s are free", sizeText(need), sizeText(s.Free))
}

// judgeGaps keeps a slave out of the ranks that lacks, or may lack, what it was
// told to leave out: its data does not become whole by leaving the option away.
func (s *SlaveFacts) judgeGaps(r SlaveRequest, c Context) Check {
	srv := c.Cluster.Servers[s.Name]
	if srv == nil {
		return pass("it is a new member")
	}
	again := "replctl remove " + s.Name + ", then init slave again with --replace-data, which copies the master's data"
	for _, db := range r.ReplicateDoDB {
		if len(srv.ReplicateDoDB) > 0 && !slices.Contains(srv.ReplicateDoDB, db) {
			return refuse(again, "it has replicated only %s so far, and has no data of %s", strings.Join(srv.ReplicateDoDB, ", "), db)
		}
	}
	switch {
	case len(srv.ReplicateDoDB) > 0 && len(r.ReplicateDoDB) == 0:
		return refuse(again+"; or give the same --replicate-do-db", "it has replicated only %s so far, and lacks everything else", strings.Join(srv.ReplicateDoDB, ", "))
	case srv.SkipErrors != "" && r.SkipErrors == "":
		return refuse(again+"; or give --skip-errors "+strings.ToLower(srv.SkipErrors), "it has skipped errors (%s) so far, and may differ from its master", srv.SkipErrors)
	}
	return pass("nothing was left out")
}

// judgeFilters: a filter that was set by hand makes gaps that nothing shows, and
// replicate_do_db judges by the current schema instead of the changed table.
func (s *SlaveFacts) judgeFilters(r SlaveRequest) Check {
	var foreign []string
	want := map[string]bool{}
	for _, db := range r.ReplicateDoDB {
		want[wildPattern(db)] = true
	}
	for _, filter := range s.Traits.Filters {
		name, value, _ := strings.Cut(filter, "=")
		ours := name == "replicate_wild_do_table"
		for rule := range strings.SplitSeq(value, ",") {
			ours = ours && want[rule]
		}
		if !ours {
			foreign = append(foreign, filter)
		}
	}
	switch {
	case len(foreign) > 0:
		return warn("remove the filter from the server's configuration, or let repld set it with --replicate-do-db (replicate_wild_do_table)",
			"replication filters are set on the server (%s): it will lack data, and is never promoted; replicate_do_db judges by the current schema and misses changes made from another one", strings.Join(foreign, ", "))
	case len(r.ReplicateDoDB) > 0:
		return warn("", "only %s is replicated: it is never promoted", strings.Join(r.ReplicateDoDB, ", "))
	}
	return pass("nothing is filtered")
}

func (s *SlaveFacts) judgeSkip(r SlaveRequest) Check {
	switch {
	case r.SkipErrors != "":
		return warn("leave --skip-errors away", "errors %s will be skipped: the server comes to differ from its master in silence, and is never promoted", r.SkipErrors)
	case s.Traits.SkipErrors != "":
		return refuse("remove slave-skip-errors from the server's configuration and restart it; or give --skip-errors "+strings.ToLower(s.Traits.SkipErrors)+", with which it is never promoted",
			"slave_skip_errors is %s: the server would come to differ from its master in silence", s.Traits.SkipErrors)
	}
	return pass("no error is skipped")
}
