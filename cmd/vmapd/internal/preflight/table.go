package preflight

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/vmapd/vmapd/cmd/vmapd/docs"
	"github.com/vmapd/vmapd/model"
)

// row is a known difference. It applies with the modes and backends that it names, with all if it names none. What the
// page From kube-proxy has about it, by its ID as the anchor, is not here: title, change, remedy and the former modes.
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

// fromPage adds what the page has.
func fromPage(rows []row) []row {
	for _, cells := range docs.Rows(docs.FromKubeProxy, "differences") {
		id, text, _ := strings.Cut(strings.TrimPrefix(cells[1], `<a id="`), `"></a>**`)
		i := slices.IndexFunc(rows, func(r row) bool { return r.id == id })
		if i < 0 {
			continue
		}
		r := &rows[i]
		r.title, r.change, _ = strings.Cut(text, ".**")
		r.change = strings.TrimSpace(r.change)
		r.remedy = strings.TrimSuffix(strings.TrimSuffix(cells[2], "`"+r.own+"` in vmapd's file"), "; ")
		if cells[0] != "any" {
			r.from = strings.Split(cells[0], ", ")
		}
	}
	return rows
}

// differences are the rows that change connections which are answered before or after, the most important first.
var differences = fromPage([]row{
	{
		id: "node-port-address", concerns: hasNodePort,
		when: func(c *comparison) bool {
			return len(c.KubeProxy.NodePortAddresses) == 0 && !c.traffic.NodePortAddresses.All
		},
		edit: func(c *comparison, d *Difference) {
			d.Change = "They answer on " + c.nodePortAddrs() +
				" only. kube-proxy's answer on all addresses of the node."
			d.Setting = c.nodePortSetting()
		},
	},
	{
		id: "node-port-loopback", concerns: hasNodePort,
		when: func(c *comparison) bool { return c.loopback() && !c.traffic.NodePortAddresses.Localhost[model.IPv4] },
		edit: func(c *comparison, d *Difference) { d.Setting = c.nodePortSetting() },
	},
	{
		id: "external-in-service-cidr", own: "externalAddresses: {allowServiceCIDRs: true}",
		concerns: hasAddressInServiceCIDR,
		when:     func(c *comparison) bool { return !c.traffic.ExternalAddresses.InServiceCIDRs },
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
	{id: "source-ranges", concerns: hasRestrictedExternalIP},
	{
		id:       "node-hints",
		concerns: func(c *comparison, s *model.Service) bool { return c.hinted[s.NamespacedName] },
		when: func(c *comparison) bool {
			on, set := c.KubeProxy.FeatureGates["PreferSameTrafficDistribution"]
			return set && !on || !set && c.Version < 34
		},
	},
	{
		id: "forward-policy", to: []string{nftables},
		edit: func(c *comparison, d *Difference) { d.Setting = &Setting{c.OwnFile, "backend: " + c.mode()} },
	},
	{id: "input-policy", concerns: hasHealthCheck},
	{
		id: "invalid-packets", own: "dropInvalid: true", to: []string{nftables, iptables, ipvs},
		when: func(c *comparison) bool { return !c.KubeProxy.Conntrack.TCPBeLiberal && !c.traffic.DropInvalid },
	},
	{id: "ipvs-device", own: "backend: ipvs", to: []string{nftables, iptables}},
	{id: "ipvs-scheduler", own: "backend: ipvs", to: []string{nftables, iptables, userspace}},
	{
		id: "ipvs-timeouts", to: []string{nftables, iptables, userspace},
		when: func(c *comparison) bool {
			return c.KubeProxy.IPVS.TCPTimeout.Duration+c.KubeProxy.IPVS.UDPTimeout.Duration > 0
		},
	},
	{id: "ipvs-local", concerns: hasLocalPolicy},
	{
		id: "userspace-source", title: "Endpoints see an address of the node", remedy: "another backend",
		change: "The backend userspace connects to endpoints itself. Connections last as long as vmapd runs.",
		to:     []string{userspace},
	},
	{
		id: "userspace-sctp", title: "SCTP is not served", change: "The backend userspace has TCP and UDP only.",
		remedy: "another backend", to: []string{userspace}, concerns: hasSCTP,
	},
})

// notes are the rows that change no answer to a new connection.
var notes = fromPage([]row{
	{
		id:       "session-affinity",
		concerns: func(_ *comparison, s *model.Service) bool { return s.SessionAffinity == "ClientIP" },
	},
	{
		id: "connection-retry", to: []string{nftables},
		when: func(c *comparison) bool { return c.traffic.ConnectionRetry },
	},
	{id: "ipvs-connections", to: []string{nftables, iptables, userspace}},
	{id: "unused-port"},
	{
		id: "unallocated-address", to: []string{nftables, iptables, ipvs},
		when: func(c *comparison) bool {
			return len(c.Objects.ServiceCIDRs) > 0 && (c.mode() != nftables || c.Version < 33)
		},
	},
	{
		id:       "source-ranges-endpoints",
		concerns: func(_ *comparison, s *model.Service) bool { return len(s.SourceRanges) > 0 },
	},
	{
		id: "node-port-endpoints", concerns: hasNodePort,
		when: func(c *comparison) bool { return !c.traffic.NodePortAddresses.All },
	},
	{id: "chains"},
	{id: "tables", to: []string{nftables}},
	{
		id: "backend", title: "Metrics and details are those of the backend, in place of kube-proxy's mode",
		change: "cmd/vmapd/docs/internals.md lists what backends other than nftables have of their own.",
		when:   func(c *comparison) bool { return c.mode() != c.backend },
	},
})

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
