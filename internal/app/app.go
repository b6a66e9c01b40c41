package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"time"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/internal/config"
	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/version"
	"github.com/repld/repld/topology"
)

// Log keys of this package.
const (
	logVersion  = "version"
	logListen   = "listen"
	logDataDir  = "data_dir"
	logClusters = "clusters"
	logInstance = "instance"
	logBack     = "set_back"
	logCleanup  = "cleanup"
	logError    = "error"
)

// Files in data_dir.
const (
	stateFile = "repld.db"
	keyFile   = "repld.key"
)

// Options is everything New needs.
type Options struct {
	Config *config.Config
	Log    *slog.Logger
}

// App is one repld.
type App struct {
	opts     Options
	store    *topology.Store
	listener net.Listener
	service  *service
	changer  *changer
	guards   *guards
	hooks    *hooks
	cleanups cleanups
}

// New opens the state and binds the control socket; it starts nothing. Its
// errors are *fault.Error. What it has opened when it fails is closed again.
func New(opts Options) (*App, error) {
	a := &App{opts: opts, cleanups: cleanups{log: opts.Log}}
	if err := a.build(); err != nil {
		return nil, errors.Join(err, a.cleanups.run(context.Background()))
	}
	return a, nil
}

func (a *App) build() error {
	cfg := a.opts.Config
	// The state first: its lock tells whether another repld has this data_dir.
	store, err := openStore(cfg.DataDir)
	if err != nil {
		return err
	}
	a.store = store
	a.cleanups.add("close the state", func(context.Context) error { return store.Close() })
	if back := store.ClockSetBack(); back > time.Second {
		a.opts.Log.Warn("the host's clock was set back since repld last ran: times in the state were put back too", logBack, back.Round(time.Second))
	}
	if a.listener, err = api.Listen(cfg.Listen, cfg.SocketGroup); err != nil {
		return err
	}
	a.cleanups.add("remove the control socket", func(context.Context) error { return a.listener.Close() })
	a.hooks = newHooks(cfg.Hooks, a.opts.Log)
	a.changer = &changer{store: store, cfg: cfg, log: a.opts.Log, hooks: a.hooks, busy: map[string]bool{}}
	a.guards = newGuards(store, cfg, a.opts.Log, a.changer, a.hooks)
	a.changer.guards = a.guards
	a.service = &service{memory: store, loops: a.guards, mode: cfg.Failover.Mode, durability: topology.Durability(cfg.Durability)}
	return nil
}

// Run serves until ctx ends or something that repld cannot do without fails.
// ready is called once replctl is answered. The caller closes the App after.
func (a *App) Run(ctx context.Context, ready func()) error {
	a.background("stop hooks.event", a.hooks.queue.Run)
	a.background("stop guarding the clusters", a.guards.run)
	server := api.NewServer(a.service, a.changer, api.ThisVersion(), a.opts.Log)
	served := make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		served <- server.Serve(a.listener)
	}()
	a.cleanups.add("stop the control API", func(ctx context.Context) error {
		err := server.Close(ctx)
		<-ended // Close has closed the listener, whatever it said
		return err
	})
	a.opts.Log.Info("repld is running", logVersion, version.Version, logListen, a.opts.Config.Listen,
		logDataDir, a.opts.Config.DataDir, logClusters, a.store.Clusters(), logInstance, a.store.Instance())
	ready()
	select {
	case <-ctx.Done():
		return nil
	case err := <-served:
		if err == nil {
			err = errors.New("the control API ended")
		}
		return &fault.Error{Kind: fault.Failed, Code: "api_failed", What: "repld cannot serve its control socket any more",
			Cause: err.Error(), State: "repld stops; the servers are left as they are", Do: "start repld again", Err: err}
	}
}

// background runs something beside the rest until the App is closed, which waits
// for its end.
func (a *App) background(cleanup string, run func(context.Context)) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		run(ctx)
	}()
	a.cleanups.add(cleanup, func(ctx context.Context) error {
		stop()
		select {
		case <-ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// Close undoes everything that New and Run did, last first, as long as ctx
// allows.
func (a *App) Close(ctx context.Context) error { return a.cleanups.run(ctx) }

// openStore opens data_dir/repld.db.
func openStore(dir string) (*topology.Store, error) {
	path := filepath.Join(dir, stateFile)
	store, err := topology.Open(path, filepath.Join(dir, keyFile))
	if err == nil {
		return store, nil
	}
	f := &fault.Error{Kind: fault.Failed, Code: "state_unusable", What: "cannot open the state file " + path, Cause: err.Error(),
		State: "repld did not start; no server was contacted", Do: "make data_dir readable and writable for repld, or correct the key data_dir", Err: err}
	switch {
	case errors.Is(err, topology.ErrLocked):
		f.Code, f.Cause = "state_in_use", "another repld is running with this data_dir"
		f.Do = "stop the other one, or give this one its own data_dir and listen"
	case errors.Is(err, topology.ErrDamaged):
		f.Code = "state_damaged"
		f.Do = fmt.Sprintf("copy the backup %s over it, or move both and %s away, remove what repld left on the servers (DROP DATABASE repld) and adopt the cluster again: replctl adopt", topology.BackupPath(path), keyFile)
	}
	return nil, f
}
