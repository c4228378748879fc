package cluster

import (
	"iter"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// NodeName is the Node of the measured proxy. It has its share of the pods.
const NodeName = "node-0"

// PodCIDRs are where all pods are, to tell them from others.
var PodCIDRs = []string{"10.128.0.0/9", "fd00:10:128::/64"}

// families are those of addresses, in the order in which objects name them.
var families = [...]corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}

// podsPerNode is typical; the kubelet allows 110.
const podsPerNode = 50

// Cluster is the present state of a cluster.
type Cluster struct {
	rng      *rand.Rand
	epoch    time.Time // when the newest objects were made
	nodes    int
	services []*service
	pods     int // made so far, also those that are gone

	probes   []*service // of Replace; Churn leaves them alone
	probed   int
	rollouts []*rollout
	restless []*service // whom Churn may update
}

// New makes a cluster. It is complete: each pod is ready.
func New(s Shape, seed uint64) *Cluster {
	c := &Cluster{
		rng:   rand.New(rand.NewPCG(seed, 1)), //nolint:gosec // what is random here is to be repeated
		epoch: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
	}
	sizes := c.sizes(s)
	total := 0
	for _, n := range sizes {
		total += n
	}
	c.nodes = max(3, total/podsPerNode)
	ports := nodePorts{}
	for i, n := range sizes {
		svc := c.newService(i, s.Mixed, &ports)
		c.services = append(c.services, svc)
		for range n {
			p := c.newPod()
			p.ready = true
			c.add(svc, p)
		}
		if n == 0 {
			c.empty(svc)
		}
	}
	c.choose()
	return c
}

// sizes are the numbers of endpoints of each Service.
func (c *Cluster) sizes(s Shape) []int {
	sizes := make([]int, s.Services)
	for i := range sizes {
		if sizes[i] = s.Endpoints; s.Mixed {
			sizes[i] = c.size(float64(i) / float64(s.Services))
		}
	}
	c.rng.Shuffle(len(sizes), func(i, j int) { sizes[i], sizes[j] = sizes[j], sizes[i] })
	return sizes
}

// size is the number of endpoints of a Service that is larger than all but a share of the
// others.
func (c *Cluster) size(share float64) int {
	between := func(least, most int) int { return least + c.rng.IntN(most-least+1) }
	switch {
	case share < 0.0006:
		return between(2000, 4000)
	case share < 0.01:
		return between(200, 800)
	case share < 0.1:
		return between(20, 100)
	case share < 0.45:
		return between(3, 20)
	case share < 0.92:
		return between(1, 2)
	}
	return 0
}

// choose tells the Services that Replace changes from those that Churn does.
func (c *Cluster) choose() {
	const mostProbes = 500
	want := min(mostProbes, max(1, len(c.services)/10))
	for _, i := range c.rng.Perm(len(c.services)) {
		switch s := c.services[i]; {
		case len(s.pods) == 0:
		case len(c.probes) < want && s.plain():
			c.probes = append(c.probes, s)
		default:
			c.restless = append(c.restless, s)
		}
	}
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
			for f := range families {
				for _, sl := range s.slices[f] {
					if !yield(c.slice(s, f, sl)) {
						return
					}
				}
			}
		}
	}
}

// Size is how large a cluster is.
type Size struct{ Services, Slices, Endpoints int }

// Size counts the present objects, also those that no proxy reads, and an endpoint of two families
// twice.
func (c *Cluster) Size() Size {
	size := Size{Services: len(c.services)}
	for _, s := range c.services {
		for f := range families {
			size.Slices += len(s.slices[f])
			for _, sl := range s.slices[f] {
				size.Endpoints += len(sl.pods)
			}
		}
	}
	return size
}
