package failover

import (
	"os"
	"time"
)

func helper() bool { return !now().IsZero() }

func now() time.Time { return time.Now() }

func harmless() bool { return generic(true) }

func generic[T any](v T) T { return v }

func Loop() { more(); _ = os.Args }
