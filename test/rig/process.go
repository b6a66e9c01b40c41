package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Build builds repld and replctl into dir, with the race detector if asked,
// else as they are shipped: static.
func Build(ctx context.Context, dir string, race bool) error {
	args := []string{"build", "-o", dir + string(filepath.Separator)}
	if race {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/repld", "./cmd/replctl")...)
	if !race {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	_, here, _, _ := runtime.Caller(0)
	cmd.Dir = filepath.Dir(filepath.Dir(filepath.Dir(here)))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build repld: %w\n%s", err, out)
	}
	return nil
}

// Daemon is a running repld.
type Daemon struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// StartRepld starts repld and waits until it answers.
func (r *Rig) StartRepld(ctx context.Context) error {
	log, err := os.OpenFile(r.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("rig: %w", err)
	}
	defer log.Close()
	argv := append(slices.Clone(r.prefix), filepath.Join(r.bin, "repld"), "--config", r.Config)
	d := &Daemon{cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	d.cmd.Env = environment()
	d.cmd.Stdout, d.cmd.Stderr = log, log
	// Nothing may be left behind by a test that is killed.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error, 1)
	go func() {
		// The parent-death signal is bound to the thread that forks.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := d.cmd.Start()
		started <- err
		if err == nil {
			d.err = d.cmd.Wait()
		}
		close(d.done)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start repld: %w", err)
	}
	r.Repld = d
	for {
		if r.Ctl(ctx, "status").Code != exitUnreachable {
			return nil
		}
		select {
		case <-d.done:
			return fmt.Errorf("repld ended: %w\n%s", d.err, r.LogTail(20))
		case <-ctx.Done():
			return fmt.Errorf("repld does not answer: %w\n%s", ctx.Err(), r.LogTail(20))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

const exitUnreachable = 6

// Pid is the daemon's process.
func (d *Daemon) Pid() int { return d.cmd.Process.Pid }

// Kill ends the daemon with SIGKILL and waits.
func (d *Daemon) Kill() error { return d.end(syscall.SIGKILL) }

// Stop ends the daemon with SIGTERM and waits; an exit status other than 0 is
// an error.
func (d *Daemon) Stop() error {
	if err := d.end(syscall.SIGTERM); err != nil {
		return err
	}
	return d.err
}

func (d *Daemon) end(sig syscall.Signal) error {
	if err := d.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal repld: %w", err)
	}
	select {
	case <-d.done:
		return nil
	case <-time.After(15 * time.Second):
		_ = d.cmd.Process.Kill()
		<-d.done
		return fmt.Errorf("repld did not end within 15 s of %v", sig)
	}
}

// Output is what a run of replctl printed.
type Output struct {
	Args           []string
	Stdout, Stderr string
	Code           int
	err            error
}

// Err is nil if the exit code is 0.
func (o Output) Err() error {
	if o.Code == 0 && o.err == nil {
		return nil
	}
	return fmt.Errorf("replctl %s: exit %d (%w)\n%s%s", strings.Join(o.Args, " "), o.Code, o.err, o.Stdout, o.Stderr)
}

// Command is replctl with these arguments for the rig's repld, for callers that
// want its output as it comes.
func (r *Rig) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(r.bin, "replctl"), args...)
	cmd.Env = append(environment(), "REPLCTL_ENDPOINT="+r.Endpoint())
	return cmd
}

// Endpoint is what replctl calls the control socket of the rig's repld.
func (r *Rig) Endpoint() string { return "unix://" + r.Socket }

// environment is ours without what would configure repld or replctl, or stop
// repld from starting because it knows no such key.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "REPLD_") || strings.HasPrefix(v, "REPLCTL_")
	})
}

// Ctl runs replctl against the rig's repld.
func (r *Rig) Ctl(ctx context.Context, args ...string) Output {
	cmd := r.Command(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	out := Output{Args: args, Stdout: stdout.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode(), err: err}
	return out
}
