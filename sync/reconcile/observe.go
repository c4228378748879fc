package reconcile

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/vmapd/vmapd/model"
)

// Observer follows the rounds of a [Loop].
type Observer interface {
	// Done is called after each round. It must not block.
	Done(r Round)
}

// Round is one attempt to make the dataplane match a snapshot.
type Round struct {
	Snapshot *model.Snapshot
	Started  time.Time
	Took     time.Duration
	Full     bool                      // compared with the real dataplane
	Repair   bool                      // it puts back what another program changed
	Err      error                     // nil: the dataplane matches Snapshot
	Failed   [len(model.Families)]bool // the families that Err leaves as they were
	// Refused are service ports that Err leaves as they were, in whole or in part, in families that are programmed
	// otherwise.
	Refused [len(model.Families)]map[model.ServicePortName]bool

	// The changes in this round.
	Services, EndpointSlices int                              // changed objects
	Triggers                 [len(model.Families)][]time.Time // of EndpointSlices, see kube.Triggered
}

// Change describes an update, for metrics.
type Change struct {
	Services, EndpointSlices int          // changed objects
	Trigger                  time.Time    // of the change that caused this one; zero: unknown
	Family                   model.Family // of the trigger
}

// MaxTriggers limits the triggers of a family that are kept for a round; later ones are dropped. Rounds wait as long as
// a source is incomplete.
const MaxTriggers = 10_000

// pending describes the changes that wait for a round.
type pending struct {
	some                     bool // there are any
	services, endpointSlices int
	triggers                 [len(model.Families)][]time.Time
}

func (p *pending) add(c Change) (first bool) {
	first, p.some = !p.some, true
	p.services += c.Services
	p.endpointSlices += c.EndpointSlices
	if kept := &p.triggers[c.Family]; !c.Trigger.IsZero() && len(*kept) < MaxTriggers {
		*kept = append(*kept, c.Trigger)
	}
	return first
}

// ProblemChanges returns the problems that only the later of two snapshots has, and those that only the earlier one,
// which may be nil, has.
func ProblemChanges(old, now *model.Snapshot) (added, gone []model.Problem) {
	before := cmp.Or(old, new(model.Snapshot)).Problems
	if slices.Equal(now.Problems, before) {
		return nil, nil
	}
	return without(now.Problems, before), without(before, now.Problems)
}

// without returns the problems that are not in others.
func without(problems, others []model.Problem) []model.Problem {
	return slices.DeleteFunc(slices.Clone(problems), sets.New(others...).Has)
}

// failures returns what an error leaves unprogrammed of a snapshot. A family of which nothing was taken has failed.
func failures(s *model.Snapshot, err error) (
	failed [len(model.Families)]bool, refused [len(model.Families)]map[model.ServicePortName]bool,
) {
	failed, refused = model.Failures(err)
	for _, f := range model.Families {
		if n := len(refused[f]); n > 0 && n >= s.Family(f).NumServicePorts() {
			failed[f] = true
		}
		if failed[f] {
			refused[f] = nil
		}
	}
	return failed, refused
}

// Worker lets an [Observer] work in a goroutine of its own, so that its work delays no round: the loop changes the
// state and wakes it, and Run works on what the state is then.
type Worker[T any] struct {
	wake chan struct{} // capacity 1

	mu    sync.Mutex
	state T
}

// NewWorker returns a Worker that has not been woken yet.
func NewWorker[T any](state T) *Worker[T] {
	return &Worker[T]{wake: make(chan struct{}, 1), state: state}
}

// With calls fn with the state, one call after the other.
func (w *Worker[T]) With(fn func(state *T)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fn(&w.state)
}

// Wake makes Run work once more. It does not wait.
func (w *Worker[T]) Wake() { Signal(w.wake) }

// Run calls work after each Wake, or once after several, and again after the time that work returned, unless that is
// less than 0. It returns when ctx ends.
func (w *Worker[T]) Run(ctx context.Context, work func() (again time.Duration)) {
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
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
