package ledger

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/repld/repld/test/mariadb"
)

// OldMaster names a server, by its server_id, that must not have acknowledged
// anything after another one was opened.
type OldMaster struct {
	ServerID uint32
	Opened   time.Time
}

// Compare stops the writers, waits until the slaves have what the master has,
// but not longer than ctx allows, and compares everything. The error is about
// the comparison itself; what it found is in the report: see [Report.Err].
func (l *Ledger) Compare(ctx context.Context, servers []*mariadb.Server, old ...OldMaster) (*Report, error) {
	l.Stop()
	r := &Report{Acknowledged: len(l.Acks()), Lost: map[string][]int64{}, Extra: map[string][]int64{}}
	r.LongestOutage, r.OutageBegan = l.LongestOutage()
	l.mu.Lock()
	r.Unknown, r.Refused = len(l.unknown), l.refused
	l.mu.Unlock()
	for _, o := range old {
		r.LateAcks = append(r.LateAcks, l.LateAcks(o.ServerID, o.Opened)...)
	}
	if err := r.findWritable(ctx, servers); err != nil {
		return nil, err
	}
	if len(r.Writable) == 1 {
		if err := r.catchUp(ctx, servers); err != nil {
			return nil, err
		}
	}
	// The waiting may have used up ctx; the comparison has its own bounds.
	ctx = context.WithoutCancel(ctx)
	for _, s := range servers {
		if err := l.compareRows(ctx, s, r); err != nil {
			return nil, err
		}
	}
	return r, r.compareTables(ctx, servers)
}

func (r *Report) findWritable(ctx context.Context, servers []*mariadb.Server) error {
	for _, s := range servers {
		v, err := s.Value(ctx, "SELECT @@global.read_only")
		if err != nil {
			return err
		}
		if v == "0" {
			r.Writable = append(r.Writable, s.Name)
		}
	}
	return nil
}

// catchUp waits until each slave has applied the master's last transaction.
func (r *Report) catchUp(ctx context.Context, servers []*mariadb.Server) error {
	i := slices.IndexFunc(servers, func(s *mariadb.Server) bool { return s.Name == r.Writable[0] })
	position, err := servers[i].Value(ctx, "SELECT @@global.gtid_binlog_pos")
	if err != nil {
		return err
	}
	for j, s := range servers {
		if j == i || position == "" {
			continue
		}
		wait := 10 * time.Second
		if deadline, ok := ctx.Deadline(); ok {
			wait = time.Until(deadline)
		}
		// The call is given more time than the wait, so that the wait ends it.
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), wait+5*time.Second)
		v, err := s.Value(call, "SELECT MASTER_GTID_WAIT(?, ?)", position, max(wait, 0).Seconds())
		cancel()
		if err != nil {
			return err
		}
		if v != "0" {
			at, err := s.Value(context.WithoutCancel(ctx), "SELECT @@global.gtid_slave_pos")
			if err != nil {
				return err
			}
			r.Differences = append(r.Differences, fmt.Sprintf("%s stands at %s, the master %s at %s", s.Name, at, servers[i].Name, position))
		}
	}
	return nil
}

// compareRows looks for each acknowledged row on s, and for rows that nobody
// wrote.
func (l *Ledger) compareRows(ctx context.Context, s *mariadb.Server, r *Report) error {
	there, err := ids(ctx, s)
	if err != nil {
		return err
	}
	acks := l.Acks()
	l.mu.Lock()
	defer l.mu.Unlock()
	var lost, extra []int64
	for _, a := range acks {
		if _, ok := there[a.ID]; !ok {
			lost = append(lost, a.ID)
		}
		delete(there, a.ID)
	}
	committed := 0
	for id := range there {
		switch _, unknown := l.unknown[id]; {
		case unknown:
			committed++
		case id > l.firstID: // what was there before the start is none of ours
			extra = append(extra, id)
		}
	}
	slices.Sort(lost)
	slices.Sort(extra)
	if lost != nil {
		r.Lost[s.Name] = lost
	}
	if extra != nil {
		r.Extra[s.Name] = extra
	}
	r.UnknownCommitted = max(r.UnknownCommitted, committed)
	return nil
}

func ids(ctx context.Context, s *mariadb.Server) (map[int64]struct{}, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	db, err := s.DB()
	if err != nil {
		return nil, err
	}
	rows, err := db.QueryContext(ctx, "SELECT id FROM ledger.`rows`")
	if err != nil {
		return nil, fmt.Errorf("server %s: read the ledger: %w", s.Name, err)
	}
	defer rows.Close()
	there := map[int64]struct{}{}
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, fmt.Errorf("server %s: read the ledger: %w", s.Name, err)
		}
		there[id] = struct{}{}
	}
	return there, rows.Err()
}

// compareTables compares all user tables of all servers by checksum.
func (r *Report) compareTables(ctx context.Context, servers []*mariadb.Server) error {
	sums := make([]map[string]string, len(servers))
	tables := map[string]bool{}
	for i, s := range servers {
		var err error
		if sums[i], err = Checksums(ctx, s); err != nil {
			return err
		}
		for t := range sums[i] {
			tables[t] = true
		}
	}
	for _, t := range slices.Sorted(maps.Keys(tables)) {
		var words []string
		same := true
		for i, s := range servers {
			sum, ok := sums[i][t]
			if !ok {
				sum = "absent"
			}
			words = append(words, s.Name+" "+sum)
			same = same && sum == sums[0][t]
		}
		if !same {
			r.Differences = append(r.Differences, fmt.Sprintf("table %s: %s", t, strings.Join(words, ", ")))
		}
	}
	r.Tables = len(tables)
	return nil
}

// Checksums are those of all user tables of a server, by their quoted names.
func Checksums(ctx context.Context, s *mariadb.Server) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	rows, err := s.Rows(ctx, "SELECT table_schema AS s, table_name AS t FROM information_schema.tables WHERE table_type = 'BASE TABLE' "+
		"AND table_schema NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys')")
	if err != nil {
		return nil, err
	}
	sums := make(map[string]string, len(rows))
	for _, row := range rows {
		name := quote(row["s"]) + "." + quote(row["t"])
		sum, err := s.Row(ctx, "CHECKSUM TABLE "+name+" EXTENDED")
		if err != nil {
			return nil, err
		}
		if sum["Checksum"] == "NULL" {
			return nil, fmt.Errorf("server %s: table %s has no checksum", s.Name, name)
		}
		sums[name] = sum["Checksum"]
	}
	return sums, nil
}

func quote(identifier string) string {
	return "`" + strings.ReplaceAll(identifier, "`", "``") + "`"
}
