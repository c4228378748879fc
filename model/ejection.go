package model

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"
	"unique"
)

// Ejections are the endpoints that this node has found silent, and the Nodes. A Builder takes them for not ready where
// Services ask for it: ServicePort.OutlierDetection. They never change.
type Ejections struct {
	Endpoints []Ejection // of TCP, sorted by address
	Nodes     []Ejection // all endpoints there, of any protocol; sorted by name
}

// Ejection says what has been ejected, and why.
type Ejection struct {
	Endpoint netip.AddrPort // the zero value for a Node
	Node     string         // where the endpoint is; may be empty
	Since    time.Time
	Packets  int // that clients sent again, because no answer came
	Clients  int
}

// Attempt is what a client sent again to an endpoint of TCP that did not answer. Another program may have led it there.
type Attempt struct {
	Endpoint netip.AddrPort
	Client   netip.Addr
	Packets  int
}

// Endpoint returns the ejection of an endpoint of TCP.
func (e *Ejections) Endpoint(a netip.AddrPort) (Ejection, bool) {
	return find(e.Endpoints, a, func(e Ejection, a netip.AddrPort) int { return e.Endpoint.Compare(a) })
}

// Node returns the ejection of a Node.
func (e *Ejections) Node(name string) (Ejection, bool) {
	return find(e.Nodes, name, func(e Ejection, name string) int { return cmp.Compare(e.Node, name) })
}

func find[K any](list []Ejection, key K, compare func(Ejection, K) int) (Ejection, bool) {
	i, ok := slices.BinarySearchFunc(list, key, compare)
	if !ok {
		return Ejection{}, false
	}
	return list[i], true
}

// noEjections are those of a Builder that was not given any.
var noEjections = new(Ejections) //nolint:gochecknoglobals // it is never written

// Ejections returns what is ejected.
func (s *Snapshot) Ejections() *Ejections { return cmp.Or(s.ejections, noEjections) }

// SetEjections replaces what is ejected; the value must not change any more. The cost depends on the number of service
// ports and, for Nodes, of endpoints: it happens when one dies or comes back.
func (b *Builder) SetEjections(now *Ejections) {
	old := b.ejections
	b.ejections = now
	endpoints := differences(old.Endpoints, now.Endpoints, func(e Ejection) netip.AddrPort { return e.Endpoint })
	nodes := differences(old.Nodes, now.Nodes, func(e Ejection) unique.Handle[string] { return unique.Make(e.Node) })
	for _, f := range Families {
		for sp := range b.last.families[f].ServicePorts() {
			if sp.OutlierDetection && slices.ContainsFunc(endpoints, sp.Has) {
				b.markDirty(b.records[sp.Name.NamespacedName])
			}
		}
	}
	for _, s := range b.slices {
		on := func(n unique.Handle[string]) bool { return slices.Contains(s.nodes, n) }
		if r := b.records[s.service]; r != nil && slices.ContainsFunc(nodes, on) {
			b.markDirty(r)
		}
	}
}

// detects reports whether a Service asks for outlier detection.
func (b *Builder) detects(s *service) bool {
	if on := s.rare.outlierDetection; on != nil {
		return *on
	}
	return b.config.OutlierDetection
}

// differences returns what only one of two lists has.
func differences[K comparable](a, b []Ejection, key func(Ejection) K) []K {
	in := map[K]int{}
	for _, e := range a {
		in[key(e)]++
	}
	for _, e := range b {
		in[key(e)]--
	}
	maps.DeleteFunc(in, func(_ K, n int) bool { return n == 0 })
	return slices.Collect(maps.Keys(in))
}

// Has reports whether an address is an endpoint of the service port, or one that was ejected.
func (sp *ServicePort) Has(a netip.AddrPort) bool {
	if sp.Ejects(a) {
		return true
	}
	_, ok := slices.BinarySearchFunc(sp.Endpoints, a, func(e Endpoint, a netip.AddrPort) int { return e.Addr.Compare(a) })
	return ok
}

// Ejects reports whether an address is an endpoint that gets no connections because it is ejected.
func (sp *ServicePort) Ejects(a netip.AddrPort) bool {
	_, ok := slices.BinarySearchFunc(sp.Ejected, a, netip.AddrPort.Compare)
	return ok
}

