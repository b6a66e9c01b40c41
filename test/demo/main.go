package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// patience bounds the whole demonstration, which takes some 10 s.
const patience = 3 * time.Minute

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(stderr)
	bin := flags.String("bin", "bin", "folder with repld and replctl, see make build")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	dir, err := filepath.Abs(*bin)
	if err != nil {
		fmt.Fprintln(stderr, "demo:", err)
		return 1
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	// A second Ctrl-C ends at once; the servers are ended all the same.
	defer context.AfterFunc(ctx, stop)()
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = play(bounded, dir, stdout)
	switch {
	case err == nil:
		return 0
	case errors.Is(ctx.Err(), context.Canceled):
		fmt.Fprintln(stderr, "demo: interrupted; all servers are stopped and all files removed")
	default:
		fmt.Fprintln(stderr, "demo: FAILED:", err)
	}
	return 1
}
