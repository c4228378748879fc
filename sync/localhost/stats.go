package localhost

import (
	"sync/atomic"

	"github.com/vmapd/vmapd/model"
)

// Stats are figures of one family.
type Stats struct {
	Listeners int    // open now
	Missing   int    // listeners that can't be opened now
	Failures  uint64 // failed attempts to open a listener
	Accepted  uint64 // TCP connections, and new clients of UDP
}

// counts are the fields of Stats that only grow.
type counts struct {
	failures, accepted [len(model.Families)]atomic.Uint64
}

// Stats returns the figures of each family.
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
