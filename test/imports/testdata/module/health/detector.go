package health

import (
	clock "time"

	_ "github.com/repld/repld/internal/clean"
)

const Limit = 2 * clock.Second

func Dead(seen, now clock.Time) bool { return now.After(seen.Add(Limit)) }

func Late() bool { clock.NewTimer(Limit); return Dead(clock.Now(), clock.Time{}) }

var _ = clock.Now
