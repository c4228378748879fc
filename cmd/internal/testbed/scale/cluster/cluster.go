package cluster

import (
	"iter"
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// NodeName is the Node of the measured proxy. It has its share of the pods.
const NodeName = "node-0"

// PodCIDR has the addresses of all pods, and no others.
const PodCIDR = "10.128.0.0/9"

// podsPerNode is typical; the kubelet allows 110.
const podsPerNode = 50

// Cluster is the present state of a cluster.
type Cluster struct {
	rng      *rand.Rand
	epoch    time.Time // when the newest objects were made
	nodes    int
	services []*service // those that Replace changes, and then those that Churn does
	pods     int        // made so far, also those that are gone

	probes   int // Services of Replace
	probed   int
	rollouts []*rollout
}

// New makes a cluster. It is complete: each pod is ready.
func New(s Shape) *Cluster {
	const mostProbes = 500
	c := &Cluster{
		rng:    rand.New(rand.NewPCG(1, 1)), //nolint:gosec // what is random here is to be repeated
		epoch:  time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		nodes:  max(3, s.Services*s.Endpoints/podsPerNode),
		probes: min(mostProbes, max(1, s.Services/10)),
	}
	for i := range s.Services {
		svc := newService(i)
		c.services = append(c.services, svc)
		for range s.Endpoints {
			p := c.newPod()
			p.ready = true
			c.add(svc, p)
		}
	}
	return c
}

// Objects are all that the API server has, in no useful order.
func (c *Cluster) Objects() iter.Seq[runtime.Object] {
	return func(yield func(runtime.Object) bool) {
		if !yield(c.node()) || !yield(serviceCIDR()) {
			return
		}
		for _, s := range c.services {
			if !yield(c.service(s)) {
				return
			}
			for _, sl := range s.slices {
				if !yield(c.slice(s, sl)) {
					return
				}
			}
		}
	}
}
