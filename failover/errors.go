package failover

import "errors"

// ErrForeign is wrapped by every effect that found another server than the
// recorded one behind an address; nothing was sent to it.
var ErrForeign = errors.New("another server answers at this address")

// ErrUnreachable is wrapped by every effect that could not reach the server;
// nothing was sent.
var ErrUnreachable = errors.New("server cannot be reached")
