package userspace

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/vmapd/vmapd/model"
)

// Stats are figures of one family.
type Stats struct {
	Listeners int    // open now
	Missing   int    // listeners that can't be opened now
	Absent    int    // those of Missing whose address the node does not have
	Failures  uint64 // failed attempts to open a listener
	Accepted  uint64 // TCP connections, and new clients of UDP
}

// Connections are figures of both families that only grow.
type Connections struct {
	Forwarded, Refused, Dropped uint64 // by the decision
	Failed                      uint64 // forwarded, but no endpoint accepted
}

// counts are the fields of Stats and Connections that only grow.
type counts struct {
	failures, accepted [len(model.Families)]atomic.Uint64

	forwarded, refused, dropped, failed atomic.Uint64
	spliced                             atomic.Uint64 // bytes that splice(2) copied
	sessions                            atomic.Int64  // of UDP, now
	remembered                          atomic.Int64  // clients with session affinity
}

func (c *counts) decided(d model.Decision) {
	switch d.Verdict {
	case model.Forwarded:
		c.forwarded.Add(1)
	case model.Dropped:
		c.dropped.Add(1)
	case model.Rejected, model.NotOurs:
		c.refused.Add(1)
	}
}

// Connections returns the figures of all connections.
func (f *Forwarder) Connections() Connections {
	c := f.counts
	return Connections{c.forwarded.Load(), c.refused.Load(), c.dropped.Load(), c.failed.Load()}
}

// Stats returns the figures of each family.
func (f *Forwarder) Stats() (stats [len(model.Families)]Stats) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, family := range model.Families {
		stats[family].Failures = f.counts.failures[family].Load()
		stats[family].Accepted = f.counts.accepted[family].Load()
	}
	for _, e := range f.entries {
		s := &stats[e.family()]
		switch {
		case e.listener != nil:
			s.Listeners++
			continue
		case e.absent:
			s.Absent++
		}
		s.Missing++
	}
	return stats
}

// Listening reports whether a listener accepts connections to an address and port, and why it does not.
func (f *Forwarder) Listening(v model.VIP) (open bool, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch e := f.entries[v]; {
	case e == nil:
		return false, "nothing is to listen there"
	case e.listener == nil:
		return false, e.said
	}
	return true, ""
}

// Compare lists the listeners of a family that are missing.
func (f *Forwarder) Compare(family model.Family) (list []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for e := range f.missing {
		if e.family() == family {
			list = append(list, fmt.Sprintf("no listener at %v for %v: %s", e.vip, e.owner.Load().key.name, e.said))
		}
	}
	slices.Sort(list)
	return list
}
