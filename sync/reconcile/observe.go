package reconcile

import (
	"time"

	"github.com/vmapd/vmapd/model"
)

// Observer is told what a [Loop] does. Its methods are called by several goroutines, and
// must not block.
type Observer interface {
	// Queued: something changed that no round has taken yet. It is called once for all that
	// the next round takes.
	Queued(at time.Time)
	// Done: a round ended.
	Done(r Round)
}

// Round is one try to make the dataplane match a snapshot.
type Round struct {
	Snapshot *model.Snapshot
	Started  time.Time
	Took     time.Duration
	Full     bool                      // compared with what is really there
	Err      error                     // nil: the dataplane is as Snapshot says
	Failed   [len(model.Families)]bool // whom Err is about

	// What the round took in.
	Services, EndpointSlices int                              // changes of such objects
	Triggers                 [len(model.Families)][]time.Time // what caused those of EndpointSlices, see kube.Triggered

	// Queued is when the first change came that waits for the next round. The zero value
	// means that none does.
	Queued time.Time
}

// Change says what an update is about, for those who count.
type Change struct {
	Services, EndpointSlices int          // how many objects of the kind changed
	Trigger                  time.Time    // what caused it, if that is known
	Family                   model.Family // whom the trigger is about
}

// pending is what no round has taken yet.
type pending struct {
	since                    time.Time // zero: nothing
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
	for _, f := range model.Families {
		failed[f] = true
	}
	return failed
}
