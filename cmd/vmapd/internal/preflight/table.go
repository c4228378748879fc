package preflight

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/model"
)

// row is a known difference. It applies with the modes and backends that it names, with all if it names none.
type row struct {
	id, title, change, remedy string
	from, to                  []string
	when                      func(*comparison) bool
	// concerns selects Services; nil: the row concerns the node as a whole.
	concerns func(*comparison, *model.Service) bool
	// own is the setting in vmapd's file; edit fills in what is not the same everywhere.
	own  string
	edit func(*comparison, *Difference)
}

func (r *row) applies(c *comparison) bool {
	return (r.from == nil || slices.Contains(r.from, c.mode())) &&
		(r.to == nil || slices.Contains(r.to, c.Backend)) && (r.when == nil || r.when(c))
}

// differences are the rows that change connections which are answered before or after, the most important first.
var differences = []row{
	{
		id: "node-port-address", title: "Node ports answer on fewer addresses",
		remedy: "the mode in kube-proxy's file with backend: nftables in vmapd's keeps the addresses, too",
		from:   []string{iptables, ipvs}, concerns: hasNodePort,
		when: func(c *comparison) bool {
			return len(c.KubeProxy.NodePortAddresses) == 0 && !c.Config.NodePortAddresses.All
		},
		edit: func(c *comparison, d *Difference) {
			d.Change = "They answer on " + c.nodePortAddrs() +
				" only. kube-proxy's answer on all addresses of the node."
			d.Setting = c.nodePortSetting()
		},
	},
	{
		id: "node-port-loopback", title: "Node ports do not answer on 127.0.0.1",
		change: "kube-proxy's answer there. With the setting, vmapd listens there for TCP and UDP.",
		from:   []string{iptables}, concerns: hasNodePort,
		when: func(c *comparison) bool { return c.loopback() && !c.Config.NodePortAddresses.Localhost[model.IPv4] },
		edit: func(c *comparison, d *Difference) { d.Setting = c.nodePortSetting() },
	},
	{
		id: "external-in-service-cidr", title: "External addresses in a ServiceCIDR are not served",
		change:   "The API server may give an external IP or load balancer's address to another Service.",
		remedy:   "give the Services other addresses, or allow these",
		own:      "externalAddresses: {allowServiceCIDRs: true}",
		concerns: hasAddressInServiceCIDR,
		when:     func(c *comparison) bool { return !c.Config.ExternalAddresses.InServiceCIDRs },
	},
	{
		id: "problem", title: "Services are served only in part",
		change: "kube-proxy may serve the rest.", remedy: "correct the Services",
		concerns: func(c *comparison, s *model.Service) bool { return len(c.problems[s.NamespacedName]) > 0 },
		edit: func(c *comparison, d *Difference) {
			for _, s := range c.served {
				d.Details = append(d.Details, c.problems[s.NamespacedName]...)
			}
		},
	},
	{
		id: "source-ranges", title: "Source ranges apply to an address that is an external IP, too",
		change: "An address may be the load balancer's and an external IP: kube-proxy admits all clients to it.",
		remedy: "add the clients' ranges to loadBalancerSourceRanges, or give the Service another external IP",
		from:   []string{iptables}, concerns: hasRestrictedExternalIP,
	},
	{
		id: "node-hints", title: "Hints for nodes are honoured (trafficDistribution: PreferSameNode)",
		change:   "kube-proxy ignores them before 1.34, and without the gate PreferSameTrafficDistribution.",
		remedy:   "remove spec.trafficDistribution of the Services",
		concerns: func(c *comparison, s *model.Service) bool { return c.hinted[s.NamespacedName] },
		when: func(c *comparison) bool {
			on, set := c.KubeProxy.FeatureGates["PreferSameTrafficDistribution"]
			return set && !on || !set && c.Version < 34
		},
	},
	{
		id: "forward-policy", title: "No rule accepts traffic of Services in the chain FORWARD of iptables",
		change: "kube-proxy's rules do. If its policy is DROP, the traffic may be dropped (iptables -S FORWARD).",
		remedy: "let the network plugin or the firewall accept the pods' traffic, or keep the mode",
		from:   []string{iptables, ipvs}, to: []string{nftables},
		edit: func(c *comparison, d *Difference) { d.Setting = &Setting{c.OwnFile, "backend: " + c.mode()} },
	},
	{
		id: "input-policy", title: "No rule accepts health checks of load balancers in the chain INPUT of iptables",
		change: "kube-proxy's rules do. If its policy is DROP, they may be dropped (iptables -S INPUT).",
		remedy: "accept connections of your load balancers to the health-check node ports",
		from:   []string{iptables, ipvs}, concerns: hasHealthCheck,
	},
	{
		id: "invalid-packets", title: "Packets that are INVALID for connection tracking are forwarded",
		change: "kube-proxy drops them.", own: "dropInvalid: true",
		remedy: "drop those of Services, or set conntrack.tcpBeLiberal: true in kube-proxy's file, which makes " +
			"them rare",
		from: []string{iptables}, to: []string{nftables, iptables, ipvs},
		when: func(c *comparison) bool { return !c.KubeProxy.Conntrack.TCPBeLiberal && !c.Config.DropInvalid },
	},
	{
		id: "ipvs-device", title: "No address of a Service is on a device of the node", own: "backend: ipvs",
		change: "kube-ipvs0 is removed: programs that listen on all addresses do not answer on cluster IPs, " +
			"a ping of a cluster IP is not answered, and strictARP has no effect.",
		from: []string{ipvs}, to: []string{nftables, iptables},
	},
	{
		id: "ipvs-scheduler", title: "ipvs.scheduler has no effect", own: "backend: ipvs",
		change: "lbAlgorithm in vmapd's file chooses: at random by default, by the client's address with maglev.",
		from:   []string{ipvs}, to: []string{nftables, iptables, userspace},
	},
	{
		id: "ipvs-timeouts", title: "Timeouts of IPVS have no effect",
		change: "Those of connection tracking apply.",
		remedy: "set tcpEstablishedTimeout, udpTimeout and udpStreamTimeout of conntrack in kube-proxy's file",
		from:   []string{ipvs}, to: []string{nftables, iptables, userspace},
		when: func(c *comparison) bool {
			return c.KubeProxy.IPVS.TCPTimeout.Duration+c.KubeProxy.IPVS.UDPTimeout.Duration > 0
		},
	},
	{
		id: "ipvs-local", title: "Traffic policies Local drop connections without an endpoint on the node",
		change: "kube-proxy's mode ipvs uses endpoints on other nodes. All backends of vmapd drop.",
		remedy: "the policy Cluster, or an endpoint on each node that has clients",
		from:   []string{ipvs}, concerns: hasLocalPolicy,
	},
	{
		id: "userspace-source", title: "Endpoints see an address of the node", remedy: "another backend",
		change: "The backend userspace connects to endpoints itself. Connections last as long as vmapd runs.",
		to:     []string{userspace},
	},
	{
		id: "userspace-sctp", title: "SCTP is not served", change: "The backend userspace has TCP and UDP only.",
		remedy: "another backend", to: []string{userspace}, concerns: hasSCTP,
	},
}

