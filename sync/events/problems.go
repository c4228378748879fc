package events

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// Problems records an event for each new problem of a Service. It is a [reconcile.Observer].
type Problems struct {
	Recorder *Recorder

	mu   sync.Mutex
	seen *model.Snapshot
}

var _ reconcile.Observer = (*Problems)(nil)

// Done implements reconcile.Observer: it records the problems that the previous snapshot did
// not have, whether the round succeeded or not.
func (p *Problems) Done(round reconcile.Round) {
	p.mu.Lock()
	defer p.mu.Unlock()
	added, _ := reconcile.ProblemChanges(p.seen, round.Snapshot)
	p.seen = round.Snapshot
	for _, problem := range added {
		p.record(problem)
	}
}

// record records the event about a problem, if it is a Service's. A problem without a field is a
// frontend that belongs to another Service.
func (p *Problems) record(problem model.Problem) {
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
	p.Recorder.record(problem.Object, Warning, reason, note)
}

// The API server forgets an event an hour after the last write (--event-ttl). Each node renews those of problems
// that last in time, at another time than other nodes.
const (
	renewAfter  = 45 * time.Minute
	renewJitter = 15 * time.Minute // less
)

// Run renews the events about problems that last, until ctx ends.
func (p *Problems) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(renewAfter - rand.N(renewJitter)):
		}
		p.mu.Lock()
		seen := p.seen
		p.mu.Unlock()
		if seen == nil {
			continue
		}
		for _, problem := range seen.Problems() {
			p.record(problem)
		}
	}
}

// Ejections records an event when endpoints of a Service are ejected, and one when all are back. It is a
// [reconcile.Observer].
type Ejections struct {
	Recorder *Recorder

	seen  *model.Snapshot
	ports map[model.NamespacedName]int // service ports with ejected endpoints
}

// Done implements reconcile.Observer. The loop alone calls it.
func (e *Ejections) Done(round reconcile.Round) {
	old, now := e.seen, round.Snapshot
	e.seen = now
	if old == nil {
		old, e.ports = new(model.Snapshot), map[model.NamespacedName]int{}
	}
	if old.Ejections() == now.Ejections() && len(e.ports) == 0 {
		return
	}
	before := map[model.NamespacedName]int{}
	said := map[model.NamespacedName]*model.ServicePort{}
	stays := map[model.NamespacedName]bool{} // the port is not deleted
	for _, f := range model.Families {
		for c := range now.Family(f).ServicePortChanges(old.Family(f)) {
			for by, sp := range map[int]*model.ServicePort{-1: c.Old, 1: c.New} {
				if sp == nil || len(sp.Ejected) == 0 {
					continue
				}
				name := sp.Name.NamespacedName
				stays[name] = stays[name] || c.New != nil
				if _, ok := before[name]; !ok {
					before[name] = e.ports[name]
				}
				if e.ports[name] += by; by > 0 {
					said[name] = sp
				}
			}
		}
	}
	for name, had := range before {
		switch has := e.ports[name]; {
		case has > 0 && had == 0:
			sp := said[name]
			e.Recorder.Service(name, Warning, ReasonEndpointsEjected, fmt.Sprintf("%v of port %q did not answer clients, "+
				"nor this node: new connections go to other endpoints", sp.Ejected[0], sp.Name.Port))
		case has == 0:
			delete(e.ports, name)
			if had > 0 && stays[name] {
				e.Recorder.Service(name, Normal, ReasonEndpointsReturned, "all endpoints get connections again")
			}
		}
	}
}
