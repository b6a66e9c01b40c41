package failover

import "log/slog"

func more() { slog.Info("deciding") }
