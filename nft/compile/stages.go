package compile

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
)

// Stage is a part of a new table, for one transaction.
type Stage struct {
	Unit
	First bool // for the transaction with the base chains
	Ends  bool // a transaction may end behind it
}

// Stages yields the elements of a new table. A Service comes with all of its ports and addresses at once, also with its cluster
// IP, to whose other ports connections are refused; the cluster's API server and DNS are first, then all endpoints. The
// ServiceCIDRs are last, whose other addresses are dropped.
func (r *Ruleset) Stages() iter.Seq[Stage] {
	urgent, others := r.byUrgency()
	served := map[netip.Addr]bool{}
	return func(yield func(Stage) bool) {
		for _, part := range [...]iter.Seq[Stage]{
			r.nodeStage, r.services(urgent, served, true), r.slotStages(others), r.services(others, served, false), r.lastStages(served),
		} {
			for s := range part {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// nodeStage has what frontends of the first stages need: where node ports are, and the endpoints that connect to themselves.
func (r *Ruleset) nodeStage(yield func(Stage) bool) {
	yield(Stage{First: true, Unit: Unit{Elements: func(add func(set string, e nft.Element)) {
		r.settingsElements(nft.NodePortIPs, add)
		for a := range r.snapshot.Hairpins() {
			add(nft.Hairpin, hairpinElement(a))
		}
	}}})
}

// slotStages has the slots of service ports, to which nothing leads yet.
func (r *Ruleset) slotStages(ports []*model.ServicePort) iter.Seq[Stage] {
	return func(yield func(Stage) bool) {
		for _, sp := range ports {
			if !yield(Stage{Ends: true, Unit: Unit{Port: sp, Elements: func(add func(set string, e nft.Element)) {
				r.unit(sp, nil).Elements(func(set string, e nft.Element) {
					if isSlots(set) {
						add(set, e)
					}
				})
			}}}) {
				return
			}
		}
	}
}

func isSlots(set string) bool {
	return set == nft.Endpoints || set == nft.LocalEndpoints || set == nft.NodePortEndpoints || set == nft.NodePortLocalEndpoints
}

// services has service ports in the order of their cluster IPs, with these: all of them or, behind slotStages, all but slots.
func (r *Ruleset) services(ports []*model.ServicePort, served map[netip.Addr]bool, first bool) iter.Seq[Stage] {
	return func(yield func(Stage) bool) {
		for i, sp := range ports {
			var delta *slotDelta
			if !first {
				delta = &slotDelta{other: sp} // as if its slots were there already
			}
			ip := clusterIPOf(sp)
			if ip.IsValid() && !served[ip] {
				served[ip] = true
				if !yield(Stage{First: first, Unit: shared(nft.ClusterIPs, addrElement(ip))}) {
					return
				}
			}
			last := i+1 == len(ports) || clusterIPOf(ports[i+1]) != ip
			if !yield(Stage{First: first, Ends: last, Unit: r.unit(sp, delta)}) {
				return
			}
		}
	}
}

// lastStages has the elements without which Services are complete.
func (r *Ruleset) lastStages(served map[netip.Addr]bool) iter.Seq[Stage] {
	return func(yield func(Stage) bool) {
		for v := range r.snapshot.ServiceEndpoints() {
			if !yield(Stage{Ends: true, Unit: shared(nft.ServiceEndpoints, endpointElement(v))}) {
				return
			}
		}
		yield(Stage{Unit: Unit{Elements: func(add func(set string, e nft.Element)) {
			for a := range r.snapshot.ClusterIPs() {
				if !served[a] {
					add(nft.ClusterIPs, addrElement(a))
				}
			}
			r.settingsElements(nft.ServiceCIDRs, add)
		}}})
	}
}

// settingsElements adds the elements of one set that depend on the settings.
func (r *Ruleset) settingsElements(of string, add func(set string, e nft.Element)) {
	settingsElements(r.snapshot.Settings, func(set string, e nft.Element) {
		if set == of {
			add(set, e)
		}
	})
}

// shared is a single element.
func shared(set string, e nft.Element) Unit {
	return Unit{Elements: func(add func(set string, e nft.Element)) { add(set, e) }}
}

// byUrgency returns the service ports of Services that must come first, and all others. An address of the node that is a
// Service's has priority over node ports of others; and one may be the cluster IP of another Service.
func (r *Ruleset) byUrgency() (urgent, others []*model.ServicePort) {
	clusterIPs := map[netip.Addr]bool{}
	for a := range r.snapshot.ClusterIPs() {
		clusterIPs[a] = true
	}
	shared := func(fe model.Frontend) bool {
		return r.isOnNode(fe) || fe.Kind != model.ClusterIP && clusterIPs[fe.VIP.Addr]
	}
	first := map[netip.Addr]bool{}
	for sp := range r.snapshot.ServicePorts() {
		if isUrgent(sp) || slices.ContainsFunc(sp.Frontends, shared) {
			first[clusterIPOf(sp)] = true
		}
	}
	for sp := range r.snapshot.ServicePorts() {
		if first[clusterIPOf(sp)] {
			urgent = append(urgent, sp)
		} else {
			others = append(others, sp)
		}
	}
	for _, list := range [...][]*model.ServicePort{urgent, others} { // those of one Service stand side by side
		slices.SortFunc(list, func(a, b *model.ServicePort) int { return clusterIPOf(a).Compare(clusterIPOf(b)) })
	}
	return urgent, others
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

// Weight is about how many elements there are.
func (r *Ruleset) Weight() int {
	n := 0
	for sp := range r.snapshot.ServicePorts() {
		for _, fe := range sp.Frontends {
			n += 1 + slotCount(sp, fe.TrafficPolicy)
		}
	}
	return n
}
