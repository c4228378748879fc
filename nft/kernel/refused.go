package kernel

import (
	"github.com/vmapd/vmapd/model"
)

// refusedCounts add up the refused connections of a family's service ports. The kernel counts them while a
// frontend has no endpoint, and forgets the count with the element: here it stays, as it was last read.
// Frontends that never refused a connection take no memory.
type refusedCounts struct {
	now  map[string]refusedCount          // by the key of the counter
	past map[model.ServicePortName]uint64 // of counters that are gone
}

type refusedCount struct {
	port    model.ServicePortName
	packets uint64
}

// read takes in a new reading of the counters.
func (r *refusedCounts) read(s *model.FamilySnapshot, counters packetCounts) {
	before := r.now
	r.now = map[string]refusedCount{}
	for sp := range s.ServicePorts() {
		for _, fe := range sp.Frontends {
			key := counterKey(fe)
			if n := counters[key]; n > 0 {
				r.now[key] = refusedCount{sp.Name, n}
			}
		}
	}
	for key, old := range before {
		// A counter that is smaller than before is another one.
		if now := r.now[key]; now.port == old.port && now.packets >= old.packets {
			continue
		}
		if r.past == nil {
			r.past = map[model.ServicePortName]uint64{}
		}
		r.past[old.port] += old.packets
	}
	for name := range r.past {
		if _, ok := s.ServicePort(name); !ok {
			delete(r.past, name)
		}
	}
}

// of returns the refused ones of all connections to a service port. If there are more, the table was
// replaced, and the count of all began anew.
func (r *refusedCounts) of(name model.ServicePortName, now, all uint64) uint64 {
	if now+r.past[name] > all {
		delete(r.past, name)
	}
	return min(now+r.past[name], all)
}
