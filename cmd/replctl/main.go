package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/internal/fault"
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
