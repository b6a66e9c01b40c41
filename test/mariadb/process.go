package mariadb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// child is a server process that this process started.
type child struct {
	pid  int
	done chan struct{} // closed when it has been waited for
	err  error         // how it ended; read after done
}

// startChild runs the server in a session of its own, its output in its log.
func (s *Server) startChild() (*child, error) {
	log, err := os.OpenFile(s.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	if err := s.kit.own(log); err != nil {
		return nil, err
	}
	argv := s.argv()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.Dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{pid: cmd.Process.Pid, done: make(chan struct{})}
	go func() { // ends with the process, for which every caller waits in the end
		c.err = cmd.Wait()
		close(c.done)
	}()
	return c, nil
}

// own gives a file to the account that the servers run as.
func (k *Kit) own(f *os.File) error {
	if k.user != "mysql" {
		return nil
	}
	dir, err := os.Stat(filepath.Dir(f.Name()))
	if err != nil {
		return err
	}
	st, ok := dir.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("test kit: cannot tell who owns " + filepath.Dir(f.Name()))
	}
	return f.Chown(int(st.Uid), int(st.Gid))
}

// marker is the argument by which the server's processes are recognised.
func (s *Server) marker() string { return "--defaults-file=" + s.ConfigFile }

// Pid is the process that is the server now, whoever started it; 0 if none. It
// is found by the pid file, and while that does not yet exist by its arguments.
func (s *Server) Pid() int {
	if b, err := os.ReadFile(s.PidFile); err == nil {
		if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && isProcess(pid, s.marker()) {
			return pid
		}
	}
	if pids := findProcesses(s.marker()); len(pids) > 0 {
		return pids[len(pids)-1]
	}
	return 0
}

// Running tells whether the server has a process, be it frozen.
func (s *Server) Running() bool { return s.Pid() != 0 }

// signal sends sig to every process of the server. It is no error if there is
// none any more.
func (s *Server) signal(sig syscall.Signal) error {
	for _, pid := range s.pids() {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("server %s: signal %s: %w", s.Name, sig, err)
		}
	}
	return nil
}

// pids is normally one process; a restart script and a starting child can make
// it two for a moment. The pid file's comes first and fast.
func (s *Server) pids() []int {
	if len(s.opts.Prefix) == 0 {
		if pid := s.Pid(); pid != 0 {
			return []int{pid}
		}
		return nil
	}
	return findProcesses(s.marker())
}

// waitGone waits until none of the processes, nor another one of the server, is
// left. It repeats the signal unless that is 0.
func (s *Server) waitGone(ctx context.Context, pids []int, again syscall.Signal) error {
	return Wait(ctx, func() error {
		for _, pid := range pids {
			if !isGone(pid) {
				return fmt.Errorf("server %s: process %d is still there", s.Name, pid)
			}
		}
		// A restart script may have started another one meanwhile.
		if pids = s.pids(); len(pids) == 0 {
			return nil
		}
		err := fmt.Errorf("server %s: process %d is still there", s.Name, pids[0])
		if again != 0 {
			err = errors.Join(err, s.signal(again))
		}
		return err
	})
}

// isGone tells whether a process has ended and let go of its files. It loses
// its arguments before that, and a zombie's other threads may be ending still.
func isGone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	if !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X") {
		return false
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	return err != nil || len(threads) <= 1
}

// isProcess tells whether pid runs with the argument; a zombie has none.
func isProcess(pid int, argument string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	for word := range bytes.SplitSeq(b, []byte{0}) {
		if string(word) == argument {
			return true
		}
	}
	return false
}

// findProcesses lists the processes that run with the argument.
func findProcesses(argument string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && isProcess(pid, argument) {
			out = append(out, pid)
		}
	}
	return out
}

// Wait polls until check returns nil, and otherwise returns its last error when
// ctx ends.
func Wait(ctx context.Context, check func() error) error {
	pause := 2 * time.Millisecond
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", err, ctx.Err())
		case <-time.After(pause):
		}
		pause = min(2*pause, 50*time.Millisecond)
	}
}
