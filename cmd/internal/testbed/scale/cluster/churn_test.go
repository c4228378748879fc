package cluster

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// replica holds the slices as an API server does.
type replica struct {
	t      *testing.T
	slices map[string]*discoveryv1.EndpointSlice // by namespace/name
}

func newReplica(t *testing.T, c *Cluster) *replica {
	t.Helper()
	r := &replica{t, map[string]*discoveryv1.EndpointSlice{}}
	for o := range c.Objects() {
		if s, ok := o.(*discoveryv1.EndpointSlice); ok {
			if r.slices[key(s)] != nil {
				t.Errorf("two slices %s", key(s))
			}
			r.slices[key(s)] = s
		}
	}
	return r
}

func key(s *discoveryv1.EndpointSlice) string { return s.Namespace + "/" + s.Name }

// take takes over a write, and returns the slice that it is about.
func (r *replica) take(e Event, at time.Time) *discoveryv1.EndpointSlice {
	r.t.Helper()
	now := e.Slice
	old := r.slices[key(now)]
	if got, want := now.Annotations[corev1.EndpointsLastChangeTriggerTime], at.UTC().Format(time.RFC3339Nano); got != want {
		r.t.Errorf("%s: triggered at %s, want %s", key(now), got, want)
	}
	switch {
	case old == nil && e.Deleted:
		r.t.Errorf("%s is deleted, but there is none", key(now))
	case old != nil && now.Generation != old.Generation+1:
		r.t.Errorf("%s: generation %d after %d", key(now), now.Generation, old.Generation)
	case len(now.Endpoints) > maxPerSlice:
		r.t.Errorf("%s has %d endpoints", key(now), len(now.Endpoints))
	}
	if e.Deleted {
		delete(r.slices, key(now))
	} else {
		r.slices[key(now)] = now
	}
	return now
}

// service returns the endpoints of a Service's slices, by address.
func (r *replica) service(of *discoveryv1.EndpointSlice) map[string]discoveryv1.EndpointConditions {
	out := map[string]discoveryv1.EndpointConditions{}
	for _, s := range r.slices {
		if s.Namespace != of.Namespace || s.Labels[discoveryv1.LabelServiceName] != of.Labels[discoveryv1.LabelServiceName] {
			continue
		}
		for _, e := range s.Endpoints {
			if _, ok := out[e.Addresses[0]]; ok {
				r.t.Errorf("%s is twice in slices of %s", e.Addresses[0], key(of))
			}
			out[e.Addresses[0]] = e.Conditions
		}
	}
	return out
}

// phase is where an endpoint is in its life.
func phase(c discoveryv1.EndpointConditions) string {
	switch {
	case *c.Ready && *c.Serving && !*c.Terminating:
		return "ready"
	case !*c.Ready && !*c.Serving && !*c.Terminating:
		return "starting"
	case !*c.Ready && *c.Serving && *c.Terminating:
		return "terminating"
	}
	return "in no phase"
}

// Each write changes one endpoint by one step of its life, and no Service loses or gains
// more than one.
func TestChurnIsThatOfRollingUpdates(t *testing.T) {
	const nominal = maxPerSlice
	c, deleted := New(Shape{Services: 4, Endpoints: nominal}), 0
	r := newReplica(t, c)
	steps := map[string]int{}
	for i := range 10_000 {
		at := time.Unix(int64(i), 0)
		e := c.Churn(at)
		before := r.service(e.Slice)
		r.take(e, at)
		after := r.service(e.Slice)
		if e.Deleted {
			deleted++
		}
		changed := 0
		for addr, conditions := range after {
			was := "absent"
			if old, ok := before[addr]; ok {
				was = phase(old)
			}
			if is := phase(conditions); is != was {
				changed++
				steps[was+" to "+is]++
			}
			delete(before, addr)
		}
		for _, conditions := range before {
			changed++
			steps[phase(conditions)+" to absent"]++
		}
		if n := len(after); changed != 1 || n < nominal || n > nominal+1 {
			t.Fatalf("write %d, of %s: %d endpoints changed, and there are %d of %d", i, key(e.Slice), changed, n, nominal)
		}
	}
	var other []string
	for step, n := range steps {
		switch step {
		case "absent to starting", "starting to ready", "ready to terminating", "terminating to absent":
			if n < 500 {
				t.Errorf("%s: only %d times", step, n)
			}
		default:
			other = append(other, step)
		}
	}
	if len(other) > 0 || deleted == 0 {
		t.Errorf("no endpoint lives like that: %v; %d slices deleted", other, deleted)
	}
	// What the writes make is what the cluster says it is.
	want := newReplica(t, c)
	if diff := cmp.Diff(want.slices, r.slices); diff != "" {
		t.Errorf("slices (-objects +writes):\n%s", diff)
	}
}
