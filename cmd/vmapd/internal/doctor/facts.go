package doctor

import (
	"net/netip"
	"slices"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/others"
	"github.com/vmapd/vmapd/sync/health"
	"github.com/vmapd/vmapd/sync/informer"
)

// Wants are the parts of the configuration and of the Services that the node must meet. Without a
// daemon, they come from flags alone.
type Wants struct {
	NodeName, Backend string
	PodRanges         []netip.Prefix           // of --cluster-cidr and of the Node
	LocalPods         []netip.Addr             // a few endpoints on this node
	ServicePorts      [len(model.Families)]int // the number of service ports
	MasqueradeAll     bool                     // connections of pods to cluster IPs are masqueraded
	Conntrack         nodesetup.Conntrack
}

// Daemon is what the daemon knows about itself.
type Daemon struct {
	Wants       Wants
	Started     time.Time
	NetAdmin    bool
	Why         string // the reason for choosing the backend
	ConfigError string // for which the last change of the configuration was refused
	Health      health.Status
	Pending     int      // changes that wait for a round
	Cluster     *Cluster // nil with files
	// NodeUnread: not all objects have been read once, and nothing is known about the Node.
	NodeUnread   bool
	Node         model.NodeState
	NodeObject   model.NodeObject
	HostAddrs    []netip.Addr // of this machine
	Pods         model.LocalPods
	OtherProxies []string
	Leftovers    string
	Unexamined   []string // kinds of leftovers that could not be looked for
	Ports        []error  // of the daemon's own ports
	// FastPath says whether connections take the fast path; "": it is off. NoFastPath: some that should can't.
	FastPath   string
	NoFastPath bool
	// Retry says whether the kernel chooses another endpoint where one does not answer; "": it is off. NoRetry: it can't.
	Retry   string
	NoRetry bool
}

// Cluster is what is known about the API server.
type Cluster struct {
	Address string
	Heard   time.Time     // the last answer; zero: there was none
	Skew    time.Duration // of its clock against this node's
	Failing []informer.Failure
	Unread  []string // kinds that have not been read once: of these, nothing is known
}

// Answer is what the daemon says of itself, and what it wants of the node.
type Answer struct {
	Version string
	Wants   Wants
	Lines   []report.Line
}

// Answer judges what the daemon knows.
func (d *Daemon) Answer(version string) Answer {
	a := Answer{Version: version, Wants: d.Wants}
	for _, c := range checks {
		if c.ofDaemon != nil {
			var l found
			c.ofDaemon(d, &l)
			a.Lines = append(a.Lines, l.named(c.name)...)
		}
	}
	return a
}

// Facts are everything that Diagnose judges.
type Facts struct {
	At      time.Time
	Version string  // of this program
	Daemon  *Answer // nil if none answers
	// NoDaemon is the reason for which none answers, and Hangs: one is there, so that nothing is known about its rules.
	NoDaemon string
	Hangs    bool
	// ConfigError is the reason for which a daemon with the same flags would not start.
	ConfigError string
	Table       []report.Line // the comparison of the kernel's rules with those of the Services
	Wants       Wants
	Host        Host
}

// Host is what the node alone shows.
type Host struct {
	Kernel   string // its release
	NetAdmin bool   // this process has CAP_NET_ADMIN
	// Sysctls are the values of files below /proc/sys, without that prefix. One that could not be read is missing.
	Sysctls map[string]string
	Addrs   []netip.Addr
	Bridges []Bridge // with ports that lead to other network namespaces
	// Tracked and TrackedMost are the use of connection tracking's table; TrackedMost is 0 without one, or a limit.
	Tracked, TrackedMost int
	Unset                []nodesetup.Write // settings that the configuration wants, and the node does not have
	ReadOnly             bool              // /proc/sys is
	// Leftovers of other proxies, Listening, the mode of a proxy at the metrics port, and NoPrograms, those that the
	// configured backend runs and that are not installed, are known only without a daemon.
	Leftovers, Listening string
	Unexamined           []string // kinds of leftovers that could not be looked for
	NoPrograms           []string
	// Chains are base chains of other programs, and Unread the errors of reading them.
	Chains []Chain
	Unread []string
	// LegacyTables are the tables of iptables-legacy that may drop packets, by family.
	LegacyTables [len(model.Families)][]string
}

// Chain is a base chain of another program.
type Chain struct {
	others.Base
	// Rules is the number of rules that may drop or reject packets, in the chain or in those to which it leads.
	Rules int
	// Untracks are the rules there that keep packets from connection tracking, if the chain is before that.
	Untracks []others.Line
}

// Bridge is a bridge with its addresses.
type Bridge struct {
	Name  string
	Addrs []netip.Prefix
}

// WantsOf returns what the node must meet, without the names of the node and the backend. The snapshot
// is nil before the first lists are read.
func WantsOf(c nodesetup.Conntrack, traffic model.Config, s *model.Snapshot) Wants {
	w := Wants{
		Conntrack: c, MasqueradeAll: traffic.MasqueradeAll, PodRanges: traffic.LocalPods.ClusterCIDRs,
	}
	if s == nil {
		return w
	}
	w.PodRanges = slices.Concat(w.PodRanges, s.NodeObject().PodCIDRs)
	for _, f := range model.Families {
		family := s.Family(f)
		w.ServicePorts[f] = family.NumServicePorts()
		w.LocalPods = append(w.LocalPods, localPods(family)...)
	}
	return w
}

// fewPods is the number of endpoints on this node that doctor looks at, of each family.
const fewPods = 3

// localPods returns a few endpoints on this node.
func localPods(s *model.FamilySnapshot) (pods []netip.Addr) {
	for sp := range s.ServicePorts() {
		for _, e := range sp.Endpoints {
			if len(pods) == fewPods {
				return pods
			}
			if a := e.Addr.Addr(); e.Local && !slices.Contains(pods, a) && !slices.Contains(s.NodeAddrs, a) {
				pods = append(pods, a)
			}
		}
	}
	return pods
}
