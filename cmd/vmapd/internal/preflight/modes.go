package preflight

import (
	"slices"

	"github.com/vmapd/vmapd/model"
)

// modes adds notes that follow from kube-proxy's mode and vmapd's backend alone.
func (x *comparison) modes() {
	add := func(d Difference) { x.notes[d.ID+d.What] = &d }
	from, nftables := x.report.KubeProxy.Mode, x.in.Backend == "nftables"
	for _, s := range x.in.Objects.Services {
		if s.SessionAffinity == "ClientIP" {
			const what = "clients of Services with session affinity may get another endpoint once: vmapd does not know which one they had"
			note(x.notes, Difference{ID: "session-affinity", What: what}, probe{client: "", service: &s}, false, nil)
		}
	}
	switch {
	case from == "iptables" && nftables:
		add(Difference{ID: "ping", What: "a ping of a cluster IP is rejected; before, it left the node or was lost"})
		add(Difference{ID: "mark-unused", What: "no packet mark is used, and the chains KUBE-… except the kubelet's are removed: programs that look for them find nothing"})
	case from == "nftables" && nftables:
		add(Difference{ID: "tables", What: "the tables are ip vmapd and ip6 vmapd, in place of ip kube-proxy and ip6 kube-proxy; base chains of type nat have the same priorities"})
	case from == "ipvs":
		x.ipvs()
	}
}

// ipvs adds what follows from mode ipvs, without a look at its virtual servers.
func (x *comparison) ipvs() {
	x.report.NotCompared = "kube-proxy's virtual servers, ipsets and rules of mode ipvs are not read. " +
		"What follows from the mode for the cluster's Services, and the configuration, is all that is listed here"
	for i := range x.in.Objects.Services {
		s := &x.in.Objects.Services[i]
		if s.InternalTrafficPolicy == "Local" {
			x.noFallback(s, "internalTrafficPolicy: Local without an endpoint on the node drops connections to the cluster IP")
		}
		if s.ExternalTrafficPolicy == "Local" {
			x.noFallback(s, "externalTrafficPolicy: Local without an endpoint on the node drops connections from outside")
		}
	}
	if x.in.Backend == "ipvs" {
		return
	}
	add := func(d Difference) {
		d.ID = "ipvs"
		x.differences[d.What] = &d
	}
	add(Difference{What: "no Service's address is on a device of the node: programs that listen on all addresses no longer answer on cluster IPs, a ping of a cluster IP is not answered, and strictARP has no effect"})
	add(Difference{What: "ipvs.scheduler has no effect", Remedy: "lbAlgorithm: maglev; other schedulers only with the backend ipvs", Keep: "backend: ipvs"})
	for i := range x.in.Objects.Services {
		s := &x.in.Objects.Services[i]
		p := probe{client: Outside, service: s, kind: model.LoadBalancerIP}
		if slices.ContainsFunc(s.Ports, func(p model.Port) bool { return p.NodePort > 0 }) && !x.in.Config.NodePortAddresses.All {
			note(x.differences, Difference{
				ID:   "node-port-address",
				What: "node ports answer on " + x.nodePortAnswers() + " only; before, by default on all addresses",
				Keep: "nodePortAddresses: " + flow(withNodePorts(x.in.Config.NodePortAddresses, "all")),
			}, p, false, nil)
		}
	}
}

// noFallback adds a traffic policy of a Service that kube-proxy's mode ipvs follows only while it has an
// endpoint on the node. With vmapd, it is the same with all backends.
func (x *comparison) noFallback(s *model.Service, what string) {
	note(x.differences, Difference{ID: "ipvs", What: what + "; before, IPVS used endpoints on other nodes"},
		probe{client: Outside, service: s, kind: model.LoadBalancerIP}, false, nil)
}
