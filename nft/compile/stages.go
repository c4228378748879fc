package compile

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// Stage has elements of a new table that come in one transaction.
type Stage struct {
	Elements func(add func(set string, op nft.ElementOp))
	Loose    bool // they may come in several
}

// Elements yields every element with the name of its set.
func (r *Ruleset) Elements() iter.Seq2[string, nft.ElementOp] {
	return func(yield func(string, nft.ElementOp) bool) {
		more := true
		for stage := range r.Stages() {
			if stage.Elements(func(set string, op nft.ElementOp) { more = more && yield(set, op) }); !more {
				return
			}
		}
	}
}

// Stages yields the elements of a new table. A Service comes with all of its ports, addresses and endpoints at once.
// The first stage, for the transaction with the base chains, has the cluster's API server and DNS, and what all
// Services need; the ServiceCIDRs are last: their other addresses are dropped.
func (r *Ruleset) Stages() iter.Seq[Stage] {
	return func(yield func(Stage) bool) {
		urgent, services := r.urgent(), r.services()
		isUrgent := func(of []*model.ServicePort) bool { return urgent[clusterIPOf(of[0])] }
		if !yield(Stage{Elements: func(add func(set string, op nft.ElementOp)) {
			r.ofSettings(nft.NodePortIPs, add)
			for a := range r.snapshot.Hairpins() { // an endpoint could not connect to itself without
				add(nft.Hairpin, nft.ElementOp{Element: hairpinElement(a)})
			}
			for _, of := range services {
				if isUrgent(of) {
					r.service(of, add)
				}
			}
		}}) {
			return
		}
		for _, of := range services {
			if !isUrgent(of) && !yield(Stage{Elements: func(add func(set string, op nft.ElementOp)) { r.service(of, add) }}) {
				return
			}
		}
		yield(Stage{Loose: true, Elements: func(add func(set string, op nft.ElementOp)) {
			for v := range r.snapshot.ServiceEndpoints() {
				add(nft.ServiceEndpoints, nft.ElementOp{Element: endpointElement(v)})
			}
			for a := range r.snapshot.ClusterIPs() {
				if _, served := urgent[a]; !served {
					add(nft.ClusterIPs, nft.ElementOp{Element: addrElement(a)})
				}
			}
			r.ofSettings(nft.ServiceCIDRs, add)
		}})
	}
}

// service adds the elements of a Service, and its cluster IP.
func (r *Ruleset) service(ports []*model.ServicePort, add func(set string, op nft.ElementOp)) {
	for _, sp := range ports {
		r.portElements(version{ServicePort: sp}, affinityFor(sp), func(set string, e nft.Element) {
			add(set, nft.ElementOp{Element: e, Port: sp})
		})
	}
	if ip := clusterIPOf(ports[0]); ip.IsValid() {
		add(nft.ClusterIPs, nft.ElementOp{Element: addrElement(ip)})
	}
}

// ofSettings adds the elements of one set that depend on the settings.
func (r *Ruleset) ofSettings(name string, add func(set string, op nft.ElementOp)) {
	settingsElements(r.snapshot.Settings, func(set string, e nft.Element) {
		if set == name {
			add(set, nft.ElementOp{Element: e})
		}
	})
}

// services returns the service ports of each Service, by its cluster IP.
func (r *Ruleset) services() (all [][]*model.ServicePort) {
	ports := slices.SortedStableFunc(r.snapshot.ServicePorts(), func(a, b *model.ServicePort) int {
		return clusterIPOf(a).Compare(clusterIPOf(b))
	})
	all = make([][]*model.ServicePort, 0, len(ports))
	for from, to := 0, 1; from < len(ports); to++ {
		if to == len(ports) || clusterIPOf(ports[to]) != clusterIPOf(ports[from]) {
			all, from = append(all, ports[from:to]), to
		}
	}
	return all
}

// urgent says of each Service, by its cluster IP, whether it must be among the first. An address of the node that is a
// Service's has priority over other Services' node ports; and one may be the cluster IP of another Service.
func (r *Ruleset) urgent() map[netip.Addr]bool {
	shared := func(fe model.Frontend) bool {
		return r.isOnNode(fe) || fe.Kind != model.ClusterIP && r.snapshot.IsClusterIP(fe.VIP.Addr)
	}
	urgent := map[netip.Addr]bool{}
	for sp := range r.snapshot.ServicePorts() {
		ip := clusterIPOf(sp)
		urgent[ip] = urgent[ip] || isUrgent(sp) || slices.ContainsFunc(sp.Frontends, shared)
	}
	return urgent
}

// clusterIPOf returns the cluster IP of a service port.
func clusterIPOf(sp *model.ServicePort) netip.Addr {
	for _, fe := range sp.Frontends {
		if fe.Kind == model.ClusterIP {
			return fe.VIP.Addr
		}
	}
	return netip.Addr{}
}

// isUrgent reports whether a service port is one of the API server or of the cluster's DNS.
// The name of that is not fixed. OpenShift's DNS has a namespace of its own.
func isUrgent(sp *model.ServicePort) bool {
	if sp.Name.NamespacedName == (model.NamespacedName{Namespace: "default", Name: "kubernetes"}) {
		return true
	}
	const dns = 53
	mayBe := sp.Name.Namespace == "kube-system" || sp.Name.Namespace == "openshift-dns"
	return mayBe && sp.Name.Protocol != model.SCTP &&
		slices.ContainsFunc(sp.Frontends, func(fe model.Frontend) bool { return fe.VIP.Port == dns })
}

// Size is about how many elements there are.
func (r *Ruleset) Size() (n int) {
	for sp := range r.snapshot.ServicePorts() {
		for _, fe := range sp.Frontends {
			n += 1 + sp.SlotCount(fe.TrafficPolicy)
		}
	}
	for range r.snapshot.ClusterIPs() {
		n++
	}
	return n
}
