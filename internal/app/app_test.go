package app

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/repld/repld/internal/config"
	"github.com/repld/repld/internal/fault"
)

func options(t *testing.T) Options {
	t.Helper()
	dir := t.TempDir()
	cfg := config.Default()
	cfg.DataDir, cfg.Listen = filepath.Join(dir, "data"), "unix://"+filepath.Join(dir, "s")
	return Options{Config: cfg, Log: slog.New(slog.DiscardHandler)}
}

func TestRunEndsWithItsContextAndLeavesNothingBehind(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	opts := options(t)
	for range 2 { // the second one finds everything free again
		a, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ready := false
		err = a.Run(ctx, func() { ready = true; cancel() })
		if err != nil || !ready {
			t.Errorf("run: %v, ready %v", err, ready)
		}
		closing, done := context.WithTimeout(context.Background(), 5*time.Second)
		if err := a.Close(closing); err != nil {
			t.Error(err)
		}
		done()
	}
}

func TestNewThatFailsGivesTheStateBack(t *testing.T) {
	opts := options(t)
	path := opts.Config.Listen[len("unix://"):]
	other, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(opts); fault.As(err).Code != "socket_in_use" {
		t.Errorf("got %v", err)
	}
	other.Close()
	a, err := New(opts)
	if err != nil {
		t.Fatalf("the state is still locked: %v", err)
	}
	if _, err := New(opts); fault.As(err).Code != "state_in_use" {
		t.Errorf("a second one on the same state: %v", err)
	}
	if err := a.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
