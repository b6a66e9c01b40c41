package mariadb

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// Ports are taken below the range from which Linux takes the local ports of
// outgoing connections, so that none of those can occupy a stopped server's.
const (
	firstPort = 15000
	lastPort  = 32000
)

// ports hands out ports, each locked by a file while the kit lives: test
// processes run in parallel, and between finding a free port and listening on
// it somebody else could find it too, as well as while a server is down.
type ports struct {
	mu    sync.Mutex
	locks []*os.File
}

func (p *ports) take() (int, error) {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("repld-kit-ports-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, fmt.Errorf("test kit: ports: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		f, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(port)), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return 0, fmt.Errorf("test kit: ports: %w", err)
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil && isFree(port) {
			p.locks = append(p.locks, f)
			return port, nil
		}
		_ = f.Close()
	}
	return 0, errors.New("test kit: no free port found")
}

// release gives all ports back.
func (p *ports) release() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, f := range p.locks {
		errs = append(errs, f.Close())
	}
	p.locks = nil
	return errors.Join(errs...)
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
