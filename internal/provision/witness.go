package provision

import (
	"context"

	"github.com/repld/repld/binlog"
	"github.com/repld/repld/internal/gtid"
	"github.com/repld/repld/internal/mysql"
)

// StreamWitness is the [BinlogWitness] that reads the binary log as the daemon
// does.
type StreamWitness struct {
	// ServerID is what the stream registers with; it must differ from every
	// server's and every other stream's.
	ServerID uint32
}

var _ BinlogWitness = StreamWitness{}

// Watch implements [BinlogWitness].
func (s StreamWitness) Watch(ctx context.Context, on mysql.Target) (Watch, error) {
	w, err := binlog.NewWitness(ctx, binlog.Options{Address: on.Address, User: on.User, Password: on.Password, TLS: on.TLS, ServerID: s.ServerID})
	if err != nil {
		return nil, err
	}
	return streamWatch{w}, nil
}

type streamWatch struct{ w *binlog.Witness }

// Wait implements [Watch].
func (s streamWatch) Wait(ctx context.Context, want gtid.GTID) error {
	_, err := s.w.Wait(ctx, want)
	return err
}

// Close implements [Watch].
func (s streamWatch) Close() { s.w.Close() }
