// Command repld guards MariaDB replication: it watches the servers of its
// clusters, replaces a master that is lost, and does what replctl asks.
//
// It only turns flags into options and signals into a stop; internal/app does
// the rest.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/pflag"

	"github.com/repld/repld/internal/app"
	"github.com/repld/repld/internal/config"
	"github.com/repld/repld/internal/fault"
	"github.com/repld/repld/internal/version"
)

// closeWithin bounds a clean stop: who stops repld waits no longer than 10 s.
const closeWithin = 9 * time.Second

func main() { os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr)) }

// run is repld without the process around it; it gives the exit code: 0 stopped
// cleanly, 1 failed, 2 bad configuration.
func run(args, environ []string, stdout, stderr io.Writer) int {
	flags := pflag.NewFlagSet("repld", pflag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.SortFlags = false
	flags.Usage = func() {}
	config.AddFlags(flags)
	showVersion := flags.Bool("version", false, "print the version and exit")
	switch err := flags.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprintf(stdout, "repld guards MariaDB replication.\n\nUsage: repld [flags]\n\n%s", flags.FlagUsages())
		return 0
	case err != nil:
		return report(stderr, badFlags(err.Error()))
	case flags.NArg() > 0:
		return report(stderr, badFlags(fmt.Sprintf("unexpected argument %q", flags.Arg(0))))
	}
	if *showVersion {
		fmt.Fprintf(stdout, "repld %s\n", version.String())
		return 0
	}
	cfg, err := config.Load(flags, environ)
	if err != nil {
		return report(stderr, err)
	}
	log := newLog(cfg.Log, stderr)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return serve(ctx, stop, log, app.Options{Config: cfg, Log: log}, stderr)
}

// serve runs repld until ctx ends. stop gives the signals back, so that a second
// one ends a stop that takes too long for somebody.
func serve(ctx context.Context, stop func(), log *slog.Logger, opts app.Options, stderr io.Writer) int {
	a, err := app.New(opts)
	if err != nil {
		return report(stderr, err)
	}
	err = a.Run(ctx, func() { notify(log, daemon.SdNotifyReady) })
	stop()
	notify(log, daemon.SdNotifyStopping)
	log.Info("repld stops")
	closing, cancel := context.WithTimeout(context.Background(), closeWithin)
	defer cancel()
	if closeErr := a.Close(closing); closeErr != nil {
		log.Error("repld did not stop cleanly", "error", closeErr)
		err = errors.Join(err, closeErr)
	}
	if err != nil {
		return report(stderr, err)
	}
	return 0
}

// notify tells systemd, if it is there.
func notify(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("systemd cannot be told", "state", state, "error", err)
	}
}

func newLog(cfg config.Log, w io.Writer) *slog.Logger {
	var level slog.Level
	// config has checked the word; an unknown one would leave info.
	_ = level.UnmarshalText([]byte(cfg.Level))
	opts := &slog.HandlerOptions{Level: level}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

func badFlags(what string) error {
	return &fault.Error{Kind: fault.Usage, Code: "usage", What: what, Cause: "the command line is not understood",
		State: "repld did not start; nothing was changed", Do: "see repld --help"}
}

// report prints an error with all its parts and gives the exit code: only bad
// configuration is 2.
func report(stderr io.Writer, err error) int {
	f := fault.As(err)
	fmt.Fprintf(stderr, "repld: %v\n", f)
	if f.Kind == fault.Usage {
		return 2
	}
	return 1
}
