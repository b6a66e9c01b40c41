package netns

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
)

// CutOff unplugs a node: nothing gets from it or to it any more. It sees its own
// cable dead; the others only see silence.
func (n *Network) CutOff(name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	node := n.nodes[name]
	if node == nil {
		return fmt.Errorf("network: cut off: there is no node %s", name)
	}
	n.off[name] = true
	if err := n.port(node, n.links.LinkSetDown); err != nil {
		return fmt.Errorf("network: cut %s off: %w", name, err)
	}
	return nil
}

// Cut loses everything between two nodes, in both directions.
func (n *Network) Cut(a, b string) error {
	return errors.Join(n.CutOneWay(a, b), n.CutOneWay(b, a))
}

// CutOneWay loses everything that one node sends to the other; what the other
// one sends still arrives. The sender keeps a hardware address that nobody has,
// and so is told nothing: a route that is a black hole would make its dials fail
// at once, by its own doing.
func (n *Network) CutOneWay(from, to string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.nodes[from] == nil || n.nodes[to] == nil {
		return fmt.Errorf("network: cut: there is no node %s or no node %s", from, to)
	}
	n.lost[way{from, to}] = true
	if err := n.nodes[from].links.NeighSet(n.wrong(from, to)); err != nil {
		return fmt.Errorf("network: cut the way from %s to %s: %w", from, to, err)
	}
	return nil
}

// Heal plugs in every node and mends all ways.
func (n *Network) Heal() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var errs []error
	for w := range n.lost {
		if err := n.nodes[w.from].links.NeighDel(n.wrong(w.from, w.to)); err != nil {
			errs = append(errs, fmt.Errorf("network: mend the way from %s to %s: %w", w.from, w.to, err))
		}
		delete(n.lost, w)
	}
	for name := range n.off {
		if err := n.port(n.nodes[name], n.links.LinkSetUp); err != nil {
			errs = append(errs, fmt.Errorf("network: plug %s in: %w", name, err))
		}
		delete(n.off, name)
	}
	return errors.Join(errs...)
}

// wrong is a node's false knowledge of another one's hardware address.
func (n *Network) wrong(from, to string) *netlink.Neigh {
	return &netlink.Neigh{
		LinkIndex: n.nodes[from].cable, State: netlink.NUD_PERMANENT,
		IP: net.ParseIP(n.nodes[to].IP), HardwareAddr: nowhere,
	}
}
