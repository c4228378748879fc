package model

import (
	"cmp"
	"math/bits"
	"slices"
)

// Budgets limit the cost of one Service, which shares the process and the kernel's tables with
// all others. A field that is 0 has its default.
//
// A Service over a budget is served in part. Which part depends on the Service and its slices
// alone: with the same budgets, it is the same on every node, with every backend, and regardless of the
// order in which objects arrive. Neither the readiness nor the place of endpoints matters.
type Budgets struct {
	// Ports is the number of ports that are served, in the order of spec.ports. Default: 1000.
	// The API has no limit but the size of an object, in which 10,000 have room.
	Ports int
	// Frontends is the number of addresses times the number of ports. Cluster IPs and node
	// ports come first, then addresses of load balancers, then external IPs, each in their
	// order. Default: 10000, enough for two ports of a Service whose load balancer is every
	// node of a cluster with 5,000.
	Frontends int
	// Endpoints is the number of endpoints of a family. EndpointSlices are taken whole, in the
	// order of their names, and one without endpoints counts as one. Default: 20000, four times
	// the pods that one Service has in the largest clusters that are tested.
	Endpoints int
	// Entries is the number of frontends of a family times the number of endpoints. This is
	// rounded up by an eighth at most, so that a new endpoint seldom changes the part that is
	// served. A Service with both families has half of the budget for each. Where a lookup table chooses,
	// its slots count in place of the endpoints, and those of a frontend with external traffic policy
	// Local twice; over the budget, a Service has no tables, but Random chooses. The order is that
	// of Frontends. An address is served on all ports or on none. The first port's cluster IP
	// and node port are always served. Default: 65536, enough for 5,000 endpoints of three ports
	// with a cluster IP, a node port and two other addresses each; a Service that gets there in
	// steps takes 90 MB of memory while they are programmed.
	Entries int
	// SourceRanges is the number of source ranges of a family times the number of frontends
	// with addresses of load balancers. Over it, all connections to these are dropped: some of
	// the ranges would refuse some of the clients, and no range would admit everybody.
	// Default: 4000; the kernel's time for them grows with their square.
	SourceRanges int
	// Counters is the number of ports whose connections are counted, in the order of
	// spec.ports. Default: 100.
	Counters int
	// Problems is the number of problems of an object, of any kind, that are reported one by
	// one. Default: 10.
	Problems int
}

// DefaultBudgets returns the defaults, which are those with nftables.
func DefaultBudgets() Budgets {
	return Budgets{
		Ports: 1000, Frontends: 10_000, Endpoints: 20_000, Entries: 1 << 16, SourceRanges: 4000, Counters: 100, Problems: 10,
	}
}

// withDefaults fills in the fields that are 0.
func (b Budgets) withDefaults() Budgets {
	d := DefaultBudgets()
	for field, value := range map[*int]int{
		&b.Ports: d.Ports, &b.Frontends: d.Frontends, &b.Endpoints: d.Endpoints, &b.Entries: d.Entries,
		&b.SourceRanges: d.SourceRanges, &b.Counters: d.Counters, &b.Problems: d.Problems,
	} {
		if *field == 0 {
			*field = value
		}
	}
	return b
}

// Budget names a field of Budgets, in a Problem.
type Budget string

// The budgets.
const (
	PortsBudget        Budget = "ports"
	FrontendsBudget    Budget = "frontends"
	EndpointsBudget    Budget = "endpoints"
	EntriesBudget      Budget = "entries"
	SourceRangesBudget Budget = "sourceRanges"
	CountersBudget     Budget = "counters"
	ProblemsBudget     Budget = "problems"
)

// AllBudgets are all budgets.
var AllBudgets = [...]Budget{
	PortsBudget, FrontendsBudget, EndpointsBudget, EntriesBudget, SourceRangesBudget, CountersBudget, ProblemsBudget,
}

// part is the part of a Service that is served in one family.
type part struct {
	ports int // of service.ports, from the first one
	addrs int // of the addresses of the family, from the first one, which is the cluster IP
	// unserved is the number of endpoints beyond Budgets.Endpoints.
	unserved int
	// algorithm chooses the endpoints.
	algorithm Algorithm
}

