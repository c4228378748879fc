package status

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
)

// One is the answer about one Service.
type One struct {
	Namespace string   `json:"namespace"`
	Name      string   `json:"name"`
	Ports     []Port   `json:"ports"`
	Problems  []string `json:"problems,omitempty"`
	Notes     []string `json:"notes,omitempty"` // what could not be found out, and why
}

// Port is a service port with all about it.
type Port struct {
	Service
	Addresses []Address  `json:"addresses,omitempty"`
	Backends  []Endpoint `json:"endpointList,omitempty"`
	// Connections is the number of new connections since counting began, Tracked that of entries in connection
	// tracking; nil: they are not counted.
	Connections *uint64 `json:"connections,omitempty"`
	Tracked     *int    `json:"trackedConnections,omitempty"`
	// Rules are the maps and chains that connections meet, each with indented lines below its name.
	Rules []string `json:"rules,omitempty"`
}

// Address is an address, or a node port, of a service port.
type Address struct {
	Kind          string     `json:"kind"`             // for example "cluster IP"
	Address       netip.Addr `json:"address,omitzero"` // none: a node port
	Port          uint16     `json:"port"`
	State         State      `json:"state"`
	TrafficPolicy string     `json:"trafficPolicy"`        // Cluster or Local
	Restricted    bool       `json:"restricted,omitempty"` // by source ranges
}

// Endpoint is an endpoint of a service port.
type Endpoint struct {
	Address netip.AddrPort `json:"address"`
	// Where it is; "": not known.
	Pod        string `json:"pod,omitempty"`
	Node       string `json:"node,omitempty"`
	Zone       string `json:"zone,omitempty"`
	OnThisNode bool   `json:"onThisNode,omitempty"`
	// Share and LocalShare are the shares of new connections: of those to any endpoint, and of those that the policy
	// Local keeps on this node. They are 0 where no connection is treated so.
	Share      float64 `json:"share"`
	LocalShare float64 `json:"localShare,omitempty"`
	Tracked    *int    `json:"trackedConnections,omitempty"`
	State      string  `json:"state"`
}

// Found is what the daemon finds out about a Service beside a View.
type Found struct {
	Places map[netip.Addr][]names.Endpoint // who has an address
	Counts Counts
	// Candidates are the endpoints of a service port, also those that are not used.
	Candidates func(*model.ServicePort) []model.Candidate
	Flows      Flows // nil: connection tracking was not read
	Rules      func(*model.ServicePort) []string
	Notes      []string
}

// One returns all about a Service, one of Names.
func (v *View) One(name model.NamespacedName, found Found) One {
	one := One{Namespace: name.Namespace, Name: name.Name, Ports: []Port{}, Notes: found.Notes}
	filter := Filter{Namespace: name.Namespace, Name: name.Name}
	for _, p := range v.problems(filter)[name] {
		one.Problems = append(one.Problems, reasonOf(p))
	}
	for _, sp := range v.Ports(filter) {
		one.Ports = append(one.Ports, v.port(sp, found))
	}
	return one
}

func (v *View) port(sp *model.ServicePort, found Found) Port {
	tracked := found.Flows[sp]
	p := Port{Service: v.service(sp), Backends: found.endpoints(sp, tracked)}
	for _, fe := range sp.Frontends {
		a := Address{
			Kind: fe.Kind.String(), Port: fe.VIP.Port, State: report.OfAction(fe.Action), Restricted: fe.Restricted,
			TrafficPolicy: [...]string{model.Cluster: "Cluster", model.Local: "Local"}[fe.TrafficPolicy],
		}
		if fe.Kind != model.NodePort {
			a.Address = fe.VIP.Addr
		}
		p.Addresses = append(p.Addresses, a)
	}
	if n, ok := found.Counts[sp]; ok {
		p.Connections = &n
	}
	if tracked != nil {
		p.Tracked = new(int)
		for _, n := range tracked {
			*p.Tracked += n
		}
	}
	if found.Rules != nil {
		p.Rules = found.Rules(sp)
	}
	return p
}

