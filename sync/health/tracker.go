package health

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// Options of a Tracker.
type Options struct {
	// SyncPeriod is the configured nftables.syncPeriod, iptables.syncPeriod or
	// ipvs.syncPeriod: a change may wait for twice as long.
	SyncPeriod time.Duration
	// NodeName is the name of the Node that the cluster must have for the proxy to be ready; "" means that none is needed.
	NodeName string
	// Findings returns the names of what is wrong with the node, for /readyz: they are no reason for which the
	// proxy is not ready.
	Findings func() []string
	// Count is called with the path and the status code of each answer of the Handler,
	// by any number of goroutines.
	Count func(path string, code int)
	// Queued returns since when a change waits for the end of a round, see [reconcile.State.Queued].
	Queued func() (last, since time.Time)
	// Eligibility is called when the node is no longer eligible, with the reason, and with ""
	// when it is again. It must not call the Tracker.
	Eligibility func(why string)
}

// Tracker derives the health of the proxy from the rounds of a [reconcile.Loop]. Any number of goroutines may use it.
//
// An IP family is unhealthy if a change has waited for a successful sync for twice the sync period or longer; the
// remainder of a failed sync waits from its begin. A family that the dataplane does not use never fails. Until the
// first round has ended, the proxy is starting, and healthy.
//
// The proxy is not ready while the cluster has no Node of its name: it takes all endpoints for those of other nodes. So
// a rollout with a wrong name stops at the first nodes. A Node that is deleted later changes nothing about readiness.
type Tracker struct {
	options Options

	mu       sync.Mutex
	started  bool                              // a round has ended
	hadNode  bool                              // there was a Node object
	why      string                            // the node is not eligible; "": it is
	families [len(model.Families)]FamilyStatus // Healthy is unused; Waiting is of failed rounds
}

// Status is the state of a Tracker at one time.
type Status struct {
	At       time.Time // now
	Healthy  bool      // all families are
	Ready    bool      // all families have been programmed at least once, and the cluster has our Node
	NoNode   string    // the name of the Node that the cluster has never had; "": it is not missing
	Eligible bool      // load balancers may send new connections to this node
	Why      string    // it is not eligible
	Families [len(model.Families)]FamilyStatus
}

// FamilyStatus is the part of a Status about one IP family.
type FamilyStatus struct {
	Healthy   bool
	Synced    time.Time // of the last successful sync; zero: there was none
	Waiting   time.Time // since when a change waits for a successful sync; zero: none does
	LastError string    // of the last sync; "" if it succeeded
}

// NewTracker returns a Tracker of a proxy that is starting.
func NewTracker(o Options) *Tracker { return &Tracker{options: o} }

// Done implements [reconcile.Observer]. A family in which the kernel refuses single service ports is programmed: one
// Service must not take all nodes out of the load balancers. If the Node object is deleted, the node is no longer
// eligible. If there never was one, as with --from, it is.
func (t *Tracker) Done(r reconcile.Round) {
	t.mu.Lock()
	defer t.mu.Unlock()
	node := r.Snapshot.Node
	t.hadNode = t.hadNode || node.Known
	why := ""
	switch {
	case node.Known && !node.Eligible:
		why = "the Node " + node.Why
	case !node.Known && t.hadNode:
		why = "the Node is deleted"
	}
	if why != t.why {
		t.why = why
		t.options.Eligibility(why)
	}
	for i := range t.families {
		f := &t.families[i]
		if r.Err == nil || !r.Failed[i] {
			*f = FamilyStatus{Synced: r.Started.Add(r.Took)}
			if len(r.Refused[i]) > 0 {
				f.LastError = r.Err.Error()
			}
			continue
		}
		f.LastError = r.Err.Error()
		if f.Waiting.IsZero() {
			f.Waiting = r.Started
		}
	}
	t.started = true
}

// Healthy reports whether the proxy is healthy, also on a node that is being deleted.
func (t *Tracker) Healthy() bool { return t.Status().Healthy }

// Status returns the state of now.
func (t *Tracker) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Status{At: time.Now(), Healthy: true, Ready: true, Eligible: t.why == "", Why: t.why}
	_, since := t.options.Queued()
	for i, f := range t.families {
		if f.Waiting.IsZero() {
			f.Waiting = since
		}
		late := t.started && !f.Waiting.IsZero() && s.At.Sub(f.Waiting) >= 2*t.options.SyncPeriod
		f.Healthy = !late
		s.Families[i] = f
		s.Healthy = s.Healthy && f.Healthy
		s.Ready = s.Ready && !f.Synced.IsZero()
	}
	if t.started && !t.hadNode && t.options.NodeName != "" {
		s.Ready, s.NoNode = false, t.options.NodeName
	}
	return s
}

// Handler serves /healthz and /livez as kube-proxy does, and /readyz with the reasons for which the proxy is not ready,
// a line for each. The status is 200 or 503, for any method.
func (t *Tracker) Handler() http.Handler {
	mux := http.NewServeMux()
	for path, answer := range map[string]func(Status) answer{"/healthz": healthz, "/livez": livez, "/readyz": t.readyz} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			t.options.Count(path, answer(t.Status()).send(w))
		})
	}
	return mux
}

// answer is a handler's response.
type answer struct {
	ok          bool
	contentType string
	body        string
}

// send returns the status code.
func (a answer) send(w http.ResponseWriter) int {
	code := http.StatusOK
	if !a.ok {
		code = http.StatusServiceUnavailable
	}
	w.Header().Set("Content-Type", a.contentType)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(a.body)) // fails only if the client is gone
	return code
}

const (
	typeJSON = "application/json"
	typeText = "text/plain; charset=utf-8"
)

func healthz(s Status) answer {
	ok := s.Healthy && s.Eligible
	return answer{ok, typeJSON, fmt.Sprintf(`{%s, "nodeEligible": %v}`, times(s, ok), s.Eligible)}
}

func livez(s Status) answer {
	return answer{s.Healthy, typeJSON, "{" + times(s, s.Healthy) + "}"}
}

// times returns the times of the last successful sync of any family and of now. For a healthy proxy, both
// are now: clients expect a recent sync, as when syncs were periodic.
func times(s Status, ok bool) string {
	updated := s.Families[model.IPv4].Synced
	if other := s.Families[model.IPv6].Synced; other.After(updated) {
		updated = other
	}
	if ok {
		updated = s.At
	}
	return fmt.Sprintf(`"lastUpdated": %q,"currentTime": %q`,
		updated.UTC().Format(time.RFC3339Nano), s.At.UTC().Format(time.RFC3339Nano))
}

// readyz hides errors: its clients are not authenticated, and errors name Services.
func (t *Tracker) readyz(s Status) answer {
	if s.Ready {
		return answer{true, typeText, "ok\n"}
	}
	var missing strings.Builder
	for _, f := range model.Families {
		if s.Families[f].Synced.IsZero() {
			fmt.Fprintf(&missing, "%v: no sync has succeeded yet\n", f)
		}
	}
	if s.NoNode != "" {
		fmt.Fprintf(&missing, "the cluster has no Node %q: the name comes from --hostname-override, or is the host's\n",
			s.NoNode)
	}
	for _, f := range t.options.Findings() {
		fmt.Fprintf(&missing, "vmapd doctor has a finding: %s\n", f)
	}
	return answer{false, typeText, missing.String()}
}
