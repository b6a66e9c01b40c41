package mysql

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/topology"
)

// Facts are what identifies a server and what rarely changes.
type Facts struct {
	Identity topology.Identity
	Version  string
	Dialect  *Dialect
	// ConnectionID is the session that was asked.
	ConnectionID uint64
	// Started is the server process' start by its uptime, ±1 s.
	Started         time.Time
	LogBin          bool
	LogSlaveUpdates bool
	// EventScheduler is false for OFF and for DISABLED.
	EventScheduler bool
	// SkipErrors is @@slave_skip_errors.
	SkipErrors string
}

// factsQuery reads variables through the information schema, because a
// variable that an older patch release lacks must not fail the whole. The
// status table beside it is avoided: reading it hangs as soon as one session
// hangs in the slave status.
func factsQuery() string {
	names := make([]string, len(mariaDB1011.facts))
	for i, n := range mariaDB1011.facts {
		names[i] = QuoteString(strings.ToUpper(n))
	}
	return "SELECT VARIABLE_NAME AS n, VARIABLE_VALUE AS v FROM information_schema.GLOBAL_VARIABLES WHERE VARIABLE_NAME IN (" +
		strings.Join(names, ", ") + ") UNION ALL SELECT 'CONNECTION_ID', CONNECTION_ID()"
}

// ReadFacts asks a server who it is.
func ReadFacts(ctx context.Context, c *Conn) (Facts, error) {
	rows, err := c.Query(ctx, factsQuery())
	if err != nil {
		return Facts{}, err
	}
	up, err := c.QueryRow(ctx, "SHOW GLOBAL STATUS LIKE 'Uptime'")
	if err != nil {
		return Facts{}, err
	}
	if up == nil {
		return Facts{}, fmt.Errorf("%s: the server does not say its uptime", c.target.Label())
	}
	now := time.Now()
	v := make(map[string]string, len(rows))
	for i := range rows {
		v[strings.ToLower(rows[i].String("n"))] = rows[i].String("v")
	}
	f := Facts{Version: v["version"], LogBin: isOn(v["log_bin"]), LogSlaveUpdates: isOn(v["log_slave_updates"]),
		EventScheduler: isOn(v["event_scheduler"]), SkipErrors: v["slave_skip_errors"]}
	f.Identity = topology.Identity{UID: v["server_uid"], Hostname: v["hostname"], DataDir: v["datadir"]}
	var serverID, port uint64
	for name, to := range map[string]*uint64{"server_id": &serverID, "port": &port, "connection_id": &f.ConnectionID} {
		if *to, err = strconv.ParseUint(v[name], 10, 64); err != nil {
			return f, fmt.Errorf("%s: %s is %q, not a number", c.target.Label(), name, v[name])
		}
	}
	f.Identity.ServerID, f.Identity.Port = uint32(serverID), uint16(port)
	f.Started = now.Add(-time.Duration(up.Uint("Value")) * time.Second)
	if f.Dialect, err = DialectFor(f.Version); err != nil {
		return f, fmt.Errorf("%s: %w", c.target.Label(), err)
	}
	return f, nil
}

// checkIdentity returns an error that wraps [failover.ErrForeign] if another
// server than the recorded one answers. Nothing is checked before one is recorded.
func checkIdentity(label string, recorded, is topology.Identity) error {
	if recorded == (topology.Identity{}) {
		return nil
	}
	if diff := recorded.Differs(is); len(diff) > 0 {
		return fmt.Errorf("%s: %w: %s", label, failover.ErrForeign, strings.Join(diff, ", "))
	}
	return nil
}

// Sessions remembers which sessions on one server belong to this process, so
// that what an earlier process left behind, or a statement that was never
// answered, can be told from what is in use. One is shared by the [Prober], the
// [Server] and the [Lock] of a server. Its zero value is ready; it is safe for
// concurrent use.
type Sessions struct {
	mu  sync.Mutex
	ids map[uint64]bool
}

func (s *Sessions) add(id uint64) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = make(map[uint64]bool)
	}
	s.ids[id] = true
}

func (s *Sessions) drop(id uint64) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ids, id)
}

func (s *Sessions) has(id uint64) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ids[id]
}

// KillOwnSessions ends, on c's server, every session of c's own account but c
// itself, those in keep, and streams of the binary log: whatever an earlier
// process of repld sent and was not answered can then not happen any more. It
// returns once they are gone, but for those that hang in a SHOW, which changes
// nothing and after which a killed session does nothing more.
func KillOwnSessions(ctx context.Context, c *Conn, keep *Sessions) error {
	const others = "SELECT ID AS id, COALESCE(INFO LIKE 'SHOW %', 0) AS harmless FROM information_schema.PROCESSLIST" +
		" WHERE USER = SUBSTRING_INDEX(USER(), '@', 1) AND ID <> CONNECTION_ID() AND COMMAND NOT LIKE 'Binlog Dump%' AND COMMAND <> 'Slave_IO'"
	for {
		rows, err := c.Query(ctx, others)
		if err != nil {
			return err
		}
		left := 0
		for i := range rows {
			id := rows[i].Uint("id")
			if keep.has(id) {
				continue
			}
			if !rows[i].Bool("harmless") {
				left++
			}
			if err := kill(ctx, c, id); err != nil {
				return err
			}
		}
		if left == 0 {
			return nil
		}
		if err := pause(ctx, 2*time.Millisecond); err != nil {
			return fmt.Errorf("%s: %d older sessions of repld do not end: %w", c.target.Label(), left, err)
		}
	}
}

// kill ends a session; one that is gone already is no error.
func kill(ctx context.Context, c *Conn, id uint64) error {
	const errNoSuchThread = 1094
	if err := c.Exec(ctx, "KILL CONNECTION ?", id); err != nil && Errno(err) != errNoSuchThread {
		return err
	}
	return nil
}

// pause waits, or returns early with the context's error.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
