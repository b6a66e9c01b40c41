package api

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/repld/repld/internal/fault"
)

// socketMode lets the owner and socket_group in, and nobody else.
const socketMode = 0o660

// Listen binds the control socket: endpoint is unix:///PATH, group the group
// that may use it, "" for the process's own. A socket that another repld
// answers on, or holds the lock of, is a fault of kind Failed; one that a dead
// process left behind is replaced. Closing the listener removes the socket.
func Listen(endpoint, group string) (net.Listener, error) {
	path, ok := strings.CutPrefix(endpoint, "unix://")
	if !ok || !filepath.IsAbs(path) {
		return nil, &fault.Error{Kind: fault.Usage, Code: "bad_endpoint", What: fmt.Sprintf("cannot listen on %q", endpoint),
			Cause: "it is not unix:///path", State: notListening, Do: "correct the key listen"}
	}
	gid, err := groupID(group)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, cannotListen(path, err)
	}
	lock, err := lockSocket(path)
	if err != nil {
		return nil, err
	}
	l, err := bind(path, gid)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return &listener{UnixListener: l, path: path, lock: lock}, nil
}

// lockSocket decides races between two repld that start at once, which looking
// at the socket cannot. The file stays: whoever removes a lock file can remove
// one that a third process has just locked.
func lockSocket(path string) (*os.File, error) {
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, cannotListen(path, err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = lock.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, inUse(path)
		}
		return nil, cannotListen(path, err)
	}
	if err := checkFree(path); err != nil {
		_ = lock.Close()
		return nil, err
	}
	return lock, nil
}

// checkFree refuses a path that something answers on or that is no socket.
func checkFree(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return cannotListen(path, err)
	}
	if info.Mode().Type() != os.ModeSocket {
		return cannotListen(path, errors.New("there is a file of that name, and it is not a socket"))
	}
	conn, err := net.DialTimeout("unix", path, 2*time.Second)
	if err == nil {
		_ = conn.Close()
		return inUse(path)
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil
	}
	return cannotListen(path, err)
}

// bind makes the socket under another name and moves it into place once its
// mode and group are right: at no moment can a stranger connect, or a client
// meet no socket where a stale one was.
func bind(path string, gid int) (*net.UnixListener, error) {
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, cannotListen(path, err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: fresh, Net: "unix"})
	if err != nil {
		return nil, cannotListen(path, err)
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(fresh, socketMode)
	if err == nil && gid >= 0 {
		err = os.Chown(fresh, -1, gid)
	}
	if err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		_ = os.Remove(fresh)
		_ = l.Close()
		return nil, cannotListen(path, err)
	}
	return l, nil
}

// listener removes its socket, and only then gives up the lock.
type listener struct {
	*net.UnixListener
	path string
	lock *os.File
	once sync.Once
	err  error
}

func (l *listener) Close() error {
	l.once.Do(func() {
		l.err = errors.Join(os.Remove(l.path), l.UnixListener.Close(), l.lock.Close())
	})
	return l.err
}

// groupID is -1 for no group.
func groupID(name string) (int, error) {
	if name == "" {
		return -1, nil
	}
	if id, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(id), nil
	}
	g, err := user.LookupGroup(name)
	if err == nil {
		var id int
		if id, err = strconv.Atoi(g.Gid); err == nil {
			return id, nil
		}
	}
	return 0, &fault.Error{Kind: fault.Usage, Code: "bad_group", What: fmt.Sprintf("cannot give the control socket to group %q", name),
		Cause: err.Error(), State: notListening, Do: "create the group or correct the key socket_group", Err: err}
}

const notListening = "repld did not start; nothing was changed"

func inUse(path string) error {
	return &fault.Error{Kind: fault.Failed, Code: "socket_in_use", What: "the control socket " + path + " is in use",
		Cause: "another repld is running with it", State: notListening,
		Do: "stop the other one, or give this one its own listen and data_dir"}
}

func cannotListen(path string, err error) error {
	return &fault.Error{Kind: fault.Failed, Code: "cannot_listen", What: "cannot listen on the control socket " + path,
		Cause: err.Error(), State: notListening, Do: "make the directory writable for repld, or correct the key listen", Err: err}
}
