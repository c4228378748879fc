package model

import (
	"net/netip"
	"slices"
)

// addrScope is all that refusals depend on.
type addrScope struct {
	allowed      ExternalAddresses
	serviceCIDRs []netip.Prefix
	nodeAddrs    []netip.Addr // only with NoNodeAddresses
}

// refusal returns the reason for which an address is not served.
func (scope *addrScope) refusal(a serviceAddr) refusal {
	allowed := scope.allowed
	switch {
	case a.kind == ClusterIP:
	case a.kind == ExternalIP && allowed.NoExternalIPs:
		return refusedExternalIPs
	case a.kind == ExternalIP && len(allowed.Ranges) > 0 && !contains(allowed.Ranges, a.addr):
		return refusedRange
	case !allowed.InServiceCIDRs && contains(scope.serviceCIDRs, a.addr):
		return refusedServiceCIDR
	case slices.Contains(scope.nodeAddrs, a.addr):
		return refusedNodeAddress
	}
	return notRefused
}

// refuse sets the refusals of a Service's addresses, and reports whether one changes. No claim
// of the Service may stand meanwhile.
func (s *service) refuse(scope *addrScope, set bool) (changes bool) {
	for i, a := range s.addrs {
		if r := scope.refusal(a); r != a.refused {
			changes = true
			if set {
				s.addrs[i].refused = r
			}
		}
	}
	return changes
}

// refusals adds a problem for each address that is refused.
func (s *service) refusals(problems *problemList) {
	for _, a := range s.addrs {
		if a.refused != notRefused {
			field := "spec.externalIPs"
			if a.kind == LoadBalancerIP {
				field = "status.loadBalancer.ingress"
			}
			problems.add(field, "%v is not served: %v", a.addr, a.refused)
		}
	}
}
