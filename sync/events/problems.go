package events

import (
	"sync"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// Problems records an event for each new problem of a Service. It is a
// [reconcile.Observer].
type Problems struct {
	Recorder *Recorder

	mu   sync.Mutex
	seen *model.Snapshot
}

var _ reconcile.Observer = (*Problems)(nil)

// Queued implements reconcile.Observer.
func (p *Problems) Queued(time.Time) {}

// Done implements reconcile.Observer: it records the problems that the previous snapshot did
// not have, whether the round succeeded or not.
func (p *Problems) Done(round reconcile.Round) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old, now := p.seen, round.Snapshot
	p.seen = now
	if old != nil && now.SameProblems(old) {
		return
	}
	before := map[model.Problem]bool{}
	if old != nil {
		for _, problem := range old.Problems() {
			before[problem] = true
		}
	}
	for _, problem := range now.Problems() {
		if problem.Object.Kind == kindService && !before[problem] {
			p.Recorder.record(problemEvent(problem), true)
		}
	}
}

// problemEvent returns the event about a problem of a Service. A problem without a field is a
// frontend that belongs to another Service.
func problemEvent(p model.Problem) occurrence {
	reason, note := ReasonFrontendConflict, p.Message
	if p.Field != "" {
		reason, note = ReasonInvalidField, p.Field+": "+p.Message
	}
	if p.Budget != "" {
		reason = ReasonOverBudget
	}
	return occurrence{p.Object, Warning, reason, ActionProgram, cut(note, maxNote)}
}
