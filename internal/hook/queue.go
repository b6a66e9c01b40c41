package hook

import (
	"context"
	"sync"
)

// Queue runs calls one at a time and in order, beside whoever adds them. It is
// bounded: a program that hangs must not fill the memory.
type Queue struct {
	// Done is told of each run's end, from the goroutine of [Queue.Run].
	Done func(c Call, output string, err error)

	calls chan Call
	mu    sync.Mutex
	lost  int
}

// NewQueue makes a queue with room for so many calls.
func NewQueue(room int, done func(c Call, output string, err error)) *Queue {
	return &Queue{Done: done, calls: make(chan Call, room)}
}

// Add never waits; it returns false if the queue is full and the call is lost.
func (q *Queue) Add(c Call) bool {
	select {
	case q.calls <- c:
		return true
	default:
		q.mu.Lock()
		defer q.mu.Unlock()
		q.lost++
		return false
	}
}

// Lost tells how many calls found the queue full.
func (q *Queue) Lost() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lost
}

// Run works until the context ends; a program that runs then is killed.
func (q *Queue) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-q.calls:
			output, err := Run(ctx, c)
			if q.Done != nil {
				q.Done(c, output, err)
			}
		}
	}
}
