package ipvs

import "github.com/vmapd/vmapd/model"

// A Sysctl is a kernel parameter on which connections through IPVS depend.
type Sysctl struct {
	Name  string // with dots
	Value string
	Why   string
	// From and Below limit the kernel versions that need it; "" is no limit.
	From, Below string
}

// Sysctls returns the parameters for a family. Those of IPVS itself serve both families.
func (o Options) Sysctls(f model.Family) []Sysctl {
	list := []Sysctl{
		{
			Name: "net.ipv4.vs.conntrack", Value: "1",
			Why: "without connection tracking there is no source NAT of what IPVS forwards",
		},
		{
			Name: "net.ipv4.vs.conn_reuse_mode", Value: "0", From: "4.1", Below: "5.9",
			Why: "with 1, a client that uses a port again waits a second for its connection (kubernetes #93297); with 0 " +
				"it may get an endpoint that drains. Linux 5.9 does neither",
		},
		{
			Name: "net.ipv4.vs.expire_nodest_conn", Value: "1",
			Why: "connections to a real server that was deleted end at once, instead of leading nowhere until they time out",
		},
		{
			Name: "net.ipv4.vs.expire_quiescent_template", Value: "1",
			Why: "a client that comes back to a real server of weight 0 gets another: without it, session affinity " +
				"goes on sending to an endpoint that drains",
		},
	}
	if f == model.IPv6 {
		return list
	}
	list = append(list, Sysctl{
		Name: "net.ipv4.ip_forward", Value: "1",
		Why: "replies of pods are forwarded",
	})
	if o.StrictARP {
		list = append(list,
			Sysctl{
				Name: "net.ipv4.conf.all.arp_ignore", Value: "1",
				Why: "do not answer for addresses of another device: those of the dummy device are every node's",
			},
			Sysctl{
				Name: "net.ipv4.conf.all.arp_announce", Value: "2",
				Why: "do not ask with such an address as one's own, from which others would learn it",
			},
		)
	}
	return list
}
