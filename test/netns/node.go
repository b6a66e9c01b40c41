package netns

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// cableName is what each node calls its end of the cable.
const cableName = "eth0"

// Node is one place in a network.
type Node struct {
	Name string
	// IP is its address, which exists in this network only.
	IP string

	space netns.NsHandle
	links *netlink.Handle
	port  string // the switch's end of its cable
	cable int    // the index of its own end
}

// Prefix is the beginning of a command line that runs a command in the node. It
// works as long as this process lives.
func (n *Node) Prefix() []string {
	return []string{"nsenter", fmt.Sprintf("--net=/proc/%d/fd/%d", os.Getpid(), int(n.space)), "--"}
}

// Dial connects from the node to an address in the network, given by number. The
// connection is in the node whoever uses it afterwards.
func (n *Node) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	var conn net.Conn
	err := apart(func() (err error) {
		if err := netns.Set(n.space); err != nil {
			return fmt.Errorf("enter node %s: %w", n.Name, err)
		}
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}
