package reconcile

import (
	"context"
	"sync"
	"time"
)

// Follower lets an [Observer] work in a goroutine of its own, so that its work delays no round: the loop changes the
// state and wakes it, and Run works on what the state is then.
type Follower[T any] struct {
	wake chan struct{} // capacity 1

	mu    sync.Mutex
	state T
}

// NewFollower returns a Follower that has not been woken yet.
func NewFollower[T any](state T) *Follower[T] {
	return &Follower[T]{wake: make(chan struct{}, 1), state: state}
}

// With calls fn with the state, one call after the other.
func (f *Follower[T]) With(fn func(state *T)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn(&f.state)
}

// Wake makes Run work once more. It does not wait.
func (f *Follower[T]) Wake() { Signal(f.wake) }

// Run calls work after each Wake, or once after several, and again after the time that work returned, unless that is
// less than 0. It returns when ctx ends.
func (f *Follower[T]) Run(ctx context.Context, work func() (again time.Duration)) {
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		case <-again:
		}
		if ctx.Err() != nil {
			return // chance had chosen among what was ready
		}
		again = nil
		if d := work(); d >= 0 {
			again = time.After(d)
		}
	}
}
