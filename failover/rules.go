package failover

import (
	"fmt"
	"strings"

	"github.com/repld/repld/health"
)

// rule is one reason for which a server would not be promoted. The table below
// is what Decide, status and explain share.
type rule struct {
	code string
	// needs says what the rule asks for, measured what is so.
	needs    string
	measured func(d *decider, m *member) string
	// violated says how the rule is broken, "" if it holds.
	violated func(d *decider, m *member) string
	// blind is true for a rule that needs no observation of the server.
	blind bool
}

// recorded is a rule about what is recorded of a server.
func recorded(code, needs, text string) rule {
	has := func(m *member) bool {
		for _, c := range m.s.NeverPromotable() {
			if c == code {
				return true
			}
		}
		return false
	}
	return rule{code: code, needs: needs, blind: true,
		measured: func(_ *decider, m *member) string {
			if has(m) {
				return text
			}
			return "so it is recorded"
		},
		violated: func(_ *decider, m *member) string {
			if has(m) {
				return text
			}
			return ""
		}}
}

// unless is the text of a broken rule.
func unless(holds bool, format string, args ...any) string {
	if holds {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// promotionRules are all rules about a candidate, in the order in which their
// violations are reported.
var promotionRules = []rule{
	recorded("promotion_never", "its promotion preference is another one than never", "its promotion preference is never"),
	recorded("delayed", "it is not delayed on purpose", "it is delayed on purpose"),
	recorded("filtered", "it replicates all schemas", "it replicates only some schemas"),
	recorded("skip_errors", "it skips no replication errors", "it skips replication errors and may have drifted"),
	recorded("joining", "it is set up", "it is still being set up"),
	recorded("diverged", "it has no transactions of its own", "it has transactions that the cluster does not have"),
	recorded("maintenance", "nobody works on it", "a person works on it (replctl maintenance)"),
	{code: "unreachable", needs: "repld reaches it", blind: true,
		measured: func(_ *decider, m *member) string { return reachText(m.sv) },
		violated: func(_ *decider, m *member) string {
			return unless(m.sv.Reachable(), "repld cannot reach it: %s", reachText(m.sv))
		}},
	{code: "no_binlog", needs: "log_bin is on",
		measured: func(_ *decider, m *member) string { return fmt.Sprintf("log_bin is %v", m.sv.LastOK.LogBin) },
		violated: func(_ *decider, m *member) string { return unless(m.sv.LastOK.LogBin, "log_bin is off") }},
	{code: "no_log_slave_updates", needs: "log_slave_updates is on",
		measured: func(_ *decider, m *member) string {
			return fmt.Sprintf("log_slave_updates is %v", m.sv.LastOK.LogSlaveUpdates)
		},
		violated: func(_ *decider, m *member) string {
			return unless(m.sv.LastOK.LogSlaveUpdates, "log_slave_updates is off: nobody could follow it")
		}},
	{code: "skip_errors", needs: "slave_skip_errors is OFF",
		measured: func(_ *decider, m *member) string {
			return "slave_skip_errors is " + cmpOr(m.sv.LastOK.SkipErrors, "OFF")
		},
		violated: func(_ *decider, m *member) string {
			skip := strings.ToUpper(m.sv.LastOK.SkipErrors)
			return unless(skip == "" || skip == "OFF" || m.s.SkipErrors != "", "slave_skip_errors is %s", m.sv.LastOK.SkipErrors)
		}},
	{code: "filtered", needs: "no replication filter is set",
		measured: slaveFact(func(st *health.SlaveStatus) string { return fmt.Sprintf("a filter is set: %v", st.Filtered) }),
		violated: slaveRule(func(m *member, st *health.SlaveStatus) string {
			return unless(!st.Filtered || len(m.s.ReplicateDoDB) > 0, "a replication filter is set")
		})},
	{code: "delayed", needs: "MASTER_DELAY is 0",
		measured: slaveFact(func(st *health.SlaveStatus) string { return fmt.Sprintf("MASTER_DELAY is %v", st.Delay) }),
		violated: slaveRule(func(m *member, st *health.SlaveStatus) string {
			return unless(st.Delay == 0 || m.s.Delay > 0, "it is delayed by %v", st.Delay)
		})},
	{code: "sql_error", needs: "its SQL thread has no error",
		measured: slaveFact(func(st *health.SlaveStatus) string {
			return fmt.Sprintf("SQL thread %s, error %d", st.SQL, st.SQLErrno)
		}),
		violated: slaveRule(func(_ *member, st *health.SlaveStatus) string {
			return unless(st.SQLErrno == 0, "its SQL thread stopped with error %d: %s", st.SQLErrno, st.SQLError)
		})},
	{code: "errant", needs: "all that it has is the cluster's own",
		measured: func(_ *decider, m *member) string {
			return fmt.Sprintf("it has received %s and applied %s", m.received, m.applied)
		},
		violated: func(d *decider, m *member) string {
			if !d.own(m, m.applied) || !d.own(m, m.received) {
				return fmt.Sprintf("its position %s is off the cluster's lineage", m.received)
			}
			extra := d.errant(m.name)
			return unless(len(extra) == 0, "it has transactions of its own: %s", printGTIDs(extra))
		}},
}

func slaveFact(of func(st *health.SlaveStatus) string) func(*decider, *member) string {
	return func(_ *decider, m *member) string {
		if st := m.sv.LastOK.Slave; st != nil {
			return of(st)
		}
		return "it replicates from nobody"
	}
}

func slaveRule(of func(m *member, st *health.SlaveStatus) string) func(*decider, *member) string {
	return func(_ *decider, m *member) string {
		if st := m.sv.LastOK.Slave; st != nil {
			return of(m, st)
		}
		return ""
	}
}

// against lists every reason not to promote a server.
func (d *decider) against(m *member) []Problem {
	var out []Problem
	seen := m.sv.Reachable() || m.sv.LastOK.Reach == health.ReachOK
	for _, r := range promotionRules {
		if !r.blind && !seen {
			continue
		}
		if text := r.violated(d, m); text != "" {
			out = append(out, Problem{Code: r.code, Server: m.name, Text: text})
		}
	}
	return out
}
