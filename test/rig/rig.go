package rig

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/test/netns"
)

// Options say what a rig consists of.
type Options struct {
	// Bin is the folder with repld and replctl; see [Build].
	Bin string
	// Dir is where the rig makes its own folder; default the system's.
	Dir string
	// Servers is the number of plain servers to start: db1, db2, …
	Servers int
	// Config are further lines for each server's my.cnf, ServerConfig for the one
	// of that name.
	Config       []string
	ServerConfig map[string][]string
	// DataDir is repld's; default a folder of the rig's.
	DataDir string
	// Repld are further lines of repld.yaml.
	Repld []string
	// Network, if not nil, is where they run: each server in the node of its name,
	// repld in the node "repld". It must outlive the rig. Nil means all of them on
	// the loopback.
	Network *netns.Network
}

// Rig is one repld and its servers.
type Rig struct {
	Kit     *mariadb.Kit
	Servers []*mariadb.Server
	// Repld is the daemon, started by StartRepld.
	Repld *Daemon
	// Dir holds repld's files: Config, DataDir, Socket and Log.
	Dir, Config, DataDir, Socket, Log string
	bin                               string
	// prefix begins repld's command line.
	prefix []string
}

// New starts the servers and writes repld's configuration; it does not start
// repld. Close the rig.
func New(ctx context.Context, o Options) (*Rig, error) {
	kit, err := mariadb.NewKit(o.Dir)
	if err != nil {
		return nil, err
	}
	r := &Rig{Kit: kit, bin: o.Bin, Dir: filepath.Join(kit.Dir, "repld")}
	if err := r.prepare(ctx, o); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Rig) prepare(ctx context.Context, o Options) error {
	if err := os.MkdirAll(r.Dir, 0o700); err != nil {
		return fmt.Errorf("rig: %w", err)
	}
	r.Config = filepath.Join(r.Dir, "repld.yaml")
	r.DataDir = cmp.Or(o.DataDir, filepath.Join(r.Dir, "data"))
	r.Socket = filepath.Join(r.Dir, "repld.sock")
	r.Log = filepath.Join(r.Dir, "repld.log")
	lines := append([]string{"data_dir: " + r.DataDir, "listen: " + r.Endpoint()}, o.Repld...)
	if err := os.WriteFile(r.Config, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return fmt.Errorf("rig: %w", err)
	}
	opts := make([]mariadb.Options, o.Servers)
	for i := range opts {
		name := fmt.Sprintf("db%d", i+1)
		opts[i] = mariadb.Options{Name: name, Config: slices.Concat(o.Config, o.ServerConfig[name])}
		if o.Network == nil {
			continue
		}
		node := o.Network.Node(opts[i].Name)
		if node == nil {
			return fmt.Errorf("rig: the network has no node %s", opts[i].Name)
		}
		opts[i].Bind, opts[i].Host, opts[i].Prefix = node.IP, node.IP, node.Prefix()
	}
	if o.Network != nil {
		node := o.Network.Node("repld")
		if node == nil {
			return errors.New("rig: the network has no node repld")
		}
		r.prefix = node.Prefix()
	}
	var err error
	r.Servers, err = r.Kit.StartAll(ctx, opts...)
	return err
}

// Close ends repld and all servers, and removes all folders.
func (r *Rig) Close() error {
	var err error
	if r.Repld != nil {
		err = r.Repld.Kill()
	}
	return errors.Join(err, r.Kit.Close())
}

// Server gives a server by its name, nil if there is none.
func (r *Rig) Server(name string) *mariadb.Server {
	for _, s := range r.Servers {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// InitFlags are the flags by which a server of the rig is set up: the
// administrator's login, the drop-in's place and how it is restarted.
func (r *Rig) InitFlags(s *mariadb.Server) []string {
	return []string{
		"--address", s.Addr(), "--admin-user", s.AdminUser, "--admin-password-file", s.PasswordFile(),
		"--config-file", s.DropInPath(), "--restart-command", strings.Join(s.RestartCommand(), " "), "--restart", "now",
	}
}

// InitMaster makes a server the master.
func (r *Rig) InitMaster(ctx context.Context, s *mariadb.Server, more ...string) error {
	args := append([]string{"init", "master", s.Name, "--yes"}, append(r.InitFlags(s), more...)...)
	return r.Ctl(ctx, args...).Err()
}

// InitSlave makes a server a slave of the master.
func (r *Rig) InitSlave(ctx context.Context, s *mariadb.Server, more ...string) error {
	args := append([]string{"init", "slave", s.Name, "--yes"}, append(r.InitFlags(s), more...)...)
	return r.Ctl(ctx, args...).Err()
}

// InitAll starts repld, makes the first server the master and the others its
// slaves, and waits until the cluster is healthy.
func (r *Rig) InitAll(ctx context.Context) error {
	if err := r.StartRepld(ctx); err != nil {
		return err
	}
	if err := r.InitMaster(ctx, r.Servers[0]); err != nil {
		return err
	}
	for _, s := range r.Servers[1:] {
		if err := r.InitSlave(ctx, s); err != nil {
			return err
		}
	}
	_, err := r.WaitHealth(ctx, "healthy")
	return err
}

// Status asks replctl for the cluster's status.
func (r *Rig) Status(ctx context.Context) (*api.Status, error) {
	out := r.Ctl(ctx, "status", "-o", "json")
	if out.Stdout == "" {
		return nil, out.Err()
	}
	st := &api.Status{}
	if err := json.Unmarshal([]byte(out.Stdout), st); err != nil {
		return nil, fmt.Errorf("status -o json: %w: %s", err, out.Stdout)
	}
	return st, nil
}

// WaitHealth waits until the cluster's health is as wanted.
func (r *Rig) WaitHealth(ctx context.Context, want string) (*api.Status, error) {
	return r.WaitStatus(ctx, "health "+want, func(st *api.Status) bool { return st.Health == want })
}

// WaitStatus waits until the status satisfies a condition; the error says what
// it was instead.
func (r *Rig) WaitStatus(ctx context.Context, what string, ok func(*api.Status) bool) (*api.Status, error) {
	for {
		st, err := r.Status(ctx)
		if err == nil && ok(st) {
			return st, nil
		}
		select {
		case <-ctx.Done():
			text, _ := json.Marshal(st)
			return st, fmt.Errorf("waited for %s in vain: %w (status %s, error %v)\nrepld's log ends:\n%s", what, ctx.Err(), text, err, r.LogTail(40))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// History lists the operations, newest first.
func (r *Rig) History(ctx context.Context) ([]api.Operation, error) {
	out := r.Ctl(ctx, "history", "-o", "json")
	if out.Code != 0 {
		return nil, out.Err()
	}
	var list []api.Operation
	if err := json.Unmarshal([]byte(out.Stdout), &list); err != nil {
		return nil, fmt.Errorf("history -o json: %w", err)
	}
	return list, nil
}

// LogTail is the end of repld's log.
func (r *Rig) LogTail(lines int) string {
	text, err := os.ReadFile(r.Log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
