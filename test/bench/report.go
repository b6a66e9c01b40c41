package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/repld/repld/test/speed"
)

func millis(d time.Duration) string { return fmt.Sprintf("%.0f", float64(d.Microseconds())/1000) }

// printFailovers prints one line for each measured time.
func (b *bench) printFailovers(runs []*speed.Run) {
	if len(runs) == 0 {
		return
	}
	column := func(of func(*speed.Run) time.Duration) []time.Duration {
		values := make([]time.Duration, len(runs))
		for i, r := range runs {
			values[i] = of(r)
		}
		return values
	}
	acked, rate := 0, 0.0
	for _, r := range runs {
		acked += r.Report.Acknowledged
		rate += r.Rate / float64(len(runs))
	}
	fmt.Fprintf(b.out, "\nThe master of 3 servers killed under load: %d failovers, %.0f commits/s before, %d commits acknowledged, 0 of them lost\n\n",
		len(runs), rate, acked)
	w := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "ms\tmedian\tp90\tp99\tmax\ttarget\t")
	line := func(name string, values []time.Duration, target string) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t\n", name, millis(speed.Quantile(values, 0.5)), millis(speed.Quantile(values, 0.9)),
			millis(speed.Quantile(values, 0.99)), millis(speed.Quantile(values, 1)), target)
	}
	line("kill to new master open", column(func(r *speed.Run) time.Duration { return r.Open }),
		fmt.Sprintf("median %s, p99 %s", millis(speed.OpenMedian), millis(speed.OpenP99)))
	line("kill to first symptom", column(func(r *speed.Run) time.Duration { return r.Open - r.Said }), "")
	line("first symptom to open (history)", column(func(r *speed.Run) time.Duration { return r.Said }), "")
	line("kill to first acknowledged write", column(func(r *speed.Run) time.Duration { return r.FirstAck }),
		"median "+millis(speed.FirstAckMedian))
	line("kill to other slave following", column(func(r *speed.Run) time.Duration { return r.Following }),
		"median "+millis(speed.FollowingMedian))
	w.Flush()
}

func (b *bench) printCost(c *cost) {
	if c == nil {
		return
	}
	fmt.Fprintf(b.out, "\nrepld with 3 servers, idle for %v, then under %.0f commits/s for %v\n\n",
		c.idle.Over.Round(time.Second), c.rate, c.busy.Over.Round(time.Second))
	w := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tidle\ttarget, idle\tunder load\t")
	mb := func(n uint64) float64 { return float64(n) / (1 << 20) }
	fmt.Fprintf(w, "CPU, %% of a core\t%.2f\t%.2f\t%.1f\t\n", 100*c.idle.CPU, 100*speed.IdleCPU, 100*c.busy.CPU)
	fmt.Fprintf(w, "of it in the kernel\t%.2f\t\t%.1f\t\n", 100*c.idle.System, 100*c.busy.System)
	fmt.Fprintf(w, "RSS, MB\t%.1f\t%d\t%.1f\t\n", mb(c.idle.RSS), speed.IdleRSS>>20, mb(c.busy.RSS))
	fmt.Fprintf(w, "waits per second\t%.0f\t\t%.0f\t\n", c.idle.Switches, c.busy.Switches)
	w.Flush()
}

// describe names the machine and the versions.
func describe(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var lines []string
	cpu, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", err
	}
	model := "unknown processor"
	for line := range strings.Lines(string(cpu)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	memory, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return "", err
	}
	var kb uint64
	if _, err := fmt.Sscanf(string(memory), "MemTotal: %d kB", &kb); err != nil {
		return "", fmt.Errorf("/proc/meminfo: %w", err)
	}
	lines = append(lines, fmt.Sprintf("machine:  %s, %d cores, %.0f GiB", model, runtime.NumCPU(), float64(kb)/(1<<20)))
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "", err
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "", err
	}
	lines = append(lines, fmt.Sprintf("kernel:   Linux %s, load average at the end %s", bytes.TrimSpace(kernel), strings.Fields(string(load))[0]))
	server, err := exec.CommandContext(ctx, "mariadbd", "--no-defaults", "--version").Output()
	if err != nil {
		return "", fmt.Errorf("mariadbd --version: %w", err)
	}
	_, version, _ := strings.Cut(string(server), " Ver ")
	lines = append(lines, "MariaDB:  "+strings.TrimSpace(version), "repld:    "+commit(ctx)+", "+runtime.Version())
	return strings.Join(lines, "\n"), nil
}

// commit says which sources were measured.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--exclude", "*").Output()
	if err != nil {
		return "unknown commit"
	}
	return "commit " + strings.TrimSpace(string(out))
}

// printSwitchovers prints one line for each measured time.
func (b *bench) printSwitchovers(p *planned) {
	if p == nil || p.report == nil {
		return
	}
	fmt.Fprintf(b.out, "\nThe master of 3 servers replaced in order under load: %d switchovers, %d commits acknowledged, 0 of them lost\n\n",
		len(p.runs), p.report.Acknowledged)
	w := tabwriter.NewWriter(b.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "ms\tmedian\tp90\tmax\ttarget, median\t")
	row := func(what string, target string, of func(*speed.Planned) time.Duration) {
		values := make([]time.Duration, len(p.runs))
		for i, r := range p.runs {
			values[i] = of(r)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t\n", what, millis(speed.Quantile(values, 0.5)), millis(speed.Quantile(values, 0.9)), millis(speed.Quantile(values, 1)), target)
	}
	row("old master closed -> new one open", millis(speed.PlannedOpenMedian), func(r *speed.Planned) time.Duration { return r.Open })
	row("old master closed -> first acknowledged write", millis(speed.PlannedAckMedian), func(r *speed.Planned) time.Duration { return r.FirstAck })
	row("last OK of the old -> first of the new", "", func(r *speed.Planned) time.Duration { return r.Outage })
	w.Flush()
}
