package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/repld/repld/test/ledger"
	"github.com/repld/repld/test/rig"
	"github.com/repld/repld/test/speed"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// bench is what the flags ask for.
type bench struct {
	runs    int
	planned int
	idle    time.Duration
	verbose bool
	bin     string
	out     io.Writer
	err     io.Writer
}

// run gives the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	b := bench{out: stdout, err: stderr}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&b.runs, "runs", 50, "failovers to measure, each of a fresh cluster")
	flags.IntVar(&b.planned, "switchovers", 30, "switchovers to measure, one after the other in one cluster")
	flags.DurationVar(&b.idle, "idle", time.Minute, "how long an idle repld is watched, and a quarter of it one under load; 0: not at all")
	flags.BoolVar(&b.verbose, "v", false, "print each run with its steps")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := b.measure(ctx); err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return 1
	}
	return 0
}

func (b *bench) measure(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "repld-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b.bin = dir
	if err := rig.Build(ctx, dir, false); err != nil {
		return err
	}
	var use *cost
	if b.idle > 0 {
		if use, err = b.measureCost(ctx); err != nil {
			return err
		}
	}
	planned, err := b.measureSwitchovers(ctx)
	runs, ferr := b.measureFailovers(ctx)
	err = errors.Join(err, ferr)
	if machine, merr := describe(ctx); merr != nil {
		err = errors.Join(err, merr)
	} else {
		fmt.Fprintln(b.out, machine)
	}
	b.printFailovers(runs)
	b.printSwitchovers(planned)
	b.printCost(use)
	return err
}

// measureFailovers goes on after a run that fails, so that one does not hide
// the others.
func (b *bench) measureFailovers(ctx context.Context) ([]*speed.Run, error) {
	var runs []*speed.Run
	var errs []error
	for i := range b.runs {
		if ctx.Err() != nil {
			return runs, errors.Join(append(errs, ctx.Err())...)
		}
		r, err := b.failover(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("run %d: %w", i+1, err))
			fmt.Fprintf(b.err, "run %d failed: %v\n", i+1, err)
			continue
		}
		runs = append(runs, r)
		fmt.Fprintf(b.err, "run %d of %d: open %s ms, first write %s ms, other slave %s ms, %.0f commits/s, %s\n", i+1, b.runs,
			millis(r.Open), millis(r.FirstAck), millis(r.Following), r.Rate, r.Report)
		if b.verbose {
			for _, s := range r.Steps {
				server := ""
				if s.Server != nil {
					server = *s.Server
				}
				fmt.Fprintf(b.err, "  %-10s %-4s %7.1f ms  %s\n", s.Name, server, s.MS, s.Result)
			}
		}
	}
	return runs, errors.Join(errs...)
}

// planned are the switchovers that were measured.
type planned struct {
	runs   []*speed.Planned
	report *ledger.Report
}

func (b *bench) measureSwitchovers(ctx context.Context) (p *planned, err error) {
	if b.planned == 0 {
		return nil, nil
	}
	r, err := b.cluster(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	p = &planned{}
	p.runs, p.report, err = speed.Switchovers(ctx, r, b.planned)
	if b.verbose {
		for _, run := range p.runs {
			fmt.Fprintf(b.err, "switchover: open %s ms, first write %s ms\n", millis(run.Open), millis(run.FirstAck))
			for _, s := range run.Steps {
				fmt.Fprintf(b.err, "  %-10s %7.1f ms  %s\n", s.Name, s.MS, s.Result)
			}
		}
	}
	return p, err
}

// failover measures one failover of a fresh cluster.
func (b *bench) failover(ctx context.Context) (run *speed.Run, err error) {
	r, err := b.cluster(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	run, err = speed.Failover(ctx, r)
	if b.verbose {
		fmt.Fprintln(b.err, r.LogTail(45))
	}
	return run, err
}

// cost is what repld uses with nothing to do, and under load.
type cost struct {
	idle, busy speed.Use
	rate       float64
}

// measureCost watches a repld that has nothing to do, then one under load.
func (b *bench) measureCost(ctx context.Context) (c *cost, err error) {
	r, err := b.cluster(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	c = &cost{}
	if c.idle, err = speed.Idle(ctx, r.Repld.Pid(), b.idle); err != nil {
		return nil, err
	}
	c.busy, c.rate, err = speed.Busy(ctx, r, b.idle/4)
	return c, err
}

// cluster starts a healthy cluster of three servers with default settings.
func (b *bench) cluster(ctx context.Context) (*rig.Rig, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	r, err := rig.New(ctx, rig.Options{Bin: b.bin, Servers: 3})
	if err != nil {
		return nil, err
	}
	if err := r.InitAll(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}
