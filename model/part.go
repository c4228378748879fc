package model

import (
	"math/bits"
)

// part is the part of a Service that is served in one family.
type part struct {
	ports int // of service.ports, from the first one
	addrs int // of the addresses of the family, from the first one, which is the cluster IP
	// unserved is the number of endpoints beyond Budgets.Endpoints.
	unserved int
	// algorithm chooses the endpoints, and tableSize is that of its lookup tables, if it has any.
	algorithm Algorithm
	tableSize int
}

// part returns the part of a Service that its entries allow. It adds a problem for each budget
// that makes it less than the whole.
func (s *service) part(f Family, c *Config, problems *problemList) part {
	budgets := c.Budgets
	endpoints, end := s.record.offered(f, budgets.Endpoints)
	beyond := s.record.slices[end:]
	if len(beyond) > 0 {
		problems.over(EndpointsBudget, "",
			"more than %d %v endpoints: those of EndpointSlice %s, and of further ones by name, are not served",
			budgets.Endpoints, f, beyond[0].name)
	}
	each := max(1, roundUp(endpoints))
	limit := budgets.Entries
	if s.clusterIP(IPv4).IsValid() && s.clusterIP(IPv6).IsValid() {
		limit /= len(Families)
	}
	entries := limit
	served := part{algorithm: c.Algorithm, tableSize: c.TableSize}
	for _, s := range beyond {
		if s.family == f {
			served.unserved += s.len()
		}
	}
	if a := s.rare.algorithm; a != nil {
		served.algorithm = *a
	}
	slots := func() int { return s.tables(f) * tableSize(served.tableSize, endpoints) }
	for served.algorithm.HasTable() && slots() > limit && served.tableSize > 4*MinTableSize {
		served.tableSize /= 4
	}
	if a := served.algorithm; a.HasTable() && slots() > limit {
		problems.over(EntriesBudget, "", "more than %d entries (%v lookup tables times slots): %v chooses, not %v",
			limit, f, Random, a)
		served.algorithm = Random
	}
	for _, p := range s.ports {
		cost := each
		if p.nodePort != 0 {
			cost *= 2
		}
		if cost > entries && served.ports > 0 {
			problems.over(EntriesBudget, "spec.ports",
				"more than %d entries (%v frontends times endpoints): port %q and those after it are not served",
				limit, f, p.name)
			break
		}
		entries -= cost
		served.ports++
	}
	most := 1 + max(0, entries)/max(1, max(frontendEntries, each)*served.ports)
	for _, a := range s.addrs {
		if FamilyOf(a.addr) != f || a.refused {
			continue
		}
		if served.addrs == most {
			problems.over(EntriesBudget, a.kind.field(),
				"more than %d entries (%v frontends times endpoints): %v %v and those after it are not served",
				limit, f, a.kind, a.addr)
			break
		}
		served.addrs++
	}
	return served
}

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
		if FamilyOf(a.addr) == f && !a.refused && a.kind != ClusterIP {
			n += external * len(s.ports)
		}
	}
	return n
}

// offered returns the number of endpoints of a family that the budget allows, and the index in slices from which it
// does not: there is the first one that is too much.
func (r *record) offered(f Family, most int) (endpoints, end int) {
	for i, s := range r.slices {
		if s.family != f {
			continue
		}
		if endpoints+s.weight() > most {
			return endpoints, i
		}
		endpoints += s.weight()
	}
	return endpoints, len(r.slices)
}

// weight is what a slice uses of the budget of endpoints.
func (s *endpointSlice) weight() int { return max(1, s.len()) }

// roundUp rounds up to a number with four significant bits.
func roundUp(n int) int {
	unit := 1 << max(0, bits.Len(uint(n))-4)
	return (n + unit - 1) / unit * unit
}
