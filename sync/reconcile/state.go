package reconcile

import (
	"sync"
	"time"

	"github.com/vmapd/vmapd/model"
)

// State is the desired state under construction. Sources write into it; the
// [Loop] takes snapshots from it. It is safe for concurrent use.
type State struct {
	started time.Time
	changed chan struct{} // capacity 1: a change is pending

	mu      sync.Mutex
	builder *model.Builder
	missing int // sources that are not complete yet
	pending pending
	queued  func(time.Time) // is told of the first change that is pending
}

// NewState returns a State over b that counts as complete once complete has been
// called by the given number of sources.
func NewState(b *model.Builder, sources int) *State {
	s := &State{started: time.Now(), changed: make(chan struct{}, 1), builder: b, missing: sources}
	s.signal()
	return s
}

// Update lets fn write into the builder what changed. fn must not keep the builder.
func (s *State) Update(c Change, fn func(*model.Builder)) {
	if c.Trigger.Before(s.started) {
		// It was caused before there was anybody to follow it: how late it is says nothing.
		c.Trigger = time.Time{}
	}
	now := time.Now()
	s.mu.Lock()
	fn(s.builder)
	if s.pending.add(c, now) && s.queued != nil {
		s.queued(now)
	}
	s.mu.Unlock()
	s.signal()
}

// Complete says that one source has delivered everything it had at the start.
// Until each has, nothing is programmed: a half-filled cache must never delete
// rules that are in use.
func (s *State) Complete() {
	s.mu.Lock()
	s.missing--
	s.mu.Unlock()
	s.signal()
}

// Changed receives when Snapshot may return something new.
func (s *State) Changed() <-chan struct{} { return s.changed }

// Snapshot returns the state of now, or false while a source is incomplete.
func (s *State) Snapshot() (*model.Snapshot, bool) {
	snapshot, _, ok := s.take()
	return snapshot, ok
}

// take returns the state of now and what changed since the last time.
func (s *State) take() (*model.Snapshot, pending, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.missing > 0 {
		return nil, pending{}, false
	}
	p := s.pending
	s.pending = pending{}
	return s.builder.Snapshot(), p, true
}

// Pending returns how many changes of Services and of EndpointSlices no round has taken
// yet.
func (s *State) Pending() (services, endpointSlices int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending.services, s.pending.endpointSlices
}

// waiting returns when the first of the changes came that no round has taken yet.
func (s *State) waiting() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending.since
}

// observe has fn told of each first change that is pending, beginning with the one that is.
func (s *State) observe(fn func(time.Time)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queued = fn
	if !s.pending.since.IsZero() {
		fn(s.pending.since)
	}
}

func (s *State) signal() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}
