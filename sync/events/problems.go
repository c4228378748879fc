package events

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// Problems records an event for each new problem of a Service. It is a [reconcile.Observer].
type Problems struct {
	Recorder *Recorder

	mu   sync.Mutex
	seen *model.Snapshot
}

// Done implements reconcile.Observer: it records the problems that the previous snapshot did
// not have, whether the round succeeded or not.
func (p *Problems) Done(round reconcile.Round) {
	p.mu.Lock()
	defer p.mu.Unlock()
	added, _ := reconcile.ProblemChanges(p.seen, round.Snapshot)
	p.seen = round.Snapshot
	for _, problem := range added {
		p.record(problem, false)
	}
}

// record records the event about a problem, if it is a Service's. A problem without a field is a
// frontend that belongs to another Service.
func (p *Problems) record(problem model.Problem, again bool) {
	if problem.Object.Kind != kindService {
		return
	}
	reason, note := ReasonFrontendConflict, problem.Message
	if problem.Field != "" {
		reason, note = ReasonInvalidField, problem.Field+": "+problem.Message
	}
	if problem.Budget != "" {
		reason = ReasonOverBudget
	}
	p.Recorder.record(problem.Object, again, reason, note)
}

// Run renews the events about problems that last, until ctx ends: the API server forgets an event an hour after the
// last write (--event-ttl).
func (p *Problems) Run(ctx context.Context) {
	const renewAfter, jitter = 30 * time.Minute, 0.5
	wait.JitterUntilWithContext(ctx, func(context.Context) {
		p.mu.Lock()
		seen := p.seen
		p.mu.Unlock()
		if seen == nil {
			return
		}
		for _, problem := range seen.Problems {
			p.record(problem, true)
		}
	}, renewAfter, jitter, true)
}
