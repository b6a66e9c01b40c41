package netns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"
)

// listen serves an echo on a port of a node until the test ends.
func listen(t *testing.T, n *Node) string {
	t.Helper()
	var l net.Listener
	if err := apart(func() (err error) {
		if err := netns.Set(n.space); err != nil {
			return err
		}
		l, err = net.Listen("tcp", net.JoinHostPort(n.IP, "7777"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

// dial connects within two seconds; the kernel says by itself after three that there is no way.
func dial(t *testing.T, from *Node, addr string) (net.Conn, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	c, err := from.Dial(ctx, "tcp", addr)
	if err == nil {
		t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

// echo tells whether a connection still carries a word there and back within
// the time.
func echo(c net.Conn, within time.Duration) error {
	_ = c.SetDeadline(time.Now().Add(within))
	if _, err := io.WriteString(c, "x"); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

func timedOut(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

func TestAConnectionIsSilentWhileItIsCutAndGoesOnWhenHealed(t *testing.T) {
	n := Start(t, "a", "b", "c")
	addr := listen(t, n.Node("a"))
	for name, cut := range map[string]func() error{
		"cut off":              func() error { return n.CutOff("a") },
		"other cut off":        func() error { return n.CutOff("b") },
		"cut":                  func() error { return n.Cut("a", "b") },
		"one way":              func() error { return n.CutOneWay("a", "b") },
		"the other way":        func() error { return n.CutOneWay("b", "a") },
		"both ways one by one": func() error { return errors.Join(n.CutOneWay("b", "a"), n.CutOneWay("a", "b")) },
	} {
		t.Run(name, func(t *testing.T) {
			c, err := dial(t, n.Node("b"), addr)
			if err != nil {
				t.Fatal(err)
			}
			if err := echo(c, time.Second); err != nil {
				t.Fatal(err)
			}
			if err := cut(); err != nil {
				t.Fatal(err)
			}
			if err := echo(c, 100*time.Millisecond); !timedOut(err) {
				t.Errorf("over a cut connection: %v", err)
			}
			if _, err := dial(t, n.Node("b"), addr); !timedOut(err) {
				t.Errorf("a dial over a cut way: %v, want silence", err)
			}
			if name != "cut off" {
				if c, err := dial(t, n.Node("c"), addr); err != nil || echo(c, time.Second) != nil {
					t.Errorf("from a node that is not cut: %v", err)
				}
			}
			if err := n.Heal(); err != nil {
				t.Fatal(err)
			}
			if err := echo(c, 5*time.Second); err != nil {
				t.Errorf("after healing, on the same connection: %v", err)
			}
			if c, err := dial(t, n.Node("b"), addr); err != nil || echo(c, time.Second) != nil {
				t.Errorf("after healing, on a new connection: %v", err)
			}
		})
	}
}

// What is sent the way that is not cut still arrives.
func TestOneWayIsOneWay(t *testing.T) {
	n := Start(t, "a", "b")
	addr := listen(t, n.Node("a"))
	c, err := dial(t, n.Node("b"), addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := echo(c, time.Second); err != nil {
		t.Fatal(err)
	}
	if err := n.CutOneWay("a", "b"); err != nil {
		t.Fatal(err)
	}
	// Refusals would come back the cut way: a dial is silent, though it arrives.
	if _, err := dial(t, n.Node("b"), strings.Replace(addr, "7777", "7778", 1)); !timedOut(err) {
		t.Errorf("to a port where nobody listens: %v, want silence", err)
	}
	if err := echo(c, 300*time.Millisecond); !timedOut(err) {
		t.Errorf("the answer came over the cut way: %v", err)
	}
}

// Nothing leads out of a network, into another one, or is left of it.
func TestNetworksAreApartAndLeaveNothing(t *testing.T) {
	before, own := spaces(t), interfaces(t)
	n, m := Start(t, "a", "b"), Start(t, "a", "b")
	addr := listen(t, n.Node("a"))
	if _, err := dial(t, m.Node("b"), addr); err == nil {
		t.Error("one network reaches another one of the same addresses")
	}
	if now := interfaces(t); now != own {
		t.Errorf("the machine's own interfaces were %s and are %s", own, now)
	}
	argv := append(n.Node("b").Prefix(), "cat", "/proc/net/route")
	out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if lines := strings.Split(strings.TrimSpace(string(out)), "\n"); len(lines) != 2 {
		t.Errorf("a node has another route than that to its own subnet:\n%s", out)
	}
	if err := errors.Join(n.Close(), m.Close()); err != nil {
		t.Fatal(err)
	}
	if after := spaces(t); after != before {
		t.Errorf("%d network namespaces are open, %d were before", after, before)
	}
}

// spaces counts the network namespaces that this process holds open.
func spaces(t *testing.T) int {
	t.Helper()
	runtime.GC() // closes no handle, but ends what was dropped
	files, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, f := range files {
		if to, err := os.Readlink(f); err == nil && strings.HasPrefix(to, "net:") {
			count++
		}
	}
	return count
}

func interfaces(t *testing.T) string {
	t.Helper()
	list, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(list)
}
