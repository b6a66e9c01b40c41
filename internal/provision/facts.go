package provision

import (
	"time"

	"github.com/repld/repld/internal/mysql"
	"github.com/repld/repld/topology"
)

// Facts are all that is known of a server before it is judged: what it says
// about itself, and what can be seen from outside.
type Facts struct {
	mysql.AdminFacts
	Host string
	Port uint16
	// Local is true if the server runs on repld's own host and repld sees its
	// data directory.
	Local bool
	// AddressIPs are what the address's host resolves to; HostnameIPs what the
	// server's own host name does, empty if it does not resolve here.
	AddressIPs, HostnameIPs []string
	// Loopback is true if only servers on the same host can use the address.
	Loopback bool
	// TLS is how the server presented itself in a handshake against the
	// authority that it is to be verified by.
	TLS TLSFacts
	// Sum is the recorded checksum of the drop-in that was last written, if its
	// text cannot be read from here.
	Sum string
	// Places are the drop-in's path and how the server is restarted.
	Places Places
}

// TLSFacts is the outcome of a TLS handshake.
type TLSFacts struct {
	// Offered is true if the server does TLS at all.
	Offered bool
	// Verified is true if its certificate proves the address's host under the
	// authority; Problem says why not.
	Verified bool
	Problem  string
	NotAfter time.Time
	// FilesProblem is what is wrong with the user's own certificate files, as far
	// as it can be seen; "" if nothing.
	FilesProblem string
	// Missing is a file of repld's that is gone from a local server's data
	// directory, "" if none is: a server goes on with what it loaded, and does not
	// start again without it.
	Missing string
	// Now is when it was measured, for the pure rules read no clock.
	Now time.Time
}

// Places say where the configuration goes and how the server is restarted.
type Places struct {
	// ConfigFile is the drop-in's path on the server's host; ConfigCommand, if
	// set, writes it.
	ConfigFile    string
	ConfigCommand []string
	// ConfigProblem is why repld cannot write the drop-in, "" if it can.
	ConfigProblem string
	// Foreign is true if a file that repld did not write stands there.
	Foreign bool
	// Current is the drop-in's present text, "" if there is none or it cannot be
	// read from here.
	Current string
	// RestartCommand is empty if repld does not know how.
	RestartCommand []string
	RestartProblem string
}

// Known is a server that repld manages already, in whatever cluster.
type Known struct {
	Cluster  string
	Name     string
	Address  string
	Identity topology.Identity
	Version  string
	// MaxAllowedPacket is 0 if unknown.
	MaxAllowedPacket uint64
}

// Context is what repld itself knows when it plans.
type Context struct {
	// Cluster is the recorded cluster; its zero ID means that there is none yet.
	Cluster topology.Cluster
	// Known are all servers of all clusters.
	Known []Known
	// Accounts are repld's accounts of the cluster, recorded or pending.
	Accounts topology.Accounts
	// Instance is this repld's id, as in repld.cluster.
	Instance string
	// ServerTimeout is semi_sync.server_timeout; 0 means never.
	ServerTimeout time.Duration
	// Pending is what an interrupted run of the verb left.
	Pending Pending
}

// others are the known servers but the one that is being set up.
func (c Context) others(cluster, name string) []Known {
	var out []Known
	for _, k := range c.Known {
		if k.Cluster != cluster || k.Name != name {
			out = append(out, k)
		}
	}
	return out
}
