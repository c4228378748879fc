package model

import (
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// service is a checked Service, without the fields that can't be programmed. There are tens
// of thousands of them, so the fields that few have are apart.
type service struct {
	record  *record
	uid     string
	created int64 // seconds since 1970: the API has no parts of a second
	ports   []servicePort
	addrs   []serviceAddr // by kind, as frontends stand in a ServicePort
	rare    *rareParts    // not nil, but &noRareParts for most

	internalLocal, externalLocal bool // the traffic policies

	healthCheckNodePort uint16 // 0 means none
}

type servicePort struct {
	name     string
	protocol Protocol
	port     uint16
	nodePort uint16 // 0 means none
}

// portKey identifies a port within a Service.
type portKey struct {
	name     string
	protocol Protocol
}

func (p servicePort) key() portKey { return portKey{p.name, p.protocol} }

type serviceAddr struct {
	addr    netip.Addr
	kind    FrontendKind // up to ExternalIP
	refused bool         // see addrScope.refusal
}

// addrScope is all that refusals depend on.
type addrScope struct {
	allowed      ExternalAddresses
	serviceCIDRs []netip.Prefix
	nodeAddrs    []netip.Addr // only with NoNodeAddresses
}

// refusal returns the reason for which an address is not served; "": it is.
func (scope *addrScope) refusal(a serviceAddr) string {
	allowed := scope.allowed
	switch {
	case a.kind == ClusterIP:
	case a.kind == ExternalIP && allowed.NoExternalIPs:
		return "external IPs are disabled (feature gate AllowServiceExternalIPs)"
	case a.kind == ExternalIP && len(allowed.Ranges) > 0 && !contains(allowed.Ranges, a.addr):
		return "it is in none of the allowed ranges of external IPs"
	case !allowed.InServiceCIDRs && contains(scope.serviceCIDRs, a.addr):
		return "it is in a ServiceCIDR, a range of cluster IPs"
	case slices.Contains(scope.nodeAddrs, a.addr):
		return "it is an address of this node, where these are not allowed"
	}
	return ""
}

// rareParts are the fields that few Services have.
type rareParts struct {
	annotated
	problems problemList
	affinity time.Duration
	sources  [len(Families)]sources
}

// sources are the sources that may connect to load-balancer addresses.
type sources struct {
	restricted bool // to ranges
	ranges     []netip.Prefix
}

// noRareParts is shared by all Services without any. It is never written.
var noRareParts rareParts //nolint:gochecknoglobals // its address is what matters

// writable returns a Service's rare parts for writing.
func (s *service) writable() *rareParts {
	if s.rare == &noRareParts {
		s.rare = new(rareParts)
	}
	return s.rare
}

// record has the objects of one Service's name.
type record struct {
	name    NamespacedName
	service *service         // nil: there is none, or this proxy does not serve it
	was     *service         // as the last snapshot has it
	slices  []*endpointSlice // sorted by name
	// unserved are the endpoints of was that are beyond its budget.
	unserved [len(Families)]int
	dirty    bool   // it is in Builder.dirty
	known    bool   // there is a Service, served or not
	version  uint64 // of that
}

func (r *record) object() ObjectRef { return ObjectRef{"Service", r.name} }

// find returns the index that the slice of a name has or would have.
func (r *record) find(name string) (int, bool) {
	return slices.BinarySearchFunc(r.slices, name, func(s *endpointSlice, name string) int {
		return strings.Compare(s.name, name)
	})
}

// clusterIP returns the cluster IP of a family, or the zero Addr: a Service without one is
// not in the family. The Service may be nil.
func (s *service) clusterIP(f Family) netip.Addr {
	if s != nil {
		for _, a := range s.addrs {
			if a.kind != ClusterIP {
				break
			}
			if FamilyOf(a.addr) == f {
				return a.addr
			}
		}
	}
	return netip.Addr{}
}

func (s *service) portName(p servicePort) ServicePortName {
	return ServicePortName{s.record.name, p.name, p.protocol}
}

// problems returns the list to which problems are added.
func (s *service) problems() *problemList {
	list := &s.writable().problems
	list.object = s.record.object()
	return list
}

// wants yields the VIPs of all frontends that a Service asks for, before any decision.
func (s *service) wants() iter.Seq[VIP] {
	return func(yield func(VIP) bool) {
		for _, f := range Families {
			for _, p := range s.ports {
				for fe := range s.frontends(f, p, len(s.addrs)) {
					if !yield(fe.VIP) {
						return
					}
				}
			}
		}
	}
}

// frontends yields the frontends that a port asks for in a family, cluster IP first, on a number of addresses at most.
func (s *service) frontends(f Family, p servicePort, most int) iter.Seq[Frontend] {
	return func(yield func(Frontend) bool) {
		if !s.clusterIP(f).IsValid() {
			return // contract of the API: it is not in this family
		}
		for _, a := range s.addrs {
			if FamilyOf(a.addr) != f || a.refused {
				continue
			}
			if most == 0 {
				break
			}
			most--
			if !yield(Frontend{Kind: a.kind, VIP: VIP{a.addr, p.protocol, p.port}}) {
				return
			}
		}
		if p.nodePort != 0 {
			yield(Frontend{Kind: NodePort, VIP: VIP{f.Unspecified(), p.protocol, p.nodePort}})
		}
	}
}
