package app

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/repld/repld/binlog"
	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/topology"
)

// ringSize bounds the memory of when each transaction was received.
const ringSize = 16 << 10

// heartbeatEvery is how often an idle master's stream gives a sign of life, and
// at least heartbeatsIn times within failover.hang_timeout. Each one wakes
// repld up; the end of a killed master is seen at once without any.
const (
	heartbeatEvery = 250 * time.Millisecond
	heartbeatsIn   = 8
)

// follower streams the binary log of whoever is the recorded master: a second
// witness of its health, and the clock of lag.
type follower struct {
	cluster string
	store   *topology.Store
	members *members
	log     *slog.Logger
	silence time.Duration
	monitor *health.Monitor
	wake    chan struct{}

	mu      sync.Mutex
	master  topology.Server
	epoch   uint64
	floor   gtid.GTID
	ring    *binlog.Ring
	hearing binlog.Heard
}

func newFollower(m *members, log *slog.Logger, silence time.Duration) *follower {
	return &follower{cluster: m.cluster, store: m.store, members: m, log: log, silence: silence, wake: make(chan struct{}, 1)}
}

// point tells the follower who is master now.
func (f *follower) point(c *topology.Cluster) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var master topology.Server
	if s := c.Servers[c.Master]; s != nil {
		master = *s
	}
	if master.Name == f.master.Name && master.Address == f.master.Address && c.Epoch == f.epoch {
		return
	}
	f.master, f.epoch, f.floor = master, c.Epoch, c.Floor
	f.ring, f.hearing = nil, binlog.Heard{}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// run keeps one stream to the present master.
func (f *follower) run(ctx context.Context) {
	first := true
	for ctx.Err() == nil {
		f.mu.Lock()
		master, floor := f.master, f.floor
		f.mu.Unlock()
		if master.Name == "" {
			select {
			case <-ctx.Done():
			case <-f.wake:
			}
			continue
		}
		// A new master's era is read from its beginning; after a start of repld
		// only what comes from now on is of interest.
		start := binlog.Now()
		if !first && !floor.IsZero() {
			start = binlog.After(gtid.At(floor))
		}
		first = false
		f.follow(ctx, master, start)
	}
}

// follow streams one master until another one is recorded.
func (f *follower) follow(ctx context.Context, master topology.Server, start binlog.Start) {
	login := f.members.target(master)
	s, err := binlog.NewStream(binlog.Options{
		Address: login.Address, User: login.User, Password: login.Password, TLS: login.TLS,
		ServerID: f.serverID(), Identity: &master.Identity,
		Heartbeat: max(min(heartbeatEvery, f.silence/heartbeatsIn), time.Millisecond),
	}, start, &listener{f: f, server: master.Name})
	if err != nil {
		f.log.Error("the binary log cannot be streamed", logServer, master.Name, logError, err)
		select {
		case <-ctx.Done():
		case <-f.wake:
		case <-time.After(time.Second):
		}
		return
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx)
	}()
	select {
	case <-f.wake:
	case <-ctx.Done():
	case <-ended:
		// The stream gave up for good, for example because the position is purged.
		select {
		case <-f.wake:
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
	s.Close()
	<-ended
}

// serverID is what the stream registers with: stable for this state file, from
// a range that init never gives to a server, and no member's.
func (f *follower) serverID() uint32 {
	sum := sha256.Sum256([]byte(f.store.Instance() + "/" + f.cluster))
	id := 0xF0000000 | binary.BigEndian.Uint32(sum[:4])>>4
	c := f.store.Cluster(f.cluster)
	for taken := true; taken; {
		taken = false
		for _, s := range c.Servers {
			if s.Identity.ServerID == id {
				id, taken = id+1, true
			}
		}
	}
	return id
}

// lag fills in how far a server is behind; it is called by the monitor. Where
// the stream has not yet seen what the master was observed to have, a slave that
// has all that the stream saw is behind by an unknown time, not by none.
func (f *follower) lag(sv, master *health.ServerView, now time.Time) {
	if sv.LastOK.Reach != health.ReachOK {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ring == nil {
		return
	}
	domain := f.floor.Domain
	applied := sv.LastOK.SlavePos.Of(domain).Seq
	received := applied
	if st := sv.LastOK.Slave; st == nil {
		applied = max(applied, sv.LastOK.BinlogPos.Of(domain).Seq)
		received = applied
	} else {
		received = max(received, st.Received.Of(domain).Seq)
	}
	lag := binlog.LagOf(f.ring, applied, f.hearing, now, f.silence)
	sv.LagApplied = age(lag)
	if lag.Known && !lag.AtLeast {
		sv.LagBytes = &lag.Bytes
	}
	if has := master.LastOK.BinlogPos.Of(domain).Seq; has > f.ring.Last() && has > applied && applied >= f.ring.Last() {
		sv.LagApplied, sv.LagBytes = nil, nil
	}
	got := binlog.LagOf(f.ring, received, f.hearing, now, 24*time.Hour)
	got.Known = got.Known || !got.AtLeast && got.Transactions > 0
	sv.LagReceived = age(got)
	if behind, ok := f.ring.Behind(received); ok {
		sv.Missing = &behind.Transactions
	}
}

func age(l binlog.Lag) *time.Duration {
	if !l.Known {
		return nil
	}
	return &l.Age
}

// listener takes in what a stream of one server says.
type listener struct {
	f      *follower
	server string
}

// Connected begins the ring at the position that the stream starts from.
func (l *listener) Connected(e binlog.Connected) {
	l.f.mu.Lock()
	if l.f.master.Name == l.server {
		l.f.floor.Domain = l.f.domain()
		if l.f.ring == nil {
			l.f.ring = binlog.NewRing(e.After.Of(l.f.floor.Domain).Seq, ringSize)
		}
		l.f.hearing = binlog.Heard{Connected: true, Last: e.At}
	}
	l.f.mu.Unlock()
	l.f.monitor.StreamUp(l.server, e.At)
}

// domain is the cluster's one domain; the lock is held.
func (f *follower) domain() uint32 { return f.store.Cluster(f.cluster).Lineage.Domain() }

// Transaction notes when it was received.
func (l *listener) Transaction(e binlog.Transaction) {
	l.f.mu.Lock()
	if l.f.master.Name == l.server && l.f.ring != nil && e.GTID.Domain == l.f.floor.Domain {
		l.f.ring.Add(e.GTID.Seq, e.At, e.Bytes)
		l.f.hearing.Last = e.At
	}
	l.f.mu.Unlock()
	l.f.monitor.StreamEvent(l.server, e.At, e.GTID, e.File, e.Pos)
}

// Heartbeat is a sign of life.
func (l *listener) Heartbeat(e binlog.Heartbeat) {
	l.f.mu.Lock()
	if l.f.master.Name == l.server {
		l.f.hearing.Last = e.At
	}
	l.f.mu.Unlock()
	l.f.monitor.StreamEvent(l.server, e.At, gtid.GTID{}, e.File, e.Pos)
}

// Rotated changes nothing here.
func (l *listener) Rotated(binlog.Rotated) {}

// Disconnected is often the first symptom of a master's death.
func (l *listener) Disconnected(e binlog.Disconnected) {
	l.f.mu.Lock()
	if l.f.master.Name == l.server {
		l.f.hearing.Connected = false
	}
	l.f.mu.Unlock()
	if e.Attempt == 0 && !errors.Is(e.Err, binlog.ErrClosed) {
		l.f.log.Warn("the binary log stream broke", logServer, l.server, logError, e.Err)
	}
	l.f.monitor.StreamDown(l.server, e.At, e.Err)
}
