package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// cleanups is a stack of named things to undo. It is used by one goroutine.
type cleanups struct {
	log  *slog.Logger
	list []cleanup
}

type cleanup struct {
	name string
	undo func(context.Context) error
}

func (c *cleanups) add(name string, undo func(context.Context) error) {
	c.list = append(c.list, cleanup{name, undo})
}

// run undoes everything, last first, each once. One that fails does not hold
// back the others.
func (c *cleanups) run(ctx context.Context) error {
	var errs []error
	for len(c.list) > 0 {
		last := c.list[len(c.list)-1]
		c.list = c.list[:len(c.list)-1]
		begun := time.Now()
		if err := last.undo(ctx); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", last.name, err))
		}
		c.log.Debug("cleaned up", logCleanup, last.name, "ms", time.Since(begun).Milliseconds())
	}
	return errors.Join(errs...)
}
