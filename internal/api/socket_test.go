package api

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/repld/repld/internal/fault"
)

func TestSocketLetsOwnerAndGroupIn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "repld.sock")
	l, err := Listen("unix://"+path, "")
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != fs.ModeSocket|0o660 {
		t.Errorf("mode %v, %v; want srw-rw----", info.Mode(), err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

func TestSocketOfARunningRepldIsRefusedAndUnharmed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "repld.sock")
	first, err := Listen("unix://"+path, "")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if l, err := Listen("unix://"+path, ""); err == nil {
		l.Close()
		t.Fatal("a second repld took the socket")
	} else if f := fault.As(err); f.Code != "socket_in_use" || f.Kind != fault.Failed {
		t.Errorf("got %v", err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the first one is not reached any more: %v", err)
	}
	conn.Close()
}

func TestSocketThatAnotherProgramAnswersOnIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "repld.sock")
	other, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := Listen("unix://"+path, ""); fault.As(err).Code != "socket_in_use" {
		t.Errorf("got %v", err)
	}
}

func TestSocketOfADeadRepldIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "repld.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	// A death between bind and rename leaves this one too.
	if err := os.WriteFile(path+".new", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Listen("unix://"+path, "")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

func TestFileThatIsNoSocketIsNeverRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "repld.sock")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen("unix://"+path, ""); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("got %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "mine" {
		t.Errorf("the file is now %q, %v", text, err)
	}
}

func TestUnknownGroupIsABadConfiguration(t *testing.T) {
	_, err := Listen("unix://"+filepath.Join(t.TempDir(), "s"), "no-such-group-here")
	if f := fault.As(err); f == nil || f.Kind != fault.Usage || f.Code != "bad_group" {
		t.Errorf("got %v", err)
	}
}
