package ipvs

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/model"
)

// Device is the name of the dummy device that has the addresses.
const Device = "vmapd-ipvs0"

// Schedulers are the kernel's; twos since Linux 5.19.
var Schedulers = []string{"rr", "wrr", "lc", "wlc", "lblc", "lblcr", "sh", "dh", "sed", "nq", "mh", "fo", "ovf", "twos"}

// Options are settings of an administrator, and abilities of the programs on the node. The
// zero value means all defaults.
type Options struct {
	// Scheduler chooses endpoints of Services without an algorithm of their own. "" is rr, IPVS's and kube-proxy's.
	Scheduler string
	// StrictARP keeps the node from answering ARP requests for Services' addresses, which it
	// would otherwise do, because they are on a device.
	StrictARP bool
	// ExcludeCIDRs may contain other programs' virtual servers, which a cleanup does not remove.
	ExcludeCIDRs []netip.Prefix
	// Timeouts of connections that IPVS knows; 0 leaves the kernel's.
	Timeouts Timeouts
	// MasqueradeMark is the bit of the packet mark that requests masquerading. 0 is iptables.DefaultMasqueradeMark.
	MasqueradeMark uint32
	// RandomFully lets MASQUERADE choose source ports at random. It needs iptables 1.6.2.
	RandomFully bool
}

// Timeouts are IPVS's, in whole seconds.
type Timeouts struct{ TCP, TCPFin, UDP time.Duration }

// withDefaults returns the options with defaults in place of zero values.
func (o Options) withDefaults() Options {
	o.Scheduler = cmp.Or(o.Scheduler, "rr")
	o.MasqueradeMark = cmp.Or(o.MasqueradeMark, iptables.DefaultMasqueradeMark)
	return o
}

// Foreign reports whether an unwanted virtual server may belong to somebody else, and must stay.
func (o Options) Foreign(k Key) bool {
	return slices.ContainsFunc(o.ExcludeCIDRs, func(p netip.Prefix) bool { return p.Contains(k.Addr) })
}

// A Sysctl is a kernel parameter on which connections through IPVS depend.
type Sysctl struct {
	Name  string // with dots
	Value string
	Why   string
	// Below is the first kernel version that does not need it; "" is none.
	Below string
}

// Sysctls returns the parameters for a family. Those of IPVS itself serve both families.
func (o Options) Sysctls(f model.Family) []Sysctl {
	list := []Sysctl{
		{
			Name: "net.ipv4.vs.conntrack", Value: "1",
			Why: "without connection tracking there is no source NAT of what IPVS forwards",
		},
		{
			Name: "net.ipv4.vs.conn_reuse_mode", Value: "0", Below: "5.9",
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
