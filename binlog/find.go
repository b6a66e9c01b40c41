package binlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/repld/repld/internal/gtid"
)

// Find reads one transaction of a server's binary log: the first one that
// follows a position and has g's name. Like [ReadTail] it is never an acker and
// disturbs nobody. An error wraps [ErrNotInBinlog], [ErrDiverged] or [ErrPurged]
// if the position is unknown to the server, or [ErrNotInBinlog] if the log ends
// without the transaction.
//
// What a slave writes into its own binary log for a transaction of its source has
// another size and place, and the same name and beginning (Transaction.Began): two
// servers hold the same transaction if both agree.
func Find(ctx context.Context, o Options, after gtid.Position, g gtid.GTID) (Transaction, error) {
	o, err := o.withDefaults()
	if err != nil {
		return Transaction{}, err
	}
	l, err := connect(ctx, o)
	if err != nil {
		return Transaction{}, err
	}
	defer l.close()
	d, err := l.dump(request{after: after, noWait: true, keep: keepSmall})
	if err != nil {
		return Transaction{}, err
	}
	var group grouper
	for {
		e, err := d.next()
		if errors.Is(err, errEnd) {
			return Transaction{}, fail(o, verbRead, fmt.Errorf("%w: the log ends before %s", ErrNotInBinlog, g))
		}
		if err != nil {
			return Transaction{}, fail(o, verbRead, l.reason(ctx, err))
		}
		tx, done, err := group.add(e, d.receivedAt())
		if err != nil {
			return Transaction{}, fail(o, verbRead, err)
		}
		if done && tx.GTID == g {
			return tx, nil
		}
	}
}
