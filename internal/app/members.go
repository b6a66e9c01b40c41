package app

import (
	"crypto/x509"
	"sync"

	"github.com/repld/repld/failover"
	"github.com/repld/repld/health"
	"github.com/repld/repld/internal/mysql"
	"github.com/repld/repld/internal/provision"
	"github.com/repld/repld/topology"
)

// members makes what talks to the servers of one cluster with repld's own
// account, and keeps it: a server's prober, effects and lock share the list of
// their own sessions.
type members struct {
	cluster string
	store   *topology.Store
	dataDir string

	mu       sync.Mutex
	sessions map[topology.Identity]*mysql.Sessions
	servers  map[topology.Identity]*mysql.Server
}

func newMembers(cluster string, store *topology.Store, dataDir string) *members {
	return &members{
		cluster: cluster, store: store, dataDir: dataDir,
		sessions: map[topology.Identity]*mysql.Sessions{}, servers: map[topology.Identity]*mysql.Server{},
	}
}

// target is how repld logs in at a server: with its own account, over TLS that
// is verified by the authority kept for the server.
func (m *members) target(s topology.Server) mysql.Target {
	account := m.store.Accounts(m.cluster)[topology.AccountRepld]
	return mysql.Target{
		Name: s.Name, Address: s.Address, User: account.User, Password: account.Password,
		TLS: mysql.TLSFor(m.roots(s), s.Address),
	}
}

// roots is the authority by which a server is verified. Without it none is
// trusted: the connection then fails with an error that says so.
func (m *members) roots(s topology.Server) *x509.CertPool {
	pool, err := provision.RootsOf(m.dataDir, m.cluster, s.Name)
	if err != nil {
		return x509.NewCertPool()
	}
	return pool
}

func (m *members) replication() mysql.Credentials {
	a := m.store.Accounts(m.cluster)[topology.AccountReplication]
	return mysql.Credentials{User: a.User, Password: a.Password}
}

func (m *members) sessionsOf(s topology.Server) *mysql.Sessions {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sessions[s.Identity] == nil {
		m.sessions[s.Identity] = &mysql.Sessions{}
	}
	return m.sessions[s.Identity]
}

// prober makes a prober for a monitor.
func (m *members) prober(_ string, s topology.Server) health.Prober {
	return mysql.NewProber(mysql.ProberOptions{
		Server: s.Name, Sessions: m.sessionsOf(s),
		Target:   func() mysql.Target { return m.target(s) },
		Identity: func() topology.Identity { return s.Identity },
	})
}

// server gives the effects on a server.
func (m *members) server(s topology.Server) failover.Server {
	sessions := m.sessionsOf(s)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.servers[s.Identity] == nil {
		m.servers[s.Identity] = mysql.NewServer(mysql.Options{
			Server: s.Name, Sessions: sessions, Replication: m.replication,
			Target:   func() mysql.Target { return m.target(s) },
			Identity: func() topology.Identity { return s.Identity },
		})
	}
	return m.servers[s.Identity]
}

// close ends the connections of all effects.
func (m *members) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.servers {
		_ = s.Close()
	}
}