// endpoints returns the endpoints of a service port: those that serve, those that drain, and others of the Service.
func (found *Found) endpoints(sp *model.ServicePort, tracked map[netip.AddrPort]int) (list []Endpoint) {
	has := map[netip.AddrPort]bool{}
	add := func(e Endpoint) {
		if has[e.Address] {
			return
		}
		has[e.Address] = true
		if list := found.Places[e.Address.Addr()]; len(list) > 0 {
			e.Pod, e.Node, e.Zone = list[0].Pod.Name, list[0].NodeName, list[0].Zone
		}
		if n := tracked[e.Address]; tracked != nil {
			e.Tracked = &n
		}
		list = append(list, e)
	}
	all, local := sp.Count(model.Cluster), sp.Count(model.Local)
	for _, e := range sp.Endpoints {
		one := Endpoint{Address: e.Addr, OnThisNode: e.Local, State: "serving"}
		if e.In(model.Cluster) {
			one.Share = 1 / float64(all)
		}
		if e.In(model.Local) {
			one.LocalShare = 1 / float64(local)
		}
		add(one)
	}
	for _, a := range sp.Draining {
		add(Endpoint{Address: a, State: "draining"})
	}
	serving := len(list)
	var candidates []model.Candidate
	if found.Candidates != nil {
		candidates = found.Candidates(sp)
	}
	for _, c := range candidates {
		state := "not used"
		switch {
		case c.Has(model.Terminating):
			state = "terminating"
		case !c.Has(model.Ready):
			state = "not ready"
		}
		add(Endpoint{Address: c.Addr, State: state})
	}
	for a := range tracked {
		add(Endpoint{Address: a, State: "gone"})
	}
	slices.SortFunc(list[serving:], func(a, b Endpoint) int { return a.Address.Compare(b.Address) })
	return list
}

// Tables describes the Service, as kubectl describe does.
func (o *One) Tables(now time.Time) []report.Table {
	tables := []report.Table{o.summary(now), o.addresses(), o.endpoints()}
	for _, p := range o.Ports {
		if len(p.Rules) > 0 {
			title := fmt.Sprintf("Rules of %s %s:", p.Family, p.port())
			tables = append(tables, report.Table{Title: title, Notes: p.Rules})
		}
	}
	return tables
}

func (o *One) summary(now time.Time) report.Table {
	t := report.Table{Notes: o.Notes}
	t.Pair("Service", o.Namespace+"/"+o.Name, "")
	for _, p := range o.Problems {
		t.Pair("Problem", p, report.Warn)
	}
	for _, p := range o.Ports {
		text := p.sentence()
		if !p.Since.IsZero() {
			text += " (since " + report.Age(p.Since, now) + ")"
		}
		t.Pair(p.Family+" "+p.port(), text, p.level())
		if p.Connections != nil {
			t.Pair("Connections", fmt.Sprintf("%d new ones since counting began", *p.Connections), "")
		}
	}
	return t
}

func (o *One) addresses() report.Table {
	t := report.Table{Title: "Addresses:", Columns: []string{"KIND", "ADDRESS", "POLICY", "STATE"}}
	for _, p := range o.Ports {
		for _, a := range p.Addresses {
			address := fmt.Sprintf("*:%d", a.Port)
			if a.Address.IsValid() {
				address = netip.AddrPortFrom(a.Address, a.Port).String()
			}
			cells := []string{a.Kind, address + "/" + p.Protocol, a.TrafficPolicy, string(a.State)}
			t.Rows = append(t.Rows, report.Row{Cells: cells, Level: a.State.Level()})
		}
	}
	return t
}

func (o *One) endpoints() report.Table {
	t := report.Table{Title: "Endpoints:"}
	t.Columns = []string{"ENDPOINT", "POD", "NODE", "ZONE", "SHARE", "LOCAL-SHARE", "TRACKED", "STATE"}
	for _, p := range o.Ports {
		for _, e := range p.Backends {
			node, tracked, level := e.Node, "", report.Warn
			if e.OnThisNode {
				node = strings.TrimSpace(node + " (this node)")
			}
			if e.Tracked != nil {
				tracked = strconv.Itoa(*e.Tracked)
			}
			if e.State == "serving" {
				level = report.OK
			}
			t.Rows = append(t.Rows, report.Row{Level: level, Cells: []string{
				e.Address.String() + "/" + p.Protocol, e.Pod, node, e.Zone,
				percent(e.Share), percent(e.LocalShare), tracked, e.State,
			}})
		}
	}
	if len(t.Rows) == 0 {
		t.Notes = []string{"none"}
	}
	return t
}

func percent(share float64) string {
	if share == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f%%", 100*share)
}

// Counts are numbers of new connections to service ports; one that is missing is not counted.
type Counts map[*model.ServicePort]uint64

// Flows are numbers of entries of connection tracking, by service port and endpoint.
type Flows map[*model.ServicePort]map[netip.AddrPort]int

// NewFlows returns numbers for service ports, and a function that counts an entry with its destination and endpoint,
// unless it is of another Service.
func NewFlows(ports []*model.ServicePort) (flows Flows, count func(to model.VIP, endpoint netip.AddrPort)) {
	flows = Flows{}
	at := map[model.VIP]map[netip.AddrPort]int{}
	for _, sp := range ports {
		flows[sp] = map[netip.AddrPort]int{}
		for _, fe := range sp.Frontends {
			at[fe.VIP] = flows[sp]
		}
	}
	return flows, func(to model.VIP, endpoint netip.AddrPort) {
		if at[to] == nil { // a node port has no address
			to.Addr = model.FamilyOf(to.Addr).Unspecified()
		}
		if n := at[to]; n != nil {
			n[endpoint]++
		}
	}
}
