package modeltest

import (
	"encoding/binary"
	"fmt"
	"iter"
	"net/netip"

	"github.com/vmapd/vmapd/model"
)

// maxSlice is the number of endpoints that the EndpointSlice controller puts into one slice.
const maxSlice = 100

// nodes is the number of nodes of a generated cluster: one of so many endpoints is local.
const nodes = 100

// Cluster yields a cluster for benchmarks: IPv4 Services with one TCP port and the given
// number of endpoints, each Service before its slices. The cluster IPs are consecutive
// from 172.30.0.1 on, the pods from 10.0.0.2 on; no pod serves two Services.
func Cluster(services, endpointsPer int) iter.Seq[Object] {
	return func(yield func(Object) bool) {
		if !yield(OurNode()) || !yield(NewServiceCIDR("kubernetes", "172.30.0.0/15")) {
			return
		}
		for i := range services {
			if !yield(ClusterService(i)) {
				return
			}
			for first := 0; first < endpointsPer; first += maxSlice {
				if !yield(ClusterSlice(i, endpointsPer, first/maxSlice)) {
					return
				}
			}
		}
	}
}

// Feed sets all objects.
func Feed(b *model.Builder, objects iter.Seq[Object]) {
	for o := range objects {
		o.Set(b)
	}
}

// ClusterService returns the i-th Service of Cluster.
func ClusterService(i int) Service {
	return NewService(fmt.Sprintf("ns-%d/service-%d", i%100, i)).
		CreatedAt(i).
		On(addrAt("172.30.0.1", i)).
		TCP("http", 80)
}

// ClusterSlice returns the n-th slice of the i-th Service of Cluster.
func ClusterSlice(i, endpointsPer, n int) Slice {
	name := ClusterService(i).NamespacedName
	s := NewSlice(fmt.Sprintf("%v-%d", name, n), name.Name).TCP("http", 8080)
	first, end := n*maxSlice, min((n+1)*maxSlice, endpointsPer)
	s.Endpoints = make([]model.SliceEndpoint, 0, end-first)
	for k := first; k < end; k++ {
		pod := i*endpointsPer + k
		s.Endpoints = append(s.Endpoints, model.SliceEndpoint{
			Addresses: []string{addrAt("10.0.0.2", pod)},
			NodeName:  fmt.Sprintf("node-%d", pod%nodes+1),
		})
	}
	return s
}

// addrAt returns the n-th address after an IPv4 address.
func addrAt(first string, n int) string {
	b := netip.MustParseAddr(first).As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(n))
	return netip.AddrFrom4(b).String()
}
