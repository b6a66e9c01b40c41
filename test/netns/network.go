package netns

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"runtime"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// The subnet of every network: each has a switch of its own, and none leads
// anywhere else, so all can use the same addresses.
const (
	subnet = "10.213.77."
	mask   = 24
)

// nowhere is a hardware address that nobody has: what is sent to it is lost.
var nowhere = net.HardwareAddr{0x02, 0xde, 0xad, 0xde, 0xad, 0x00}

// Network is a switch with some nodes. Its methods may be called from any
// goroutine.
type Network struct {
	nodes map[string]*Node
	space netns.NsHandle // the switch's
	links *netlink.Handle

	mu sync.Mutex
	// off are the nodes that are cut off; lost the ways that are cut.
	off  map[string]bool
	lost map[way]bool
}

// way is a direction between two nodes.
type way struct{ from, to string }

// New makes a network of nodes with the given names. It needs the right to make
// network namespaces (CAP_SYS_ADMIN and CAP_NET_ADMIN); without it the error is
// os.ErrPermission. Close the network when whatever runs in it has ended.
func New(names ...string) (*Network, error) {
	n := &Network{nodes: map[string]*Node{}, off: map[string]bool{}, lost: map[way]bool{}, space: netns.None()}
	if err := n.build(names); err != nil {
		return nil, errors.Join(fmt.Errorf("network: %w", err), n.Close())
	}
	return n, nil
}

func (n *Network) build(names []string) error {
	var err error
	if n.space, n.links, err = newSpace(); err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "switch"
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	if err := n.links.LinkAdd(bridge); err != nil {
		return fmt.Errorf("make the switch: %w", err)
	}
	if err := n.links.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("start the switch: %w", err)
	}
	for i, name := range names {
		if n.nodes[name] != nil {
			return fmt.Errorf("two nodes are called %s", name)
		}
		node := &Node{Name: name, IP: fmt.Sprint(subnet, i+1), space: netns.None(), port: fmt.Sprintf("port%d", i+1)}
		n.nodes[name] = node
		if err := n.plug(node, bridge); err != nil {
			return fmt.Errorf("node %s: %w", name, err)
		}
	}
	return nil
}

// plug makes a node's namespace and its cable to the switch.
func (n *Network) plug(node *Node, bridge netlink.Link) error {
	var err error
	if node.space, node.links, err = newSpace(); err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MasterIndex = node.port, bridge.Attrs().Index
	cable := &netlink.Veth{LinkAttrs: attrs, PeerName: cableName, PeerNamespace: netlink.NsFd(node.space)}
	if err := n.links.LinkAdd(cable); err != nil {
		return fmt.Errorf("make its cable: %w", err)
	}
	if err := n.port(node, n.links.LinkSetUp); err != nil {
		return err
	}
	loopback, err := node.links.LinkByName("lo")
	if err != nil {
		return err
	}
	eth, err := node.links.LinkByName(cableName)
	if err != nil {
		return err
	}
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(node.IP), Mask: net.CIDRMask(mask, 32)}}
	if err := node.links.AddrAdd(eth, addr); err != nil {
		return fmt.Errorf("give it an address: %w", err)
	}
	node.cable = eth.Attrs().Index
	return errors.Join(node.links.LinkSetUp(loopback), node.links.LinkSetUp(eth))
}

// port does something with the switch's end of a node's cable.
func (n *Network) port(node *Node, do func(netlink.Link) error) error {
	link, err := n.links.LinkByName(node.port)
	if err != nil {
		return fmt.Errorf("find its port: %w", err)
	}
	return do(link)
}

// newSpace makes a network namespace that lives as long as its handle is open or
// a process runs in it.
func newSpace() (netns.NsHandle, *netlink.Handle, error) {
	space := netns.None()
	err := apart(func() (err error) {
		space, err = netns.New()
		return err
	})
	if err != nil {
		return netns.None(), nil, fmt.Errorf("make a network namespace: %w", err)
	}
	links, err := netlink.NewHandleAt(space)
	if err != nil {
		return netns.None(), nil, errors.Join(fmt.Errorf("enter a network namespace: %w", err), space.Close())
	}
	return space, links, nil
}

// apart runs f on a thread that ends with it, so that f may change what belongs
// to its thread, as the network namespace does.
func apart(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread is no use to others
		result <- f()
	}()
	return <-result
}

// Node is a place of the network, nil if there is none of that name.
func (n *Network) Node(name string) *Node { return n.nodes[name] }

// Nodes lists the names of all nodes, in alphabetical order.
func (n *Network) Nodes() []string { return slices.Sorted(maps.Keys(n.nodes)) }

// Close takes the network down. What still runs in a node stays alone in it.
func (n *Network) Close() error {
	var errs []error
	for _, node := range n.nodes {
		errs = append(errs, closeSpace(node.space, node.links))
	}
	n.nodes = nil
	errs = append(errs, closeSpace(n.space, n.links))
	n.space, n.links = netns.None(), nil
	return errors.Join(errs...)
}

func closeSpace(space netns.NsHandle, links *netlink.Handle) error {
	if links != nil {
		links.Close()
	}
	if !space.IsOpen() {
		return nil
	}
	return space.Close()
}
