package reconcile

import (
	"sync"
	"time"

	"github.com/vmapd/vmapd/model"
)

// State is the desired state. Sources write into it, and the [Loop] takes snapshots of it.
// It is safe for concurrent use.
type State struct {
	started time.Time
	changed chan struct{} // capacity 1: Snapshot may return something new

	mu      sync.Mutex
	builder *model.Builder
	missing int // sources that are not complete yet
	pending pending
	queued  time.Time // the first of the pending changes, or of those that were last
	applied time.Time // the first of the changes of the round under way; zero: none is
}

// NewState returns a State with the builder b. It is complete when the given number of sources have called Complete.
func NewState(b *model.Builder, sources int) *State {
	s := &State{started: time.Now(), changed: make(chan struct{}, 1), builder: b, missing: sources}
	Signal(s.changed)
	return s
}

// Update calls fn, which writes a change into the builder. fn must not keep the builder.
func (s *State) Update(c Change, fn func(*model.Builder)) {
	if c.Trigger.Before(s.started) {
		// The trigger is older than the daemon: the time since then is no latency.
		c.Trigger = time.Time{}
	}
	now := time.Now()
	s.mu.Lock()
	fn(s.builder)
	if s.pending.add(c) {
		s.queued = now
	}
	s.mu.Unlock()
	Signal(s.changed)
}

// Complete says that one source has delivered all of its objects. Until each source has,
// nothing is programmed: an incomplete state must never delete rules in use.
func (s *State) Complete() {
	s.mu.Lock()
	s.missing--
	s.mu.Unlock()
	Signal(s.changed)
}

// Snapshot returns the current state, or false while a source is incomplete.
func (s *State) Snapshot() (*model.Snapshot, bool) {
	snapshot, _, ok := s.take()
	return snapshot, ok
}

// take returns the current state and the changes since the last call.
func (s *State) take() (*model.Snapshot, pending, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.missing > 0 {
		return nil, pending{}, false
	}
	p := s.pending
	if s.pending = (pending{}); p.some {
		s.applied = s.queued
	}
	return s.builder.Snapshot(), p, true
}

// Selection returns the candidates for a service port, see [model.Builder.Selection].
func (s *State) Selection(name model.ServicePortName, f model.Family) model.Selection {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.builder.Selection(name, f)
}

// Claimants returns the service ports that ask for a VIP, see [model.Builder.Claimants].
func (s *State) Claimants(v model.VIP) []model.ServicePortName {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.builder.Claimants(v)
}

// Version returns the version of an object, see [model.Builder.Version].
func (s *State) Version(of model.ObjectRef) (version uint64, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.builder.Version(of)
}

// Names returns the names of a kind's objects, see [model.Builder.Names].
func (s *State) Names(kind string) []model.NamespacedName {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.builder.Names(kind)
}

// ServiceUID returns the UID of a Service, or "" if it is not known.
func (s *State) ServiceUID(name model.NamespacedName) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.builder.ServiceUID(name)
}

// Pending returns how many changes of Services and of EndpointSlices wait for a round.
func (s *State) Pending() (services, endpointSlices int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending.services, s.pending.endpointSlices
}

// Queued returns when the first change after the begin of a round came last, and since when a change waits for the end
// of a round. Zero: there was none, or none waits.
func (s *State) Queued() (last, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	since = s.applied
	if since.IsZero() && s.pending.some {
		since = s.queued
	}
	return s.queued, since
}

// done ends the round under way.
func (s *State) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applied = time.Time{}
}

// Signal sends to a channel of capacity 1, unless it has a signal already.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
