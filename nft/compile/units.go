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
		ports := slices.SortedStableFunc(r.snapshot.ServicePorts(), func(a, b *model.ServicePort) int {
			return clusterIPOf(a).Compare(clusterIPOf(b))
		})
		urgent := make(map[netip.Addr]bool, len(ports)) // each Service, by its cluster IP
		var together []*model.ServicePort
		var services [][]*model.ServicePort
		for len(ports) > 0 {
			ip, n := clusterIPOf(ports[0]), 1
			for n < len(ports) && clusterIPOf(ports[n]) == ip {
				n++
			}
			one := ports[:n]
			ports = ports[n:]
			urgent[ip] = slices.ContainsFunc(one, r.isUrgent)
			if len(together)+n <= mostTogether && slices.ContainsFunc(one, r.hasClusterIPOfOther) {
				together = append(together, one...)
			} else {
				services = append(services, one)
			}
		}
		if !yield(r.service(together)) {
			return
		}
		for _, now := range [...]bool{true, false} {
			for _, one := range services {
				if urgent[clusterIPOf(one[0])] == now && !yield(r.service(one)) {
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

// mostTogether service ports of Services with an external address that is another one's cluster IP, which refuses what
// no frontend has, come in one transaction, which must fit into the socket's memory. Of a tenant's thousands, the rest
// come alone, and may be refused for moments.
const mostTogether = 256

// hasClusterIPOfOther reports whether an external address of a service port is the cluster IP of a Service.
func (r *Ruleset) hasClusterIPOfOther(sp *model.ServicePort) bool {
	return slices.ContainsFunc(sp.Frontends, func(fe model.Frontend) bool {
		return fe.Kind != model.ClusterIP && r.snapshot.IsClusterIP(fe.VIP.Addr)
	})
}

func clusterIPOf(sp *model.ServicePort) netip.Addr {
	for _, fe := range sp.Frontends {
		if fe.Kind == model.ClusterIP {
			return fe.VIP.Addr
		}
	}
	return netip.Addr{}
}

// isUrgent reports whether a service port is one of the API server or of the cluster's DNS. The name of that is not
// fixed. OpenShift's DNS has a namespace of its own. An address of the node that is a Service's has priority over other
// Services' node ports.
func (r *Ruleset) isUrgent(sp *model.ServicePort) bool {
	if sp.Name.NamespacedName == (model.NamespacedName{Namespace: "default", Name: "kubernetes"}) ||
		slices.ContainsFunc(sp.Frontends, r.isOnNode) {
		return true
	}
	const dns = 53
	mayBe := sp.Name.Namespace == "kube-system" || sp.Name.Namespace == "openshift-dns"
	return mayBe && sp.Name.Protocol != model.SCTP &&
		slices.ContainsFunc(sp.Frontends, func(fe model.Frontend) bool { return fe.VIP.Port == dns })
}

// PortsWith returns the service ports with an element for which is reports true.
func (r *Ruleset) PortsWith(is func(set, key string) bool) (list []*model.ServicePort) {
	for sp := range r.snapshot.ServicePorts() {
		found := false
		r.unit(version{ServicePort: sp}).Elements(func(set string, e nft.Element) { found = found || is(set, e.Key) })
		if found {
			list = append(list, sp)
		}
	}
	return list
}
