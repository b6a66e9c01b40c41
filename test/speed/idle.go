package speed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/repld/repld/test/ledger"
	"github.com/repld/repld/test/rig"
)

// Use is what a process used while it was watched.
type Use struct {
	// Over is how long it was watched.
	Over time.Duration
	// CPU is the share of one core, 0.01 being one percent; System is the part of
	// it that the kernel used on its behalf.
	CPU, System float64
	// RSS is the resident memory in bytes, the larger of begin and end; Peak the
	// most that it ever was.
	RSS, Peak uint64
	// Switches are the voluntary context switches per second, of all threads.
	Switches float64
}

// Idle watches a process for a while, from outside.
func Idle(ctx context.Context, pid int, over time.Duration) (Use, error) {
	before, err := readProc(pid)
	if err != nil {
		return Use{}, err
	}
	timer := time.NewTimer(over)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return Use{}, ctx.Err()
	}
	after, err := readProc(pid)
	if err != nil {
		return Use{}, err
	}
	took := after.at.Sub(before.at)
	return Use{
		Over: took,
		CPU:  (after.cpu - before.cpu).Seconds() / took.Seconds(), System: (after.system - before.system).Seconds() / took.Seconds(),
		RSS: max(before.rss, after.rss), Peak: after.peak,
		Switches: (after.switches - before.switches) / took.Seconds(),
	}, nil
}

// Busy puts a healthy cluster under load and watches its repld meanwhile; rate is
// the number of commits per second.
func Busy(ctx context.Context, r *rig.Rig, over time.Duration) (use Use, rate float64, err error) {
	if err := ledger.Install(ctx, r.Servers[0]); err != nil {
		return use, 0, err
	}
	l, err := ledger.Start(ctx, ledger.Options{Locate: ledger.Writable(r.Servers...)})
	if err != nil {
		return use, 0, err
	}
	defer l.Stop()
	if err := l.WaitCount(ctx, warmRows); err != nil {
		return use, 0, err
	}
	before := len(l.Acks())
	if use, err = Idle(ctx, r.Repld.Pid(), over); err != nil {
		return use, 0, err
	}
	rate = float64(len(l.Acks())-before) / use.Over.Seconds()
	l.Stop()
	report, err := l.Compare(ctx, r.Servers)
	if err != nil {
		return use, rate, err
	}
	return use, rate, report.Err()
}

// proc is what /proc says of a process at one moment.
type proc struct {
	at          time.Time
	cpu, system time.Duration
	rss, peak   uint64
	switches    float64
}

func readProc(pid int) (proc, error) {
	p := proc{}
	dir := fmt.Sprintf("/proc/%d", pid)
	tasks, err := filepath.Glob(dir + "/task/*")
	if err != nil || len(tasks) == 0 {
		return p, errors.Join(err, fmt.Errorf("process %d is gone", pid))
	}
	p.at = time.Now()
	for _, task := range tasks {
		// Nanoseconds on a processor; utime and stime in stat are counted in ticks of
		// 10 ms, and for their ratio only. A thread that ended meanwhile is left out.
		if text, err := os.ReadFile(task + "/schedstat"); err == nil {
			p.cpu += time.Duration(number(strings.Fields(string(text)), 0))
		}
		if text, err := os.ReadFile(task + "/status"); err == nil {
			p.switches += float64(number(field(text, "voluntary_ctxt_switches:"), 0))
		}
	}
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return p, err
	}
	// The name in parentheses may hold blanks; utime and stime are the 12th and
	// 13th after it.
	f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const tick = 10 * time.Millisecond
	p.system = time.Duration(number(f, 12)) * tick
	if p.cpu == 0 { // a kernel without schedstat
		p.cpu = time.Duration(number(f, 11)+number(f, 12)) * tick
	}
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return p, err
	}
	p.rss, p.peak = number(field(status, "VmRSS:"), 0)<<10, number(field(status, "VmHWM:"), 0)<<10
	return p, nil
}

// field is the rest of a line of /proc/PID/status.
func field(status []byte, name string) []string {
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return strings.Fields(rest)
		}
	}
	return nil
}

func number(fields []string, i int) uint64 {
	if i >= len(fields) {
		return 0
	}
	n, err := strconv.ParseUint(fields[i], 10, 64)
	if err != nil {
		return 0
	}
	return n
}
