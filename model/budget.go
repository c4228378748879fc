package model

import "cmp"

// Budgets limit the cost of one Service, which shares the process and the kernel's tables with all others. A field that
// is 0 has its default. Backends have others for some of them, and tests have small ones.
//
// A Service over a budget is served in part. Which part depends on the Service and its slices
// alone: with the same budgets, it is the same on every node, with every backend, and regardless of the
// order in which objects arrive. Neither the readiness nor the place of endpoints matters.
type Budgets struct {
	// Ports is the number of ports of a Service with session affinity that are served, in the order of spec.ports: each
	// has maps and chains of its own. Default: 1000. Other Services' ports are elements of maps: Entries limits them.
	Ports int
	// Endpoints is the number of endpoints of a family. EndpointSlices are taken whole, in the
	// order of their names, and one without endpoints uses one. Default: 20000, four times
	// the pods that one Service has in the largest clusters that are tested.
	Endpoints int
	// Entries is the number of frontends of a family times the number of endpoints, rounded up by an eighth at most, so
	// that a new endpoint seldom changes the part that is served. A Service with both families has half of the budget for
	// each. The slots of a lookup table are counted in place of the endpoints, and those of a frontend with external
	// traffic policy Local twice; over the budget, tables are smaller by quarters, and at last Random chooses. Cluster IPs
	// and node ports come first, then addresses of load balancers, then external IPs, each in their order; a frontend of
	// these uses three entries at least. An address is served on all ports or on none; the first port's cluster IP and
	// node port are always served. Default: 100000, enough for 5,000 endpoints of four ports with a cluster IP, a node
	// port and two other addresses each, or for 3,000 ports of three endpoints with ten external IPs.
	//
	// Source ranges times frontends of the load balancer are a part of it, of a constant size: see parseSourceRanges.
	Entries int
	// Problems is the number of problems of an object, of any kind, that are reported one by one. Default: 10.
	Problems int
}

// WithDefaults fills in the fields that are 0, with the defaults of nftables.
func (b Budgets) WithDefaults() Budgets {
	return Budgets{
		Ports: cmp.Or(b.Ports, 1000), Endpoints: cmp.Or(b.Endpoints, 20_000),
		Entries: cmp.Or(b.Entries, 100_000), Problems: cmp.Or(b.Problems, 10),
	}
}

// Budget names a field of Budgets, in a Problem.
type Budget string

// The budgets.
const (
	PortsBudget     Budget = "ports"
	EndpointsBudget Budget = "endpoints"
	EntriesBudget   Budget = "entries"
	ProblemsBudget  Budget = "problems"
)

// AllBudgets are all budgets.
var AllBudgets = [...]Budget{PortsBudget, EndpointsBudget, EntriesBudget, ProblemsBudget}
