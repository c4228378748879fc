package model

import (
	"net/netip"
	"slices"
)

// candidate is an endpoint that a slice offers for a service port.
type candidate struct {
	addr netip.AddrPort
	conditions
}

// conditions are an endpoint's, as bits.
type conditions uint8

const (
	ready conditions = 1 << iota
	serving
	terminating
	local
)

func (c conditions) has(want conditions) bool { return c&want == want }

// chooseEndpoints says who answers for a service port: all ready endpoints or, if
// there are none, those that are terminating but still serving, so that restarting
// the last pod does not refuse connections that it could still answer (KEP-1669).
//
// candidates is sorted in place. The same address may be in several slices while
// they are being rebalanced: it counts once, and as local if any copy is.
func chooseEndpoints(candidates []candidate) []Endpoint {
	want := serving | terminating
	count := 0
	for _, c := range candidates {
		if c.has(ready) && want != ready {
			want, count = ready, 0
		}
		if c.has(want) {
			count++
		}
	}
	if count == 0 {
		return nil
	}
	compare := func(a, b candidate) int { return a.addr.Compare(b.addr) }
	if !slices.IsSortedFunc(candidates, compare) {
		slices.SortFunc(candidates, compare)
	}
	endpoints := make([]Endpoint, 0, count)
	for _, c := range candidates {
		if !c.has(want) {
			continue
		}
		if n := len(endpoints); n > 0 && endpoints[n-1].Addr == c.addr {
			endpoints[n-1].Local = endpoints[n-1].Local || c.has(local)
			continue
		}
		endpoints = append(endpoints, Endpoint{Addr: c.addr, Local: c.has(local)})
	}
	return endpoints
}
