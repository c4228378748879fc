package health

import (
	"sync"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// DefaultSyncPeriod is kube-proxy's default of nftables.syncPeriod and its likes.
const DefaultSyncPeriod = 30 * time.Second

// Options of a Tracker. The zero value works.
type Options struct {
	// SyncPeriod is what nftables.syncPeriod, iptables.syncPeriod or ipvs.syncPeriod
	// says: a change may wait for twice as long. 0 means DefaultSyncPeriod.
	SyncPeriod time.Duration
	// Count is called with the path and the status code of each answer of the Handler,
	// by any number of goroutines. nil: nobody counts.
	Count func(path string, code int)
}

// Tracker judges the proxy by what a [reconcile.Loop] does. Any number of goroutines may
// use it.
//
// An IP family is healthy unless something has waited for twice the sync period, or
// longer, for a sync of this family that succeeds: a change of the cluster since it
// happened, or what a failed sync left undone since that sync began. A loop that hangs in
// a round is found out by the first change that comes meanwhile. A family that the
// dataplane leaves out never fails. Until the first round has ended, the proxy is
// starting, and healthy.
type Tracker struct {
	count func(path string, code int)

	mu       sync.Mutex
	period   time.Duration
	started  bool // a round has ended
	hadNode  bool // there was a Node object
	eligible bool
	queued   time.Time // what Queued was told last
	families [len(model.Families)]family
}

// family is what is known of one IP family.
type family struct {
	waiting time.Time // since when something waits; zero: nothing does
	synced  time.Time // when a sync succeeded last; zero: none did
	err     string    // of the last sync; "" if it succeeded
}

// Status is what a Tracker thinks now.
type Status struct {
	At       time.Time // now
	Healthy  bool      // all families are
	Ready    bool      // everything was programmed once, in all families
	Eligible bool      // load balancers may send new connections to this node
	Families [len(model.Families)]FamilyStatus
}

// FamilyStatus is the part of a Status about one IP family.
type FamilyStatus struct {
	Healthy   bool
	Synced    time.Time // when a sync succeeded last; zero: none did
	Waiting   time.Time // since when something waits for a sync that succeeds; zero: nothing does
	LastError string    // of the last sync; "" if it succeeded
}

// NewTracker returns a Tracker of a proxy that is starting.
func NewTracker(o Options) *Tracker {
	t := &Tracker{count: o.Count, eligible: true}
	if t.count == nil {
		t.count = func(string, int) {}
	}
	t.SetSyncPeriod(o.SyncPeriod)
	return t
}

// SetSyncPeriod replaces Options.SyncPeriod. It counts at once, also for what waits
// already.
func (t *Tracker) SetSyncPeriod(d time.Duration) {
	if d <= 0 {
		d = DefaultSyncPeriod
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.period = d
}

// Queued implements [reconcile.Observer].
func (t *Tracker) Queued(at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queued = at
	for i := range t.families {
		if f := &t.families[i]; f.waiting.IsZero() {
			f.waiting = at
		}
	}
}

// Done implements [reconcile.Observer].
//
// A Node object that is gone makes the node not eligible: its load balancers drop it as
// well. One that never was, as when running from files, does not.
func (t *Tracker) Done(r reconcile.Round) {
	t.mu.Lock()
	defer t.mu.Unlock()
	node := r.Snapshot.Node()
	t.hadNode = t.hadNode || node.Known
	t.eligible = node.Eligible || !t.hadNode
	waiting := r.Queued
	if waiting.IsZero() && t.queued.After(r.Started) {
		waiting = t.queued // it came while r was on its way here
	}
	for i := range t.families {
		f := &t.families[i]
		if r.Err == nil || !r.Failed[i] {
			*f = family{waiting: waiting, synced: r.Started.Add(r.Took)}
			continue
		}
		f.err = r.Err.Error()
		// What waited before the first round waited for the API server.
		if f.waiting.IsZero() || !t.started {
			f.waiting = r.Started
		}
	}
	t.started = true
}

// Healthy reports whether the proxy is healthy, whatever happens to the node.
func (t *Tracker) Healthy() bool { return t.Status().Healthy }

// Status returns what is known now.
func (t *Tracker) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Status{At: time.Now(), Healthy: true, Ready: true, Eligible: t.eligible}
	for i, f := range t.families {
		late := t.started && !f.waiting.IsZero() && s.At.Sub(f.waiting) >= 2*t.period
		s.Families[i] = FamilyStatus{Healthy: !late, Synced: f.synced, Waiting: f.waiting, LastError: f.err}
		s.Healthy = s.Healthy && !late
		s.Ready = s.Ready && !f.synced.IsZero()
	}
	return s
}

// synced returns when a sync succeeded last, of any family.
func (s Status) synced() time.Time {
	var last time.Time
	for _, f := range s.Families {
		if f.Synced.After(last) {
			last = f.Synced
		}
	}
	return last
}
