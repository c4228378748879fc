package health

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/model/modeltest/testaid"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// history is a Tracker and what its test tells it, in a bubble of fake time.
type history struct {
	*testing.T
	*Tracker
	snapshot *model.Snapshot
	since    time.Time // a change waits for the end of a round
}

func newHistory(t *testing.T, o Options, s *model.Snapshot) *history {
	t.Helper()
	h := &history{T: t, snapshot: s}
	o.Queued = func() (last, since time.Time) { return h.since, h.since }
	o.SyncPeriod, o.Eligibility = limit/2, func(string) {}
	if o.Count == nil {
		o.Count = func(string, int) {}
	}
	if o.Findings == nil {
		o.Findings = func() []string { return nil }
	}
	h.Tracker = NewTracker(o)
	return h
}

// tell runs a test in a bubble.
func tell(t *testing.T, test func(h *history)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(newHistory(t, Options{}, modeltest.Snapshot(modeltest.Config()))) })
}

// change is queued now.
func (h *history) change() { h.since = time.Now() }

// round is a round that took no time and ended now. failed are the families that failed.
func (h *history) round(failed ...model.Family) {
	r := reconcile.Round{Snapshot: h.snapshot, Started: time.Now()}
	for _, f := range failed {
		r.Failed[f] = true
		r.Err = errors.New("no")
	}
	h.since = time.Time{}
	h.Done(r)
}

// healthyFor fails unless the proxy is healthy for d longer, and not after that.
func (h *history) healthyFor(d time.Duration) {
	h.Helper()
	time.Sleep(d - time.Nanosecond)
	if !h.Healthy() {
		h.Errorf("unhealthy before %v have passed", d)
	}
	time.Sleep(time.Nanosecond)
	if h.Healthy() {
		h.Errorf("healthy after %v", d)
	}
}

func (h *history) mustBe(healthy bool, when string) {
	h.Helper()
	if got := h.Healthy(); got != healthy {
		h.Errorf("%s: healthy %v, want %v", when, got, healthy)
	}
}

const (
	limit = time.Minute
	long  = 24 * time.Hour
)

func TestAChangeMayWaitForTwoSyncPeriods(t *testing.T) {
	tell(t, func(h *history) {
		h.round()
		time.Sleep(long)
		h.mustBe(true, "nothing has changed for long")
		h.change()
		h.healthyFor(limit)
		h.round()
		h.mustBe(true, "a sync has succeeded")
		time.Sleep(long)
		h.mustBe(true, "and nothing has changed since")
	})
}

func TestAFailedRoundWaitsEvenIfNothingChanged(t *testing.T) {
	tell(t, func(h *history) {
		h.round()
		time.Sleep(long)
		h.round(model.IPv4, model.IPv6)
		time.Sleep(limit / 2)
		h.change()
		h.round(model.IPv4, model.IPv6)
		h.healthyFor(limit / 2)
	})
}

func TestEachFamilyForItself(t *testing.T) {
	for _, late := range model.Families {
		other := model.Families[1-int(late)]
		t.Run(late.String(), func(t *testing.T) {
			tell(t, func(h *history) {
				h.round()
				h.change()
				h.round(late)
				h.healthyFor(limit)
				h.change()
				h.round(late)
				h.mustBe(false, "the other family has succeeded again")
				h.round(other)
				h.mustBe(true, "this one has, and the other has failed just now")
				h.round()
				h.mustBe(true, "both have")
			})
		})
	}
}

func TestHealthyWhileStarting(t *testing.T) {
	tell(t, func(h *history) {
		h.change()
		time.Sleep(long) // the API server is away
		h.mustBe(true, "no round has ended")
		h.round(model.IPv4, model.IPv6)
		h.healthyFor(limit)
		h.round()
		h.mustBe(true, "a sync has succeeded")
	})
}

func TestStatus(t *testing.T) {
	tell(t, func(h *history) {
		start := time.Now()
		h.Done(reconcile.Round{Snapshot: h.snapshot, Started: start, Took: time.Second})
		time.Sleep(time.Minute)
		failed := time.Now()
		h.round(model.IPv6)
		time.Sleep(2 * time.Minute)
		want := Status{
			At: time.Now(), Ready: true, Eligible: true,
			Families: [...]FamilyStatus{
				model.IPv4: {Healthy: true, Synced: failed},
				model.IPv6: {Synced: start.Add(time.Second), Waiting: failed, LastError: "no"},
			},
		}
		testaid.Equal(h, "the status", want, h.Status())
		// One Service that the kernel refuses takes no node out of the load balancers.
		refused := reconcile.Round{Snapshot: h.snapshot, Started: time.Now(), Err: errors.New("refused")}
		refused.Refused[model.IPv6] = map[model.ServicePortName]bool{{}: true}
		h.Done(refused)
		if got, want := h.Status().Families[model.IPv6], (FamilyStatus{Healthy: true, Synced: time.Now(), LastError: "refused"}); got != want {
			h.Errorf("with a refused service port: %+v, want %+v", got, want)
		}
		h.round()
		if got := h.Status().Families[model.IPv6].LastError; got != "" {
			h.Errorf("the last error is %q after a success, want none", got)
		}
	})
}

func TestEligibility(t *testing.T) {
	deleting, tainted, other := modeltest.OurNode(), modeltest.OurNode(), modeltest.OurNode()
	deleting.Deleting = true
	tainted.Taints = []string{"other", "ToBeDeletedByClusterAutoscaler"}
	other.Taints = []string{"other"}
	h := newHistory(t, Options{}, nil)
	b := modeltest.Builder(modeltest.Config())
	eligible := func(want bool, when string) {
		t.Helper()
		h.snapshot = b.Snapshot()
		h.round(model.IPv4, model.IPv6) // that does not matter
		if got := h.Status().Eligible; got != want {
			t.Errorf("%s: eligible %v, want %v", when, got, want)
		}
	}
	if !h.Status().Eligible {
		t.Errorf("not eligible while starting")
	}
	eligible(true, "no Node object, as when running from files")
	modeltest.OurNode().Set(b)
	eligible(true, "a Node")
	tainted.Set(b)
	eligible(false, "tainted by the autoscaler")
	other.Set(b)
	eligible(true, "tainted by others")
	deleting.Set(b)
	eligible(false, "being deleted")
	deleting.Delete(b)
	eligible(false, "deleted")
	modeltest.OurNode().Set(b)
	eligible(true, "created again")
}
