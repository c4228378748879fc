package model

import (
	"net/netip"
	"reflect"
	"slices"
)

// ExternalAddresses restricts the addresses that Services may have besides their cluster IPs:
// those of spec.externalIPs, which a tenant chooses freely (CVE-2020-8554), and those of
// status.loadBalancer. The zero value serves what kube-proxy
// serves, except addresses in a range of cluster IPs.
type ExternalAddresses struct {
	// NoExternalIPs: spec.externalIPs are not served, as with kube-proxy's gate
	// AllowServiceExternalIPs=false (KEP-5707).
	NoExternalIPs bool
	// Ranges, if there are any: spec.externalIPs outside of them are not served.
	Ranges []netip.Prefix
	// InServiceCIDRs: addresses in a ServiceCIDR are served. Otherwise they are not, since the
	// API server may give each of them to another Service.
	InServiceCIDRs bool
	// NoNodeAddresses: addresses of this node are not served. Otherwise they are: clusters
	// without a load balancer, and k3s' ServiceLB, depend on it.
	NoNodeAddresses bool
}

// addrScope is all that refusals depend on.
type addrScope struct {
	allowed      ExternalAddresses
	serviceCIDRs []netip.Prefix
	nodeAddrs    []netip.Addr // only with NoNodeAddresses
}

// setAddrScope decides again which addresses are refused, if that depends on a change.
func (b *Builder) setAddrScope(now addrScope) {
	if reflect.DeepEqual(b.addrScope, now) {
		return
	}
	b.addrScope = now
	for _, r := range b.records {
		if s := r.service; s != nil && b.refuse(s, false) {
			b.withdraw(s)
			b.claim(s)
			b.markDirty(r)
		}
	}
}

// refusal is a reason for which an address of a Service is not served.
type refusal uint8

const (
	notRefused refusal = iota
	refusedExternalIPs
	refusedRange
	refusedServiceCIDR
	refusedNodeAddress
)

func (r refusal) String() string {
	return [...]string{
		"",
		"external IPs are disabled (feature gate AllowServiceExternalIPs)",
		"it is in none of the allowed ranges of external IPs",
		"it is in a ServiceCIDR, a range of cluster IPs",
		"it is an address of this node, where these are not allowed",
	}[r]
}

// refusal returns the reason for which an address is not served.
func (b *Builder) refusal(a serviceAddr) refusal {
	allowed := b.addrScope.allowed
	switch {
	case a.kind == ClusterIP:
	case a.kind == ExternalIP && allowed.NoExternalIPs:
		return refusedExternalIPs
	case a.kind == ExternalIP && len(allowed.Ranges) > 0 && !contains(allowed.Ranges, a.addr):
		return refusedRange
	case !allowed.InServiceCIDRs && contains(b.addrScope.serviceCIDRs, a.addr):
		return refusedServiceCIDR
	case slices.Contains(b.addrScope.nodeAddrs, a.addr):
		return refusedNodeAddress
	}
	return notRefused
}

// refuse sets the refusals of a Service's addresses, and reports whether one changes. No claim
// of the Service may stand meanwhile.
func (b *Builder) refuse(s *service, set bool) (changes bool) {
	for i, a := range s.addrs {
		if r := b.refusal(a); r != a.refused {
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

// Refused returns the reason for which an address of a Service is not served, or "".
func (b *Builder) Refused(name NamespacedName, addr netip.Addr) string {
	if r := b.records[name]; r != nil && r.service != nil {
		for _, a := range r.service.addrs {
			if a.addr == addr {
				return a.refused.String()
			}
		}
	}
	return ""
}