// notes are the rows that change no answer to a new connection.
var notes = []row{
	{
		id: "session-affinity", title: "Clients with session affinity may get another endpoint, once",
		change:   "vmapd does not know which one kube-proxy chose for them.",
		concerns: func(_ *comparison, s *model.Service) bool { return s.SessionAffinity == "ClientIP" },
	},
	{
		id: "connection-retry", title: "A connection without an answer within a second gets another endpoint",
		change: "An endpoint that is more than a second away is never reached: connectionRetry: false, or the " +
			"annotation " + model.AnnotationConnectionRetry + " of its Service. It needs CONFIG_NF_CONNTRACK_TIMEOUT.",
		to: []string{nftables}, when: func(c *comparison) bool { return c.Config.ConnectionRetry },
	},
	{
		id: "ipvs-connections", title: "Established connections may end at the switch",
		change: "The virtual servers of IPVS are removed. Choose a quiet time.",
		from:   []string{ipvs}, to: []string{nftables, iptables, userspace},
	},
	{
		id: "unused-port", title: "A ping of a cluster IP, and ports that the Service does not have, are refused",
		change: "With kube-proxy, such packets leave the node or are lost.", from: []string{iptables},
	},
	{
		id: "unallocated-address", title: "Packets to an address of a ServiceCIDR that no Service has are dropped",
		change: "kube-proxy sends them on in the modes iptables and ipvs, and before 1.33.",
		to:     []string{nftables, iptables, ipvs},
		when: func(c *comparison) bool {
			return len(c.Objects.ServiceCIDRs) > 0 && (c.mode() != nftables || c.Version < 33)
		},
	},
	{
		id: "source-ranges-endpoints", title: "Source ranges apply to Services without endpoints, too",
		change:   "vmapd drops other clients' packets. kube-proxy rejects them while there is no endpoint.",
		from:     []string{iptables},
		concerns: func(_ *comparison, s *model.Service) bool { return len(s.SourceRanges) > 0 },
	},
	{
		id: "node-port-endpoints", title: "Where node ports do not answer, they are not rejected either",
		change: "kube-proxy rejects the node port of a Service without endpoints on all addresses of the node.",
		from:   []string{iptables}, concerns: hasNodePort,
		when: func(c *comparison) bool { return !c.Config.NodePortAddresses.All },
	},
	{
		id: "chains", title: "The chains KUBE-… of iptables are removed, except the kubelet's",
		change: "Programs that look for them find none. With nftables, no packet has kube-proxy's mark 0x4000.",
		from:   []string{iptables, ipvs},
	},
	{
		id: "tables", title: "The tables are ip vmapd and ip6 vmapd, in place of ip kube-proxy and ip6 kube-proxy",
		change: "DNAT is at -101 in place of -100: a node port has priority over a host port of the same number. " +
			"Calico's Felix on Auto looks for kube-proxy's table.",
		remedy: "set Calico's mode to nftables, in the Installation",
		from:   []string{nftables}, to: []string{nftables},
	},
	{
		id: "backend", title: "Metrics and details are those of the backend, in place of kube-proxy's mode",
		change: "cmd/vmapd/docs/internals.md lists what backends other than nftables have of their own.",
		when:   func(c *comparison) bool { return c.mode() != c.Backend },
	},
}

