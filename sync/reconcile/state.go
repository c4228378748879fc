package reconcile

import (
	"sync"

	"github.com/vmapd/vmapd/model"
)

// State is the desired state under construction. Sources write into it; the
// [Loop] takes snapshots from it. It is safe for concurrent use.
type State struct {
	changed chan struct{} // capacity 1: a change is pending

	mu      sync.Mutex
	builder *model.Builder
	missing int // sources that are not complete yet
}

// NewState returns a State over b that counts as complete once complete has been
// called by the given number of sources.
func NewState(b *model.Builder, sources int) *State {
	s := &State{changed: make(chan struct{}, 1), builder: b, missing: sources}
	s.signal()
	return s
}

// Update lets fn write into the builder. fn must not keep it.
func (s *State) Update(fn func(*model.Builder)) {
	s.mu.Lock()
	fn(s.builder)
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.missing > 0 {
		return nil, false
	}
	return s.builder.Snapshot(), true
}

func (s *State) signal() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}
