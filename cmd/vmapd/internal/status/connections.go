package status

import (
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/model"
)

// Counts are numbers of new connections by service port. nil: they are not counted.
type Counts map[CountKey]uint64

// CountKey names a service port in one family.
type CountKey struct {
	Name   model.ServicePortName
	Family model.Family
}

func (c Counts) of(sp *model.ServicePort) *uint64 {
	if n, ok := c[CountKey{sp.Name, sp.Family}]; ok {
		return &n
	}
	return nil
}

// Connections is the answer about connections.
type Connections struct {
	Items []Connection `json:"items"`
	// Counted: the daemon counts new connections (--service-counters, or IPVS).
	Counted bool `json:"counted"`
	// Tracked: entries of connection tracking were counted.
	Tracked bool `json:"tracked"`
	// Note is the reason for which something is missing.
	Note string `json:"note,omitempty"`
}

// Connection has the numbers of connections to a service port in one family.
type Connection struct {
	PortID
	// New is the number of new connections since counting began, refused ones included.
	New *uint64 `json:"new,omitempty"`
	// Tracked is the number of entries in connection tracking: connections that are open, and those that ended a
	// short while ago.
	Tracked *int `json:"tracked,omitempty"`
	// Endpoints have these entries, if one Service was asked for.
	Endpoints []Tracked `json:"endpoints,omitempty"`
}

// Tracked has the entries of connection tracking of one endpoint.
type Tracked struct {
	Endpoint netip.AddrPort `json:"endpoint"`
	Tracked  int            `json:"tracked"`
	// Gone: it gets no new connections.
	Gone bool `json:"gone,omitempty"`
}

// Flow is an entry of connection tracking whose destination was translated.
type Flow struct {
	To model.VIP      // the original destination
	At netip.AddrPort // the endpoint
}

// Flows counts the flows of service ports.
type Flows struct {
	ports  []*model.ServicePort
	byVIP  map[model.VIP]*model.ServicePort
	detail bool // by endpoint
	counts map[flowKey]int
}

type flowKey struct {
	port     *model.ServicePort
	endpoint netip.AddrPort // invalid: any
}

// Flows begins to count flows of the service ports that a filter chooses: by endpoint, if it names a Service.
func (v *View) Flows(filter Filter) *Flows {
	t := &Flows{ports: v.Ports(filter), byVIP: map[model.VIP]*model.ServicePort{}, detail: filter.Name != "", counts: map[flowKey]int{}}
	for _, sp := range t.ports {
		for _, fe := range sp.Frontends {
			t.byVIP[fe.VIP] = sp
		}
	}
	return t
}

// Ports yields the protocols and ports of the frontends, each once.
func (t *Flows) Ports(f model.Family) []model.VIP {
	var list []model.VIP
	for vip := range t.byVIP {
		if model.FamilyOf(vip.Addr) != f {
			continue
		}
		vip.Addr = f.Unspecified()
		if !slices.Contains(list, vip) {
			list = append(list, vip)
		}
	}
	return list
}

// Add counts a flow, unless it is of another Service.
func (t *Flows) Add(flow Flow) {
	sp := t.byVIP[flow.To]
	if sp == nil { // a node port has no address
		flow.To.Addr = model.FamilyOf(flow.To.Addr).Unspecified()
		if sp = t.byVIP[flow.To]; sp == nil {
			return
		}
	}
	k := flowKey{port: sp}
	if t.detail {
		k.endpoint = flow.At
	}
	t.counts[k]++
}

// Connections returns the numbers. tracked reports whether all flows were added; if not, note has the reason.
func (t *Flows) Connections(counts Counts, tracked bool, note string) Connections {
	out := Connections{Items: make([]Connection, 0, len(t.ports)), Counted: counts != nil, Tracked: tracked, Note: note}
	for _, sp := range t.ports {
		c := Connection{PortID: idOf(sp), New: counts.of(sp)}
		if tracked {
			n := t.counts[flowKey{port: sp}]
			if t.detail {
				c.Endpoints = t.endpoints(sp)
				for _, e := range c.Endpoints {
					n += e.Tracked
				}
			}
			c.Tracked = &n
		}
		out.Items = append(out.Items, c)
	}
	return out
}

// endpoints returns the endpoints of a service port, and further ones that still have flows, sorted.
func (t *Flows) endpoints(sp *model.ServicePort) []Tracked {
	var list []Tracked
	serves := map[netip.AddrPort]bool{}
	for _, e := range sp.Endpoints {
		serves[e.Addr] = true
		list = append(list, Tracked{Endpoint: e.Addr, Tracked: t.counts[flowKey{sp, e.Addr}]})
	}
	for k, n := range t.counts {
		if k.port == sp && !serves[k.endpoint] {
			list = append(list, Tracked{k.endpoint, n, true})
		}
	}
	slices.SortFunc(list, func(a, b Tracked) int { return a.Endpoint.Compare(b.Endpoint) })
	return list
}
