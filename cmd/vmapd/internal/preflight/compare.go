package preflight

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// Compare compares kube-proxy's rules with the decisions of the model.
func Compare(in Input) (*Report, error) {
	x := newComparison(in)
	for _, f := range model.Families {
		before := in.Before[f]
		if before == nil {
			continue
		}
		x.report.KubeProxy.Mode = before.Mode
		x.report.KubeProxy.Families = append(x.report.KubeProxy.Families, f.String())
		x.report.Unread = append(x.report.Unread, before.Unread...)
		simulate, err := before.on(func(a netip.Addr) bool { return x.isNode[a] || a.IsLoopback() })
		if err != nil {
			return nil, fmt.Errorf("%v rules of kube-proxy: %w", f, err)
		}
		x.family(f, before, simulate)
		if err := x.firewall(f, before); err != nil {
			return nil, fmt.Errorf("%v rules: %w", f, err)
		}
	}
	x.modes()
	x.finish()
	return x.report, nil
}

// comparison is a comparison in progress.
type comparison struct {
	in       Input
	snapshot *model.Snapshot
	report   *Report

	nodeAddrs   []netip.Addr // of both families, the preferred ones first
	isNode      map[netip.Addr]bool
	wanted      map[model.VIP]model.NamespacedName // destinations of the Services; as in Rules.Destinations
	endpointsOf map[model.NamespacedName]map[netip.Addr]bool
	isEndpoint  map[netip.Addr]bool
	served      []served
	differences map[string]*Difference // by their sentence and remedy
	notes       map[string]*Difference
	stale       map[Stale]bool
	taken       map[netip.Addr]bool                 // see isTaken
	owners      map[netip.Addr]model.NamespacedName // see clusterIPOwner
	services    map[model.NamespacedName]bool
}

// served is a connection that is forwarded to an endpoint before and after.
type served struct {
	probe
	to     netip.AddrPort
	marked bool
}

func newComparison(in Input) *comparison {
	x := &comparison{
		in: in, snapshot: in.builder().Snapshot(), report: &Report{Node: in.Config.NodeName, Backend: in.Backend, Settings: in.Settings},
		isNode: map[netip.Addr]bool{}, wanted: map[model.VIP]model.NamespacedName{},
		endpointsOf: map[model.NamespacedName]map[netip.Addr]bool{}, isEndpoint: map[netip.Addr]bool{},
		differences: map[string]*Difference{}, notes: map[string]*Difference{}, stale: map[Stale]bool{}, services: map[model.NamespacedName]bool{},
	}
	x.report.KubeProxy.Mode = in.Mode
	x.nodeAddrs = slices.Clone(in.HostAddresses)
	if len(x.nodeAddrs) == 0 {
		for _, f := range model.Families {
			x.nodeAddrs = append(x.nodeAddrs, x.snapshot.Family(f).NodeAddrs...)
		}
	}
	for _, a := range x.nodeAddrs {
		x.isNode[a] = true
	}
	for _, s := range in.Objects.EndpointSlices {
		name := model.NamespacedName{Namespace: s.Namespace, Name: s.Labels[model.LabelServiceName]}
		if x.endpointsOf[name] == nil {
			x.endpointsOf[name] = map[netip.Addr]bool{}
		}
		for _, e := range s.Endpoints {
			if a, ok := firstAddr(e.Addresses); ok {
				x.endpointsOf[name][a], x.isEndpoint[a] = true, true
			}
		}
	}
	for i := range in.Objects.Services {
		x.addWanted(&in.Objects.Services[i])
	}
	return x
}

// addWanted notes the destinations of a Service.
func (x *comparison) addWanted(s *model.Service) {
	for _, p := range s.Ports {
		proto, err := model.ParseProtocol(p.Protocol)
		if err != nil {
			continue
		}
		for _, text := range slices.Concat(s.ClusterIPs, s.ExternalIPs, ingress(s)) {
			if a, err := model.ParseAddr(text); err == nil {
				x.wanted[model.VIP{Addr: a, Protocol: proto, Port: uint16(p.Port)}] = s.NamespacedName
			}
		}
		for _, f := range model.Families {
			if p.NodePort > 0 {
				x.wanted[model.VIP{Addr: f.Unspecified(), Protocol: proto, Port: uint16(p.NodePort)}] = s.NamespacedName
			}
		}
	}
}

// family compares all Services in one family.
func (x *comparison) family(f model.Family, before *Rules, simulate simulator) {
	c := x.findClients(f)
	before.services = map[string]bool{}
	for _, name := range before.Destinations {
		before.services[name] = true
	}
	for i := range x.in.Objects.Services {
		s := &x.in.Objects.Services[i]
		if _, other := s.Labels[model.LabelServiceProxyName]; other || s.Type == "ExternalName" {
			continue
		}
		x.probes(f, c, s, func(p probe) {
			x.report.Connections++
			x.services[s.NamespacedName] = true
			was, err := simulate(p.Connection)
			if err != nil {
				x.report.Unread = append(x.report.Unread, fmt.Sprintf("%v to %v: %v", p.Source, p.Dest, err))
				return
			}
			x.compare(p, was, before)
		})
	}
	for v, service := range before.Destinations {
		if _, ok := x.wanted[v]; !ok {
			x.stale[Stale{service, fmt.Sprintf("kube-proxy still has rules for %v, which no Service has", v)}] = true
		}
	}
	x.unallocated(f, c, simulate)
}