// part returns the part of a Service that its entries allow. It adds a problem for each budget
// that makes it less than the whole.
func (b *Builder) part(s *service, f Family, problems *problemList) part {
	budgets := b.config.Budgets
	endpoints, left := s.record.offered(f, budgets.Endpoints)
	if left != nil {
		problems.over(EndpointsBudget, "", "more than %d %v endpoints: those of EndpointSlice %s, and of further ones by name, are not served",
			budgets.Endpoints, f, left.name)
	}
	each := max(1, roundUp(endpoints))
	limit := budgets.Entries
	if s.clusterIP(IPv4).IsValid() && s.clusterIP(IPv6).IsValid() {
		limit /= len(Families)
	}
	entries := limit
	served := part{unserved: s.record.unserved(f, left), algorithm: b.algorithm(s)}
	if a := served.algorithm; a.HasTable() && s.tables(f)*tableSize(b.tableSize(), endpoints) > limit {
		problems.over(EntriesBudget, "", "more than %d entries (%v lookup tables times slots): %v chooses, not %v", limit, f, Random, a)
		served.algorithm = Random
	}
	for _, p := range s.ports {
		cost := each
		if p.nodePort != 0 {
			cost *= 2
		}
		if cost > entries && served.ports > 0 {
			problems.over(EntriesBudget, "spec.ports", "more than %d entries (%v frontends times endpoints): port %q and those after it are not served",
				limit, f, p.name)
			break
		}
		entries -= cost
		served.ports++
	}
	most := 1 + max(0, entries)/max(1, each*served.ports)
	for _, a := range s.addrs {
		if FamilyOf(a.addr) != f || a.refused != notRefused {
			continue
		}
		if served.addrs == most {
			problems.over(EntriesBudget, a.kind.field(), "more than %d entries (%v frontends times endpoints): %v %v and those after it are not served",
				limit, f, a.kind, a.addr)
			break
		}
		served.addrs++
	}
	return served
}

// algorithm returns the one that a Service asks for.
func (b *Builder) algorithm(s *service) Algorithm {
	if a := s.rare.algorithm; a != nil {
		return *a
	}
	return b.config.Algorithm
}

// tableSize returns the configured size of lookup tables.
func (b *Builder) tableSize() int { return cmp.Or(b.config.TableSize, DefaultTableSize) }

// tables returns the number of lookup tables that a Service's frontends can have in a family.
func (s *service) tables(f Family) int {
	external := 1
	if s.externalLocal {
		external = len(TrafficPolicies)
	}
	n := 0
	for _, p := range s.ports {
		if n++; p.nodePort != 0 {
			n += external
		}
	}
	for _, a := range s.addrs {
		// The first is the cluster IP, which is counted already.
		if FamilyOf(a.addr) == f && a.refused == notRefused && a.kind != ClusterIP {
			n += external * len(s.ports)
		}
	}
	return n
}

// offered returns the number of endpoints of a family that the budget allows, and the first
// slice that it does not.
func (r *record) offered(f Family, most int) (endpoints int, left *endpointSlice) {
	for _, s := range r.slices {
		if s.family != f {
			continue
		}
		if endpoints+s.weight() > most {
			return endpoints, s
		}
		endpoints += s.weight()
	}
	return endpoints, nil
}

// unserved returns the number of endpoints of a family from a slice on, which may be nil.
func (r *record) unserved(f Family, from *endpointSlice) int {
	n := 0
	if from != nil {
		for _, s := range r.slices[slices.Index(r.slices, from):] {
			if s.family == f {
				n += s.len()
			}
		}
	}
	return n
}

// weight is what a slice counts for the budget of endpoints.
func (s *endpointSlice) weight() int { return max(1, s.len()) }

// roundUp rounds up to a number with four significant bits.
func roundUp(n int) int {
	unit := 1 << max(0, bits.Len(uint(n))-4)
	return (n + unit - 1) / unit * unit
}

// A keySet is a set that is cheap while it has few keys, as it mostly does.
type keySet[K comparable] struct {
	n    int
	few  [8]K
	many map[K]struct{}
}

// add reports whether a key is new.
func (s *keySet[K]) add(k K) bool {
	if s.has(k) {
		return false
	}
	switch {
	case s.n < len(s.few):
		s.few[s.n] = k
		s.n++
	case s.many == nil:
		s.many = map[K]struct{}{k: {}}
	default:
		s.many[k] = struct{}{}
	}
	return true
}

func (s *keySet[K]) has(k K) bool {
	if slices.Contains(s.few[:s.n], k) {
		return true
	}
	_, ok := s.many[k]
	return ok
}
