package app

import (
	"time"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// buildStatus turns what is known into what is shown. It is pure. What was not
// observed by the latest probe is null: an old value would be taken for the
// present one.
func buildStatus(v *health.View, r failover.Report, mode string) *api.Status {
	c := v.Cluster
	s := &api.Status{
		Cluster: c.Name, Health: string(r.Health), Epoch: c.Epoch, Master: word(c.Master), Mode: mode,
		Paused: c.Paused && (c.PausedUntil.IsZero() || c.PausedUntil.After(v.Now)),
		Durability: api.Durability{
			Configured: string(c.Durability), State: string(c.DurabilityState), Ackers: append([]string{}, r.Ackers...),
		},
		Servers: make([]api.ServerStatus, 0, len(c.Servers)),
		Forecast: api.Forecast{
			Candidate: word(r.Forecast.Candidate), TransactionsAtRisk: r.Forecast.AtRisk, BlockedBecause: problems(r.Forecast.Blocked),
		},
		Problems: problems(r.Problems),
	}
	if s.Durability.State == "" {
		s.Durability.State = string(topology.DurabilityOff)
	}
	for _, name := range c.Names() {
		s.Servers = append(s.Servers, serverStatus(v, c.Servers[name], r.Servers[name]))
	}
	return s
}

func serverStatus(v *health.View, rec *topology.Server, r failover.ServerReport) api.ServerStatus {
	s := api.ServerStatus{
		Name: rec.Name, Address: rec.Address, Role: string(rec.Role), Source: word(rec.Source), State: r.State,
		Flavor: string(rec.Flavor), Version: rec.Version, ServerID: rec.Identity.ServerID,
		Promotable: r.Promotable, NotPromotableBecause: problems(r.Because), Problems: problems(r.Problems),
	}
	if s.State == "" {
		// The report has no word for a cluster without a master.
		s.State = "unreachable"
	}
	sv := v.Servers[rec.Name]
	if sv == nil {
		return s
	}
	if sv.LastOK.Reach == health.ReachOK {
		s.ObservedMSAgo = ms(v.Now.Sub(sv.LastOK.At))
	}
	if !sv.Reachable() {
		if sv.Last.Errno != 0 {
			s.LastError = &api.LastError{Code: sv.Last.Errno, Message: sv.Last.Err}
		}
		return s
	}
	o := &sv.Last
	if from := readsFrom(v, rec.Name); from != "" && rec.Role == topology.RoleSlave {
		s.Source = &from
	}
	s.ReadOnly, s.ClockOffsetMS = &o.ReadOnly, ms(o.ClockOffset)
	if o.Version != "" {
		s.Version = o.Version
	}
	s.LagTransactions = r.LagTransactions
	if rec.Role == topology.RoleMaster {
		masterStatus(&s, o)
		return s
	}
	slaveStatus(&s, sv)
	return s
}

// masterStatus: what the master has is in its binary log; it lags behind nobody.
func masterStatus(s *api.ServerStatus, o *health.Observation) {
	s.GTID = position(o.BinlogPos)
	if s.State == api.StateWritable {
		s.LagMS, s.LagBytes = new(int64), new(uint64)
	}
	if o.Slave != nil {
		threadStatus(s, o.Slave)
	}
}

func slaveStatus(s *api.ServerStatus, sv *health.ServerView) {
	o := &sv.Last
	if o.Slave == nil {
		// Nobody's slave, perhaps a former master: what it has is in its binary
		// log, its gtid_slave_pos being empty or out of date.
		no := string(health.ThreadNo)
		s.GTID, s.IOThread, s.SQLThread = position(o.BinlogPos), &no, &no
		return
	}
	s.GTID = position(o.SlavePos)
	if !o.Slave.Received.IsEmpty() {
		// It is empty after a restart, although the relay log may hold much.
		s.GTIDReceived = position(o.Slave.Received)
	}
	if sv.LagApplied != nil {
		s.LagMS = ms(*sv.LagApplied)
	}
	s.LagBytes = sv.LagBytes
	if s.State == "broken" && s.LagMS != nil && *s.LagMS == 0 {
		// That it has all is about to be untrue, and says nothing good of it.
		s.LagMS, s.LagBytes = nil, nil
	}
	threadStatus(s, o.Slave)
}

func threadStatus(s *api.ServerStatus, st *health.SlaveStatus) {
	io, sql := string(st.IO), string(st.SQL)
	s.IOThread, s.SQLThread, s.TLS = &io, &sql, &st.TLS
	switch {
	case st.SQLErrno != 0:
		s.LastError = &api.LastError{Code: st.SQLErrno, Message: st.SQLError}
	case st.IOErrno != 0:
		s.LastError = &api.LastError{Code: st.IOErrno, Message: st.IOError}
	}
}

func problems(list []failover.Problem) []api.Problem {
	out := make([]api.Problem, 0, len(list))
	for _, p := range list {
		out = append(out, api.Problem{Code: p.Code, Server: p.Server, Text: p.Text, Do: p.Do})
	}
	return out
}

// position prints a position that was observed: "" if it is the empty one.
func position(p gtid.Position) *string {
	s := p.String()
	return &s
}

func ms(d time.Duration) *int64 {
	n := d.Milliseconds()
	return &n
}
