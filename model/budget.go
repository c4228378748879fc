package model

import "cmp"

// Budgets limit the cost of one Service, which shares the process and the kernel's tables with all others. A field that
// is 0 has its default. Backends have others for some of them, and tests have small ones.
//
// A Service over a budget is served in part. Which part depends on the Service and its slices
// alone: with the same budgets, it is the same on every node, with every backend, and regardless of the
// order in which objects arrive. Neither the readiness nor the place of endpoints matters.
type Budgets struct {
	// Ports is the number of ports that are served, in the order of spec.ports. Default: 1000.
	// The API has no limit but the size of an object, in which 10,000 have room.
	Ports int
	// Frontends is the number of addresses times the number of ports. Cluster IPs and node ports come first, then
	// addresses of load balancers, then external IPs, each in their order. Default: 10000, enough for two ports of a
	// Service with a load balancer at every node of a cluster with 5,000.
	Frontends int
	// Endpoints is the number of endpoints of a family. EndpointSlices are taken whole, in the
	// order of their names, and one without endpoints uses one. Default: 20000, four times
	// the pods that one Service has in the largest clusters that are tested.
	Endpoints int
	// Entries is the number of frontends of a family times the number of endpoints, rounded up by an eighth at most, so
	// that a new endpoint seldom changes the part that is served. A Service with both families has half of the budget for
	// each. The slots of a lookup table are counted in place of the endpoints, and those of a frontend with external
	// traffic policy Local twice; over the budget, tables are smaller by quarters, and at last Random chooses. The order
	// is that of Frontends. An address is served on all ports or on none; the first port's cluster IP and node port are
	// always served. Default: 65536, enough for 5,000 endpoints of three ports with a cluster IP, a node port and two
	// other addresses each.
	Entries int
	// SourceRanges is the number of source ranges of a family times the number of frontends with addresses of load
	// balancers. Over it, all connections to these are dropped: some of the ranges would refuse some of the clients, and
	// no range would admit everybody. Default: 4000; the kernel's time for them grows with their square.
	SourceRanges int
	// Counters is the number of ports with counted connections, in the order of spec.ports. Default: 100.
	Counters int
	// Problems is the number of problems of an object, of any kind, that are reported one by one. Default: 10.
	Problems int
}

// WithDefaults fills in the fields that are 0, with the defaults of nftables.
func (b Budgets) WithDefaults() Budgets {
	return Budgets{
		Ports: cmp.Or(b.Ports, 1000), Frontends: cmp.Or(b.Frontends, 10_000), Endpoints: cmp.Or(b.Endpoints, 20_000),
		Entries: cmp.Or(b.Entries, 1<<16), SourceRanges: cmp.Or(b.SourceRanges, 4000),
		Counters: cmp.Or(b.Counters, 100), Problems: cmp.Or(b.Problems, 10),
	}
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