func hasNodePort(_ *comparison, s *model.Service) bool {
	return slices.ContainsFunc(s.Ports, func(p model.Port) bool { return p.NodePort > 0 })
}

func hasSCTP(_ *comparison, s *model.Service) bool {
	return slices.ContainsFunc(s.Ports, func(p model.Port) bool { return p.Protocol == "SCTP" })
}

// ingress are the load balancers' addresses of a Service that the node serves (KEP-1860).
func ingress(s *model.Service) (list []string) {
	for _, i := range s.Ingress {
		if i.IP != "" && i.IPMode != "Proxy" {
			list = append(list, i.IP)
		}
	}
	return list
}

func hasAddressInServiceCIDR(c *comparison, s *model.Service) bool {
	return slices.ContainsFunc(slices.Concat(s.ExternalIPs, ingress(s)), func(text string) bool {
		a, err := model.ParseAddr(text)
		return err == nil && slices.ContainsFunc(c.snapshot.Family(model.FamilyOf(a)).ServiceCIDRs,
			func(p netip.Prefix) bool { return p.Contains(a) })
	})
}

// hasRestrictedExternalIP reports whether source ranges apply to an address that is an external IP, too.
func hasRestrictedExternalIP(_ *comparison, s *model.Service) bool {
	return len(s.SourceRanges) > 0 &&
		slices.ContainsFunc(ingress(s), func(ip string) bool { return slices.Contains(s.ExternalIPs, ip) })
}

func hasLocalPolicy(_ *comparison, s *model.Service) bool {
	return s.InternalTrafficPolicy == "Local" || s.ExternalTrafficPolicy == "Local"
}

func hasHealthCheck(_ *comparison, s *model.Service) bool {
	return s.HealthCheckNodePort != 0 && s.Type == "LoadBalancer" && s.ExternalTrafficPolicy == "Local"
}

// nodePortAddrs are the addresses on which vmapd's node ports answer, as far as they are known.
func (c *comparison) nodePortAddrs() string {
	var list []string
	for _, f := range model.Families {
		for _, a := range c.snapshot.Family(f).NodePortAddrs {
			list = append(list, a.String())
		}
	}
	if len(list) == 0 {
		return "the node's primary addresses"
	}
	return strings.Join(list, " and ")
}
