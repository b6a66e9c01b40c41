package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/internal/fault"
)

// Set by the linker.
var (
	version = ""
	commit  = ""
	date    = ""
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run is replctl without the process around it; it gives the exit code.
func run(args []string, stdin *os.File, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c := &cli{stdin: stdin, stdout: stdout, stderr: stderr, env: os.LookupEnv, format: formatInArgs(args)}
	root := newRoot(c)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return c.exit
	}
	return c.report(err)
}

// report prints an error and gives its exit code. An error without a fault
// comes from cobra: an unknown command, flag or number of arguments.
func (c *cli) report(err error) int {
	var f *fault.Error
	if !errors.As(err, &f) {
		f = &fault.Error{Kind: fault.Usage, Code: "usage", What: err.Error(), Cause: "the command line is not understood",
			State: "nothing was changed", Do: "see replctl --help"}
	}
	if f.Document != "" {
		c.print(c.stdout, f.Document)
	}
	if c.format == formatJSON {
		e := api.NewError(f)
		e.Kind, e.Document = 0, ""
		c.printJSON(c.stderr, api.ErrorBody{Error: e})
	} else {
		c.print(c.stderr, "replctl: "+f.Error()+"\n")
	}
	return int(f.Kind)
}

// buildVersion is what this program is, from the linker or from the module.
func buildVersion() api.Version {
	v := api.Version{Version: version, Commit: commit, Date: date}
	info, ok := debug.ReadBuildInfo()
	if !ok || v.Version != "" {
		return v
	}
	v.Version = "devel"
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.time":
			v.Date = s.Value
		}
	}
	return v
}
