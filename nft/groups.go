package nft

import (
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/model"
)

// groups are the Services that a batch concerns, each with a number. Those that are not
// joint can change in any piece.
type groups struct {
	services []service
	numbers  map[*model.ServicePort]int
	urgent   bool // one of them is

	// Operations of one set and of one service port stand side by side, so these are often
	// the next one's, too.
	lastSet    string
	set        layoutSet // its row
	last       *model.ServicePort
	lastNumber int

	// The Services that have these, to find those that several have in common.
	frontends  map[string]int // by key; only if there is something to delete
	clusterIPs map[netip.Addr]int
	nodePorts  map[model.VIP]int // without address
}

type service struct {
	// joint: it must change in one transaction with others, for example because a frontend
	// moves from one of them to another.
	joint  bool
	urgent bool
	weight int // operations
	piece  int
}

// service returns the number of the Service that an operation belongs to, or false if there is
// none or it is joint.
func (g *groups) service(set string, op *ElementOp) (int, bool) {
	if op.Port != nil {
		if g.last != op.Port {
			g.last, g.lastNumber = op.Port, g.numbers[op.Port]
		}
		return g.lastNumber, !g.services[g.lastNumber].joint
	}
	if g.lastSet != set {
		g.lastSet, g.set = set, layoutOf(set)
	}
	var n int
	var ok bool
	switch g.set.scope {
	case scopeCluster:
		n, ok = g.clusterIPs[decodeAddr(op.Key)]
	case scopeAddr, scopeNodePort:
		key := op.Key
		if g.set.of.hasSlots() {
			key = key[:len(key)-registerSize]
		}
		n, ok = g.frontends[key]
	case noScope, scopeService, scopeOwn, scopeEndpoint, scopeNode:
	}
	return n, ok && !g.services[n].joint
}

func (b *Batch) groups() *groups {
	g := &groups{frontends: map[string]int{}, nodePorts: map[model.VIP]int{}}
	ports := g.number(b)
	g.clusterIPs = make(map[netip.Addr]int, len(ports))
	for _, sp := range ports {
		n := g.numbers[sp]
		for _, fe := range sp.Frontends {
			if len(b.Delete) > 0 {
				own(g, g.frontends, scopeOf(fe.Kind).key(fe.VIP), n)
			}
			switch fe.Kind {
			case model.ClusterIP:
				own(g, g.clusterIPs, fe.VIP.Addr, n)
			case model.NodePort:
				own(g, g.nodePorts, model.VIP{Protocol: fe.VIP.Protocol, Port: fe.VIP.Port}, n)
			case model.LoadBalancerIP, model.ExternalIP:
			}
		}
	}
	last := b.othersClusterIPs(g)
	for _, sp := range ports {
		n := g.numbers[sp]
		for _, fe := range sp.Frontends {
			// Where a cluster IP stays in b, a port without frontend is rejected until then, or passes.
			if last[fe.VIP.Addr] {
				g.services[n].joint = true
			}
			// Its address may be a cluster IP of another Service, or one of the node's, where
			// it goes before a node port.
			if fe.Kind != model.ClusterIP {
				meet(g, g.clusterIPs, fe.VIP.Addr, n)
			}
			meet(g, g.nodePorts, model.VIP{Protocol: fe.VIP.Protocol, Port: fe.VIP.Port}, n)
		}
	}
	b.keepChanged(g, ports)
	return g
}

// othersClusterIPs returns the cluster IPs that the batch deletes or adds and that are of no Service in it: their
// Services have no ports.
func (b *Batch) othersClusterIPs(g *groups) map[netip.Addr]bool {
	var all map[netip.Addr]bool
	for _, s := range slices.Concat(b.Delete, b.Add) {
		if s.Set != ClusterIPs {
			continue
		}
		for _, op := range s.Ops {
			addr := decodeAddr(op.Key)
			if _, ok := g.clusterIPs[addr]; ok {
				continue
			}
			if all == nil {
				all = map[netip.Addr]bool{}
			}
			all[addr] = true
		}
	}
	return all
}

// number numbers the Services of a batch in the order of its operations, so that they need not
// be sorted. It returns their service ports, old ones and new ones.
func (g *groups) number(b *Batch) []*model.ServicePort {
	most := 0 // of each there are so many at most, if each service port has a frontend in the batch
	lists := slices.Concat(b.Delete, b.Add)
	for _, s := range lists {
		if s.Set == ServiceIPs {
			most += len(s.Ops)
		}
	}
	ports := make([]*model.ServicePort, 0, most)
	services := make(map[model.NamespacedName]int, most)
	g.services, g.numbers = make([]service, 0, most), make(map[*model.ServicePort]int, most)
	for _, s := range lists {
		var last *model.ServicePort // those of one stand side by side
		for i := range s.Ops {
			sp := s.Ops[i].Port
			if sp == last || sp == nil {
				continue
			}
			last = sp
			if _, ok := g.numbers[sp]; ok {
				continue
			}
			n, ok := services[sp.Name.NamespacedName]
			if !ok {
				n = len(g.services)
				services[sp.Name.NamespacedName] = n
				g.services = append(g.services, service{})
			}
			g.numbers[sp] = n
			ports = append(ports, sp)
			if isUrgent(sp) {
				g.services[n].urgent, g.urgent = true, true
			}
		}
	}
	return ports
}

// own notes that a Service has something. If another one has it already, both become joint.
func own[K comparable](g *groups, owners map[K]int, what K, service int) {
	if meet(g, owners, what, service) {
		owners[what] = service
	}
}

// meet reports whether no other Service has something. If one has, both become joint.
func meet[K comparable](g *groups, owners map[K]int, what K, service int) bool {
	other, ok := owners[what]
	if !ok || other == service {
		return true
	}
	g.services[service].joint, g.services[other].joint = true, true
	return false
}

// keepChanged keeps a Service in b if a chain of its own gets other rules there.
func (b *Batch) keepChanged(g *groups, ports []*model.ServicePort) {
	changed := map[string]bool{}
	for _, c := range b.SetChains {
		if isOwn(c.Name) {
			changed[c.Name] = true
		}
	}
	if len(changed) == 0 {
		return
	}
	for _, sp := range ports {
		for _, c := range ownChains(sp, &model.Settings{}) {
			if changed[c.Name] {
				g.services[g.numbers[sp]].joint = true
			}
		}
	}
}

// isUrgent reports whether a service port is one of the API server or of the cluster's DNS,
// whose name is not fixed. OpenShift's DNS has a namespace of its own.
func isUrgent(sp *model.ServicePort) bool {
	if sp.Name.NamespacedName == (model.NamespacedName{Namespace: "default", Name: "kubernetes"}) {
		return true
	}
	const dns = 53
	return (sp.Name.Namespace == "kube-system" || sp.Name.Namespace == "openshift-dns") && sp.Name.Protocol != model.SCTP &&
		slices.ContainsFunc(sp.Frontends, func(fe model.Frontend) bool { return fe.VIP.Port == dns })
}