// compare compares the results of one connection.
func (x *comparison) compare(p probe, was modeltest.Outcome, before *Rules) {
	d := model.Decide(x.snapshot, p.Connection)
	will := modeltest.Expected(d)
	from, to := x.result(p.Connection, was), x.result(p.Connection, will)
	switch {
	case from == to && sameArrivals(was, will):
		if from == answered {
			for to, a := range was.To {
				x.served = append(x.served, served{p, to, a.Masquerade})
			}
		}
	case x.isStale(p, from, to, was, before):
	case from == answered && to != answered:
		x.lost(p, d, was, will)
	case from != answered && to == answered:
		x.gained(p, was, will)
	case from != to:
		x.unserved(p, was, will)
	case !slices.Equal(destinations(was), destinations(will)):
		x.endpoints(p, was, will)
	default:
		x.masquerade(p, was, will)
	}
}

// result is what happens to a connection, in short.
type result uint8

const (
	untouched result = iota // passed on to its own destination
	answered                // forwarded to an endpoint
	refused
	discarded
)

func (x *comparison) result(c model.Connection, o modeltest.Outcome) result {
	_, itself := o.To[c.Dest]
	switch {
	case o.Verdict == model.Rejected:
		return refused
	case o.Verdict == model.Dropped:
		return discarded
	case itself && len(o.To) == 1 && !x.isEndpoint[c.Dest.Addr()]:
		return untouched
	}
	return answered
}

func sameArrivals(a, b modeltest.Outcome) bool {
	return maps.EqualFunc(a.To, b.To, func(a, b modeltest.Arrival) bool { return a.Masquerade == b.Masquerade })
}

func destinations(o modeltest.Outcome) []netip.AddrPort {
	return slices.SortedFunc(maps.Keys(o.To), netip.AddrPort.Compare)
}

// isStale notes differences that have their cause in rules which have not followed the cluster.
func (x *comparison) isStale(p probe, from, to result, was modeltest.Outcome, before *Rules) bool {
	name := p.service.NamespacedName
	v := model.VIP{Addr: p.Dest.Addr(), Protocol: p.Protocol, Port: p.Dest.Port()}
	if p.kind == model.NodePort {
		v.Addr = model.FamilyOf(v.Addr).Unspecified()
	}
	_, programmed := before.Destinations[v]
	var gone []string
	for to := range was.To {
		if from == answered && to != p.Dest && !x.endpointsOf[name][to.Addr()] && !x.endpointsOf[x.wanted[v]][to.Addr()] {
			gone = append(gone, to.String())
		}
	}
	switch {
	case len(gone) > 0:
		slices.Sort(gone)
		x.stale[Stale{name.String(), "kube-proxy still forwards to " + strings.Join(gone, ", ") + ", which is no endpoint any more"}] = true
	case !programmed && to != untouched && !p.unused && (p.kind == model.ClusterIP || !before.services[name.String()]):
		x.stale[Stale{name.String(), fmt.Sprintf("kube-proxy has no rules for %v yet", v)}] = true
	default:
		return false
	}
	return true
}

// note adds a connection to a difference of several.
func note(to map[string]*Difference, d Difference, p probe, address bool, e *Example) {
	key := d.ID + "\x00" + d.What
	have := to[key]
	if have == nil {
		d.Example = e
		have = &d
		to[key] = have
	}
	addTo(&have.Services, p.service.String())
	if p.client != "" {
		addTo(&have.Clients, p.client)
	}
	if address {
		addTo(&have.Addresses, p.Dest.Addr().String())
	}
}

func addTo[T cmp.Ordered](list *[]T, v T) {
	if i, found := slices.BinarySearch(*list, v); !found {
		*list = slices.Insert(*list, i, v)
	}
}

// finish sorts the findings.
func (x *comparison) finish() {
	r := x.report
	r.Services = len(x.services)
	for list, found := range map[*[]Difference]map[string]*Difference{&r.Differences: x.differences, &r.Notes: x.notes} {
		*list = []Difference{}
		for _, key := range slices.Sorted(maps.Keys(found)) {
			*list = append(*list, *found[key])
		}
		slices.SortStableFunc(*list, func(a, b Difference) int {
			return cmp.Or(cmp.Compare(slices.Index(order, a.ID), slices.Index(order, b.ID)))
		})
	}
	r.Stale = slices.SortedFunc(maps.Keys(x.stale), func(a, b Stale) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.What, b.What))
	})
	slices.Sort(r.Unread)
	r.Unread = slices.Compact(r.Unread)
	r.Settings, r.Unread, r.Stale = notNil(r.Settings), notNil(r.Unread), notNil(r.Stale)
}

func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
