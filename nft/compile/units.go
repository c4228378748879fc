package compile

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// Unit is a part of a ruleset that is compiled on its own: a service port, a Service, or elements that all share.
type Unit struct {
	Sets     []nft.Set
	Chains   []nft.Chain
	Elements func(add AddFunc)
	Clients  []Purge // its maps of clients; of a Change, those to purge
}

// AddFunc takes an element, and the name of its set.
type AddFunc func(set string, e nft.Element)

// Units yields the parts of the ruleset in the order in which a table is filled: what all Services share or need; the
// Services, the cluster's API server and DNS first; and at last what is refused or dropped because no Service has it.
func (r *Ruleset) Units() iter.Seq[Unit] {
	return func(yield func(Unit) bool) {
		none := &model.FamilySnapshot{}
		first := Unit{Sets: r.Sets, Chains: r.Chains, Elements: func(add AddFunc) { r.sharedFirst(none, add) }}
		if !yield(first) {
			return
		}
		urgent, services := r.urgent(), r.services()
		if !yield(r.service(services[0])) {
			return
		}
		for _, now := range [...]bool{true, false} {
			for _, ports := range services[1:] {
				if urgent[clusterIPOf(ports[0])] == now && !yield(r.service(ports)) {
					return
				}
			}
		}
		yield(Unit{Elements: func(add AddFunc) { r.sharedLast(none, urgent, add) }})
	}
}

// service compiles the service ports of a Service, or of several, and their cluster IPs.
func (r *Ruleset) service(ports []*model.ServicePort) Unit {
	var all Unit
	units := make([]Unit, len(ports))
	for i, sp := range ports {
		units[i] = r.unit(version{ServicePort: sp})
		all.Sets, all.Chains = append(all.Sets, units[i].Sets...), append(all.Chains, units[i].Chains...)
		all.Clients = append(all.Clients, units[i].Clients...)
	}
	all.Elements = func(add AddFunc) {
		for _, u := range units {
			u.Elements(add)
		}
		for i, sp := range ports {
			if ip := clusterIPOf(sp); ip.IsValid() && (i == 0 || clusterIPOf(ports[i-1]) != ip) {
				add(nft.ClusterIPs, addrElement(ip))
			}
		}
	}
	return all
}

// mostTogether service ports come in one transaction, which must fit into the socket's memory. Of a tenant's thousands,
// the others come alone, and may be refused for moments.
const mostTogether = 256

// services returns the service ports of each Service, by its cluster IP. All Services with an external address that is
// another one's cluster IP are together, and come first: that address refuses what no frontend has.
func (r *Ruleset) services() (all [][]*model.ServicePort) {
	ports := slices.SortedStableFunc(r.snapshot.ServicePorts(), func(a, b *model.ServicePort) int {
		return clusterIPOf(a).Compare(clusterIPOf(b))
	})
	all = make([][]*model.ServicePort, 1, len(ports)+1)
	for from, to := 0, 1; from < len(ports); to++ {
		if to < len(ports) && clusterIPOf(ports[to]) == clusterIPOf(ports[from]) {
			continue
		}
		if one := ports[from:to]; len(all[0])+len(one) <= mostTogether && slices.ContainsFunc(one, r.hasClusterIP) {
			all[0] = append(all[0], one...)
		} else {
			all = append(all, one)
		}
		from = to
	}
	return all
}

// hasClusterIP reports whether an external address of a service port is the cluster IP of a Service.
func (r *Ruleset) hasClusterIP(sp *model.ServicePort) bool {
	return slices.ContainsFunc(sp.Frontends, func(fe model.Frontend) bool {
		return fe.Kind != model.ClusterIP && r.snapshot.IsClusterIP(fe.VIP.Addr)
	})
}

// urgent says of each Service, by its cluster IP, whether it must be among the first: an address of the node that is a
// Service's has priority over other Services' node ports.
func (r *Ruleset) urgent() map[netip.Addr]bool {
	urgent := map[netip.Addr]bool{}
	for sp := range r.snapshot.ServicePorts() {
		ip := clusterIPOf(sp)
		urgent[ip] = urgent[ip] || isUrgent(sp) || slices.ContainsFunc(sp.Frontends, r.isOnNode)
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

// PortsWith returns the service ports with an element for which is reports true.
func (r *Ruleset) PortsWith(is func(set, key string) bool) []*model.ServicePort {
	return slices.Collect(func(yield func(*model.ServicePort) bool) {
		for sp := range r.snapshot.ServicePorts() {
			found := false
			r.unit(version{ServicePort: sp}).Elements(func(set string, e nft.Element) { found = found || is(set, e.Key) })
			if found && !yield(sp) {
				return
			}
		}
	})
}
