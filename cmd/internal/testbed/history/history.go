package history

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vmapd/vmapd/model"
)

// Backend has the properties of a backend that widen or narrow what is right.
type Backend struct {
	// Hashes: lookup tables of the algorithms maglev and maglev-port choose.
	Hashes bool
	// Tables: an Apply changes several tables, one after the other.
	Tables bool
	// Purge is how long after an Apply a datagram may be dropped because affinity remembers its client at an endpoint
	// that the Apply removed. 0: none is.
	Purge time.Duration
}

// History has snapshots and operations. All times are since one moment, by the monotonic clock. Any number of
// goroutines may use it.
type History struct {
	Backend Backend
	// Node has the node's address, to which it masquerades, of each family.
	Node [len(model.Families)]netip.Addr

	mu         sync.Mutex
	applied    []applied
	operations []*Operation
	passes     [len(model.Families)][]pass
	stalls     []span
}

// applied is a snapshot, and the time of its Apply.
type applied struct {
	snapshot   *model.Snapshot
	begin, end time.Duration // end is only valid if ended
	told       time.Duration // when observers had been told of it; only valid if observed
	ended      bool          // without an error
	observed   bool
}

// pass is a pass of connection tracking's reconciler over a family.
type pass span

// span is a time.
type span struct{ begin, end time.Duration }

// Result is what became of an operation.
type Result uint8

// The results.
const (
	Answered Result = iota
	Refused         // a TCP reset, or an ICMP error
	Silent          // no answer in time
)

func (r Result) String() string { return [...]string{"answered", "refused", "silent"}[r] }

// Operation is a connection, or a datagram, and what became of it.
type Operation struct {
	model.Connection
	Pod        bool          // a pod on this node makes it
	Start, End time.Duration // before its first packet; after its answer, or the end of waiting
	Result     Result
	Endpoint   netip.AddrPort // Answered only: who answered
	Seen       netip.Addr     // Answered only: the source that the endpoint saw
	Before     *Operation     // the one before it with the same source port, over UDP; nil: it is the first one
}

// Begin notes that the Apply of a snapshot begins.
func (h *History) Begin(s *model.Snapshot, at time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.applied = append(h.applied, applied{snapshot: s, begin: at})
}

// End notes that the last Apply has ended. If it failed, its snapshot may be in force in part, and the one before
// it, too, until another one has ended without an error.
func (h *History) End(at time.Duration, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := &h.applied[len(h.applied)-1]
	last.end, last.ended = at, err == nil
}

// Told notes that connection tracking's reconciler has been told of the last Apply: a pass that begins from now on
// follows it.
func (h *History) Told(at time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := &h.applied[len(h.applied)-1]
	last.told, last.observed = at, last.ended
}

// Passed notes a pass of connection tracking's reconciler that went well.
func (h *History) Passed(f model.Family, begin, end time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.passes[f] = append(h.passes[f], pass{begin, end})
}

// Witness notes a datagram that no rule concerns, with its answer. One that takes long shows that the machine stalls.
func (h *History) Witness(start, end time.Duration) {
	if end-start < stall {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stalls = append(h.stalls, span{start, end})
}

// Add adds an operation.
func (h *History) Add(o *Operation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations = append(h.operations, o)
}

// Decisions returns what the snapshots that are in force now decide about a connection.
func (h *History) Decisions(c model.Connection, now time.Duration) []model.Decision {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []model.Decision
	for _, i := range h.inForce(now, now) {
		list = append(list, model.Decide(h.applied[i].snapshot, c))
	}
	return list
}

// inForce returns the snapshots in force at some time from one moment to another, in their order.
func (h *History) inForce(from, to time.Duration) []int {
	return h.between(from, to, func(a applied) (time.Duration, bool) { return a.end, a.ended })
}

// between returns the snapshots that began before the end of a time, and that had not been replaced at its begin. done
// is when one that follows has replaced them.
func (h *History) between(from, to time.Duration, done func(applied) (time.Duration, bool)) []int {
	var list []int
	for i, a := range slices.Backward(h.applied) {
		if a.begin <= to {
			list = append(list, i)
		}
		if at, ok := done(a); ok && at < from {
			break
		}
	}
	slices.Reverse(list)
	return list
}