// bit is the condition of an endpoint of a service port that is ejected, or on an ejected Node.
func (e *Ejections) bit(a netip.AddrPort, p Protocol, node unique.Handle[string]) conditions {
	var none unique.Handle[string]
	if p == TCP && len(e.Endpoints) > 0 {
		if _, ok := e.Endpoint(a); ok {
			return ejected
		}
	}
	if node != none && len(e.Nodes) > 0 {
		if _, ok := e.Node(node.Value()); ok {
			return ejected
		}
	}
	return 0
}

// eject takes the ejected endpoints out of a list, unless they are more than half of it: then the network of this node
// may be the cause, and all serve as before. Envoy calls that the panic threshold.
func (l *lists) eject(p TrafficPolicy) {
	n := 0
	for _, c := range l.candidates {
		if c.excluded[p] == NotExcluded && c.has(ejected) {
			n++
		}
	}
	if 2*n > l.sizes[p] {
		return
	}
	for i := range l.candidates {
		if c := &l.candidates[i]; c.excluded[p] == NotExcluded && c.has(ejected) {
			c.excluded[p] = Ejected
			l.sizes[p]--
		}
	}
}

// ejectedOf returns the candidates that are in no list because they are ejected.
func (l lists) ejectedOf(needed [len(TrafficPolicies)]bool) []netip.AddrPort {
	var list []netip.AddrPort
	for _, c := range l.candidates {
		if !c.has(ejected) {
			continue
		}
		in, out := false, false
		for _, p := range TrafficPolicies {
			in = in || needed[p] && c.excluded[p] == NotExcluded
			out = out || needed[p] && c.excluded[p] == Ejected
		}
		if out && !in {
			list = append(list, c.addr)
		}
	}
	return list
}

// Place is where an endpoint is, for outlier detection.
type Place struct {
	Namespace string
	Endpoint  netip.AddrPort
}

// NodeOf returns the Node of a Service's endpoint, by its address; empty: none is known. Slices of other Services may
// name another one. If several of this Service do, it is the first by name.
func (b *Builder) NodeOf(service NamespacedName, a netip.Addr) (node string) {
	var none unique.Handle[string]
	for _, s := range b.slices {
		if s.service != service {
			continue
		}
		for addr, e := range s.all("") {
			if addr == a && e.node != none && (node == "" || e.node.Value() < node) {
				node = e.node.Value()
			}
		}
	}
	return node
}

// Places returns endpoints of TCP on a Node, one of each namespace, except those of an address. Its cost is that of
// all endpoints.
func (b *Builder) Places(node string, except netip.Addr) []Place {
	places := map[string]netip.AddrPort{}
	want := unique.Make(node)
	for _, s := range b.slices {
		i := slices.IndexFunc(s.ports, func(p slicePort) bool { return p.protocol == TCP })
		if i < 0 || !slices.Contains(s.nodes, want) {
			continue
		}
		for addr, e := range s.all("") {
			at := netip.AddrPortFrom(addr, s.ports[i].port)
			if had, ok := places[s.service.Namespace]; e.node == want && addr != except && e.has(ready) &&
				(!ok || at.Compare(had) < 0) {
				places[s.service.Namespace] = at
			}
		}
	}
	var list []Place
	for namespace, at := range places {
		list = append(list, Place{namespace, at})
	}
	slices.SortFunc(list, func(a, b Place) int { return cmp.Compare(a.Namespace, b.Namespace) })
	return list
}

// outliers counts what outlier detection concerns.
type outliers struct {
	detecting int // service ports of TCP
	ejected   int // endpoints, of each service port
}

func (n *outliers) count(sp *ServicePort, by int) {
	if sp.OutlierDetection && sp.Name.Protocol == TCP {
		n.detecting += by
	}
	n.ejected += by * len(sp.Ejected)
}

// DetectsOutliers reports whether a service port of TCP has outlier detection.
func (s *Snapshot) DetectsOutliers() bool {
	return s.families[IPv4].outliers.detecting+s.families[IPv6].outliers.detecting > 0
}

// EjectedEndpoints returns the number of endpoints that are ejected. One that serves two service ports counts twice.
func (s *FamilySnapshot) EjectedEndpoints() int { return s.outliers.ejected }
