package topology

import (
	"fmt"
	"strconv"
	"strings"
)

// SplitAddress splits host:port, taking the brackets off an IPv6 host; port 0
// if there is none. (Package net is left out of what decides on purpose.)
func SplitAddress(address string) (host string, port uint16) {
	i := strings.LastIndexByte(address, ':')
	if i < 0 {
		return address, 0
	}
	n, err := strconv.ParseUint(address[i+1:], 10, 16)
	if err != nil {
		return address, 0
	}
	return strings.Trim(address[:i], "[]"), uint16(n)
}

// At names the member that is reached at a host and port, "" if it is none.
func (c *Cluster) At(host string, port uint16) string {
	if host == "" {
		return ""
	}
	for _, name := range c.Names() {
		if h, p := SplitAddress(c.Servers[name].Address); h == host && p == port {
			return name
		}
	}
	return ""
}

// Chained tells whether a server is meant to replicate from another slave. Such
// a server is no acker, whatever it reads from now: what it acknowledged to a
// relay was not acknowledged to the master.
func (c *Cluster) Chained(name string) bool {
	s := c.Servers[name]
	return s != nil && name != c.Master && s.Source != c.Master && c.Servers[s.Source] != nil
}

// Children lists the servers that are meant to replicate from a server.
func (c *Cluster) Children(name string) []string {
	var out []string
	for _, n := range c.Names() {
		s := c.Servers[n]
		if n != name && n != c.Master && (s.Source == name || name == c.Master && !c.Chained(n)) {
			out = append(out, n)
		}
	}
	return out
}

// Below tells whether a server is meant to replicate from another one, directly
// or through others.
func (c *Cluster) Below(name, above string) bool {
	for range c.Servers {
		s := c.Servers[name]
		if s == nil || name == c.Master {
			return false
		}
		if s.Source == above {
			return true
		}
		name = s.Source
	}
	return false
}

// SetSource records from whom a slave is meant to replicate: the master, or
// another slave.
type SetSource struct{ Cluster, Server, Source string }

func (c SetSource) cluster() string  { return c.Cluster }
func (c SetSource) structural() bool { return true }
func (c SetSource) apply(st *State) error {
	return st.change(c.Cluster, c.Server, func(cl *Cluster, s *Server) error {
		switch {
		case cl.Intent != nil:
			return fmt.Errorf("cluster %q: %w", c.Cluster, ErrIntentOpen)
		case s.Name == cl.Master:
			return fmt.Errorf("server %q is the master: %w", s.Name, ErrInconsistent)
		case cl.Servers[c.Source] == nil:
			return fmt.Errorf("server %q: %w", c.Source, ErrNoServer)
		case c.Source == s.Name || cl.Below(c.Source, s.Name):
			return fmt.Errorf("server %q would replicate from itself: %w", s.Name, ErrInconsistent)
		}
		s.Source = c.Source
		return nil
	})
}

// change is as [State.server] with a change that may be refused.
func (st *State) change(cluster, name string, change func(*Cluster, *Server) error) error {
	var refused error
	if err := st.server(cluster, name, func(cl *Cluster, s *Server) { refused = change(cl, s) }); err != nil {
		return err
	}
	return refused
}

// inherit gives the children of a server that is removed to its own source.
func (c *Cluster) inherit(name string) {
	gone := c.Servers[name]
	for _, s := range c.Servers {
		if s.Source == name && s != gone {
			s.Source = gone.Source
		}
	}
}
