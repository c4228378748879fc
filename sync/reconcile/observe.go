package reconcile

import (
	"time"

	"github.com/vmapd/vmapd/model"
)

// Observer follows the rounds of a [Loop]. Several goroutines call its methods, which must
// not block.
type Observer interface {
	// Queued is called for the first change after the begin of a round. The next round has
	// this change and all later ones.
	Queued(at time.Time)
	// Done is called after each round.
	Done(r Round)
}

// A Beginner is an Observer that is told of each snapshot before the dataplane can do what it says.
type Beginner interface {
	Observer
	// Begins is called before each round, whose Done follows.
	Begins(s *model.Snapshot)
}

// Round is one attempt to make the dataplane match a snapshot.
type Round struct {
	Snapshot *model.Snapshot
	Started  time.Time
	Took     time.Duration
	Full     bool                      // compared with the real dataplane
	Repair   bool                      // it puts back what another program changed
	Err      error                     // nil: the dataplane matches Snapshot
	Failed   [len(model.Families)]bool // the families of Err

	// The changes in this round.
	Services, EndpointSlices int                              // changed objects
	Triggers                 [len(model.Families)][]time.Time // of EndpointSlices, see kube.Triggered

	// Queued is the time of the first change that waits for the next round. It is zero if
	// there is none.
	Queued time.Time
}

// Change describes an update, for metrics.
type Change struct {
	Services, EndpointSlices int          // changed objects
	Trigger                  time.Time    // of the change that caused this one; zero: unknown
	Family                   model.Family // of the trigger
}

// pending describes the changes that wait for a round.
type pending struct {
	since                    time.Time // zero: there are none
	services, endpointSlices int
	triggers                 [len(model.Families)][]time.Time
}

func (p *pending) add(c Change, now time.Time) (first bool) {
	first = p.since.IsZero()
	if first {
		p.since = now
	}
	p.services += c.Services
	p.endpointSlices += c.EndpointSlices
	if !c.Trigger.IsZero() {
		p.triggers[c.Family] = append(p.triggers[c.Family], c.Trigger)
	}
	return first
}

// failedFamilies returns the families that an error affects: of each [model.FamilyError] in
// it, that one; of any other error, both.
func failedFamilies(err error) (failed [len(model.Families)]bool) {
	switch e := err.(type) { //nolint:errorlint // This walks the whole tree by itself.
	case nil:
		return failed
	case *model.FamilyError:
		failed[e.Family] = true
		return failed
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			for f, bad := range failedFamilies(inner) {
				failed[f] = failed[f] || bad
			}
		}
		return failed
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			return failedFamilies(inner)
		}
	}
	return [len(model.Families)]bool{model.IPv4: true, model.IPv6: true}
}
