package localhost

import (
	"sync/atomic"

	"github.com/vmapd/vmapd/model"
)

// Stats are what a Forwarder did for one family.
type Stats struct {
	Listeners int    // there are now
	Missing   int    // listeners that can't be opened now
	Failures  uint64 // listeners that could not be opened, each time that this was tried
	Accepted  uint64 // TCP connections, and clients of UDP that were new
}

// counts are those of Stats that only grow.
type counts struct {
	failures, accepted [len(model.Families)]atomic.Uint64
}

// Stats returns what was done for each family.
func (f *Forwarder) Stats() (stats [len(model.Families)]Stats) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, family := range model.Families {
		stats[family].Failures = f.counts.failures[family].Load()
		stats[family].Accepted = f.counts.accepted[family].Load()
	}
	for key, p := range f.ports {
		if p.listener == nil {
			stats[key.family].Missing++
		} else {
			stats[key.family].Listeners++
		}
	}
	return stats
}
