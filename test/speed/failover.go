package speed

import (
	"context"
	"fmt"
	"time"

	"github.com/repld/repld/internal/api"
	"github.com/repld/repld/test/ledger"
	"github.com/repld/repld/test/mariadb"
	"github.com/repld/repld/test/rig"
)

// Run is what one failover took. All times begin at the SIGKILL.
type Run struct {
	// Open is when the new master was first seen to accept writes, FirstAck when
	// a writer got the first OK from it, Following when the IO thread of every
	// other slave was first seen connected to it.
	Open, FirstAck, Following time.Duration
	// Said is opened_ms of repld's history: from the first symptom.
	Said time.Duration
	// Rate is the number of commits per second before the kill.
	Rate float64
	// Report is the comparison of all rows on the survivors.
	Report *ledger.Report
	// Steps are the steps of the operation in the history.
	Steps []api.Step
}

const (
	// warmRows are acknowledged before the kill, and tailRows after the failover.
	warmRows, tailRows = 500, 200
	patience           = 60 * time.Second
)

// Failover puts a healthy cluster under load, kills its master, db1, with
// SIGKILL, and measures how it goes on. The error is about the measurement, or
// that rows were lost or servers differ.
func Failover(ctx context.Context, r *rig.Rig) (*Run, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	old, rest := r.Servers[0], r.Servers[1:]
	if err := ledger.Install(ctx, old); err != nil {
		return nil, err
	}
	l, err := ledger.Start(ctx, ledger.Options{Locate: ledger.Writable(r.Servers...)})
	if err != nil {
		return nil, err
	}
	defer l.Stop()
	began := time.Now()
	if err := l.WaitCount(ctx, warmRows); err != nil {
		return nil, err
	}
	run := &Run{Rate: warmRows / time.Since(began).Seconds()}
	w, err := watch(ctx, rest)
	if err != nil {
		return nil, err
	}
	defer w.close()
	killed := time.Now()
	if err := old.Kill(); err != nil {
		return nil, err
	}
	opened, following, err := w.wait()
	if err != nil {
		return nil, fmt.Errorf("%w\nrepld's log ends:\n%s", err, r.LogTail(60))
	}
	ack, err := l.WaitAck(ctx, func(a ledger.Ack) bool { return a.Addr != old.Addr() })
	if err != nil {
		return nil, err
	}
	run.Open, run.FirstAck, run.Following = opened.Sub(killed), ack.After.Sub(killed), following.Sub(killed)
	if err := l.WaitCount(ctx, len(l.Acks())+tailRows); err != nil {
		return nil, err
	}
	return run, run.settle(ctx, r, l, rest, ledger.OldMaster{ServerID: 1, Opened: opened})
}

// settle compares all rows and asks repld what it did.
func (run *Run) settle(ctx context.Context, r *rig.Rig, l *ledger.Ledger, rest []*mariadb.Server, old ledger.OldMaster) error {
	var err error
	if run.Report, err = l.Compare(ctx, rest, old); err != nil {
		return err
	}
	if err := run.Report.Err(); err != nil {
		return err
	}
	return mariadb.Wait(ctx, func() error {
		list, err := r.History(ctx)
		if err != nil {
			return err
		}
		for _, op := range list {
			if op.Kind == "failover" && op.OpenedMS != nil && op.Result == "done" {
				run.Said = time.Duration(*op.OpenedMS * float64(time.Millisecond))
				run.Steps = op.Steps
				return nil
			}
		}
		return fmt.Errorf("no failover that is done among %d operations", len(list))
	})
}
