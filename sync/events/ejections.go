package events

import (
	"fmt"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/reconcile"
)

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
