package mariadb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"sync"
)

// The administrator that every server of a kit has, with all privileges and the
// grant option, by TCP and by socket.
const (
	AdminUser     = "admin"
	AdminPassword = "kit-administrator-1"
)

// Kit owns a folder and the servers in it.
type Kit struct {
	// Dir is the kit's own folder; Close removes it with all that is in it.
	Dir string

	binaries binaries
	user     string // the account that servers run as; "" for our own
	guardian *guardian
	ports    *ports

	mu      sync.Mutex
	servers []*Server
	closed  bool
}

// binaries are the programs that a kit runs.
type binaries struct{ server, install, admin string }

// NewKit makes a kit with a folder of its own inside dir, or inside the system's
// temporary directory if dir is empty. The servers' account must be able to enter
// dir, and its path must be short, since that of a socket is limited. NewKit
// fails if MariaDB's server or client programs are not installed. Close the kit.
func NewKit(dir string) (*Kit, error) {
	bin, err := findBinaries()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp(cmp.Or(dir, os.TempDir()), "repld-kit-")
	if err != nil {
		return nil, fmt.Errorf("test kit: make a folder: %w", err)
	}
	if folder, err = filepath.Abs(folder); err != nil {
		return nil, fmt.Errorf("test kit: %w", err)
	}
	k := &Kit{Dir: folder, binaries: bin, user: serverUser(), ports: &ports{}}
	// The servers' account must be able to enter the folder.
	if err := os.Chmod(folder, 0o755); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	if k.guardian, err = newGuardian(folder); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	if err := os.WriteFile(k.passwordFile(), []byte(AdminPassword+"\n"), 0o600); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

// Start copies the template data directory, writes the server's my.cnf, starts
// the server and waits until it answers.
func (k *Kit) Start(ctx context.Context, opts Options) (*Server, error) {
	s, err := k.Prepare(ctx, opts)
	if err != nil {
		return nil, err
	}
	return s, s.StartAgain(ctx)
}

// StartAll starts several servers in parallel; on failure none is returned, and
// those that did start end with the kit.
func (k *Kit) StartAll(ctx context.Context, opts ...Options) ([]*Server, error) {
	servers := make([]*Server, len(opts))
	for i, o := range opts {
		var err error
		// One after the other, so that they are named in their order.
		if servers[i], err = k.add(o); err != nil {
			return nil, err
		}
	}
	errs := make([]error, len(opts))
	var wg sync.WaitGroup
	for i, s := range servers {
		wg.Go(func() {
			if errs[i] = s.lay(ctx); errs[i] == nil {
				errs[i] = s.StartAgain(ctx)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return servers, nil
}

// Prepare does what Start does but does not start the server.
func (k *Kit) Prepare(ctx context.Context, opts Options) (*Server, error) {
	s, err := k.add(opts)
	if err != nil {
		return nil, err
	}
	return s, s.lay(ctx)
}

// Servers lists the kit's servers in the order in which they were made.
func (k *Kit) Servers() []*Server {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]*Server(nil), k.servers...)
}

// FreePort returns a loopback port that nothing listens on and that no other
// kit on this machine is given until this one is closed.
func (k *Kit) FreePort() (int, error) { return k.ports.take() }

// Close kills every server of the kit, also those that a restart script
// started, and removes the folder. It may be called more than once.
func (k *Kit) Close() error {
	k.mu.Lock()
	servers := k.servers
	again := k.closed
	k.closed = true
	k.mu.Unlock()
	if again {
		return nil
	}
	var errs []error
	for _, s := range servers {
		errs = append(errs, s.Close())
	}
	// A restart script that runs right now could start a server after the kill;
	// the guardian's second sweep, after the folder is gone, gets that one too.
	errs = append(errs, k.guardian.finish(), k.ports.release())
	return errors.Join(errs...)
}

// add registers a new server, with a name and a port of its own.
func (k *Kit) add(opts Options) (*Server, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return nil, errors.New("test kit: closed")
	}
	if opts.Name == "" {
		opts.Name = fmt.Sprintf("db%d", len(k.servers)+1)
	}
	for _, s := range k.servers {
		if s.Name == opts.Name {
			return nil, fmt.Errorf("test kit: there is a server %s already", opts.Name)
		}
	}
	if opts.Port == 0 {
		port, err := k.ports.take()
		if err != nil {
			return nil, err
		}
		opts.Port = port
	}
	s := newServer(k, opts)
	k.servers = append(k.servers, s)
	return s, nil
}

func (k *Kit) passwordFile() string { return filepath.Join(k.Dir, "admin.password") }

// serverUser is the account to run servers as: mariadbd refuses to run as root
// unless told to, and the server package alone does not make its account.
func serverUser() string {
	if os.Geteuid() != 0 {
		return ""
	}
	if _, err := user.Lookup("mysql"); err == nil {
		return "mysql"
	}
	return "root"
}

func findBinaries() (binaries, error) {
	server, err1 := find("mariadbd")
	install, err2 := find("mariadb-install-db")
	admin, err3 := find("mariadb-admin")
	if err := errors.Join(err1, err2, err3); err != nil {
		return binaries{}, fmt.Errorf("test kit: MariaDB is not installed (scripts/deps.sh installs it): %w", err)
	}
	return binaries{server, install, admin}, nil
}

// find looks in PATH and, since ordinary users often lack it there, in /usr/sbin.
func find(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err == nil {
		return path, nil
	}
	if sbin, err2 := exec.LookPath("/usr/sbin/" + program); err2 == nil {
		return sbin, nil
	}
	return "", err
}
