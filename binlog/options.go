package binlog

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/repld/repld/topology"
)

// Options say how to reach a server's binary log.
type Options struct {
	// Address is host:port.
	Address string
	// User needs REPLICATION SLAVE and nothing else.
	User     string
	Password string
	// TLS encrypts and verifies the connection; nil sends everything in clear
	// text. Its ServerName defaults to Address' host.
	TLS *tls.Config
	// ServerID is the server_id that the stream registers with. It must differ
	// from every server's and every other stream's: the server ends the older of
	// two dumps with one id. [ReadTail] does not need it.
	ServerID uint32
	// Host is shown by SHOW SLAVE HOSTS on the server. Default "repld".
	Host string
	// Heartbeat is how often an idle server is to say that it lives. Default 100
	// ms; the server takes no less than 1 ms.
	Heartbeat time.Duration
	// DialTimeout bounds dial, TLS, login and the request for the dump, together.
	// Default 2 s.
	DialTimeout time.Duration
	// Silence is after how long without any byte the connection is given up. It
	// is no judgement on the server, which the absence of heartbeats allows much
	// earlier; it only ends waiting on a connection that a cut has orphaned. It
	// bounds the wait for the first event too, which can take the server a while:
	// it reads a whole file to find a position. Default 10 s.
	Silence time.Duration
	// Identity, if not nil, is the server that must be found at Address: the
	// stream of another one would be a false witness. Parts that are zero are not
	// compared.
	Identity *topology.Identity
}

// String is the address alone, so that a password is never printed by accident.
func (o Options) String() string { return o.Address }

// GoString is String, for %#v.
func (o Options) GoString() string { return o.Address }

// withDefaults fills in what is not set and refuses what cannot work.
func (o Options) withDefaults() (Options, error) {
	if o.Host == "" {
		o.Host = "repld"
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = 100 * time.Millisecond
	}
	if o.DialTimeout == 0 {
		o.DialTimeout = 2 * time.Second
	}
	if o.Silence == 0 {
		o.Silence = 10 * time.Second
	}
	host, _, err := net.SplitHostPort(o.Address)
	switch {
	case err != nil:
		return o, fmt.Errorf("binlog: address %q: %w", o.Address, err)
	case len(o.Host) > 255 || len(o.User) > 255:
		return o, errors.New("binlog: host or user longer than 255 bytes")
	case o.Heartbeat < time.Millisecond:
		return o, fmt.Errorf("binlog: heartbeat %s is below 1 ms", o.Heartbeat)
	case o.Silence <= o.Heartbeat:
		return o, fmt.Errorf("binlog: silence %s must be longer than the heartbeat %s", o.Silence, o.Heartbeat)
	}
	if o.TLS != nil && o.TLS.ServerName == "" && !o.TLS.InsecureSkipVerify {
		o.TLS = o.TLS.Clone()
		o.TLS.ServerName = host
	}
	return o, nil
}
