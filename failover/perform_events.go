package failover

import (
	"context"
	"time"
)

// startEvents works on the scheduled events of the master, beside the loop.
func (l *Loop) startEvents(ctx context.Context, in Input, a Action) {
	e := l.effects[eventsKey]
	e.Running = a.Kind
	l.effects[eventsKey] = e
	c := in.View.Cluster
	s := c.Servers[a.Servers[0]]
	l.wg.Go(func() {
		begun := time.Now()
		ctx, cancel := context.WithTimeout(ctx, limitOf(a.Kind))
		defer cancel()
		resume := &c.Events
		if a.Kind == KindLookEvents {
			resume = nil
		}
		has, err := l.cfg.Server(*s).Events(ctx, resume)
		l.results <- result{server: eventsKey, kind: a.Kind, begun: begun, ended: time.Now(), err: err,
			events: &EventsSeen{Server: s.Name, At: begun, Events: has}}
	})
}
