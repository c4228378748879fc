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

// userspace is the backend that forwards no packets.
const userspace = "userspace"

// Wants are the parts of the configuration and of the Services that the node must meet. Without a
// daemon, they come from flags alone.
type Wants struct {
	NodeName, Backend string
	PodRanges         []netip.Prefix           // of --cluster-cidr and of the Node
	LocalPods         []netip.Addr             // a few endpoints on this node
	Pods              []netip.Addr             // these, and a few on other nodes
	ServicePorts      [len(model.Families)]int // the number of service ports
	MasqueradeAll     bool                     // connections of pods to cluster IPs are masqueraded
	Conntrack         nodesetup.Conntrack
}

// Facts are everything that Diagnose judges.
type Facts struct {
	At      time.Time
	Version string  // of the program that examines
	Daemon  *Daemon // nil: none answers
	// NoDaemon is the reason for which none answers, and Other what to do if one is there all the same.
	NoDaemon error
	Other    string
	// ConfigError is the reason for which the last change of the configuration is refused or, without a daemon, for which
	// one with the same flags would not start.
	ConfigError string
	Table       []report.Line // the comparison of the kernel's rules with those of the Services
	Wants       Wants
	Host        Host
	// OtherProxies, their Leftovers, and kinds of leftovers that could not be looked for.
	OtherProxies []string
	Leftovers    string
	Unexamined   []string
	NoPrograms   []string // of those that the configured backend runs; known only without a daemon
}

// Daemon is what only the daemon knows.
type Daemon struct {
	Started time.Time
	Why     string // the reason for choosing the backend
	Health  health.Status
	Pending int      // changes that wait for a round
	Cluster *Cluster // nil with files
	// NodeUnread: not all objects have been read once, and nothing is known about the Node.
	NodeUnread bool
	Node       model.NodeState
	NodeObject model.NodeObject
	Pods       model.LocalPods
	// IsClusterIP reports whether an address is a Service's; nil: none is known.
	IsClusterIP func(netip.Addr) bool
	Ports       []error  // of the daemon's own ports
	Listeners   []string // what the listeners of the backend userspace do not serve
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

// Host is what the node alone shows.
type Host struct {
	Kernel   string // its release
	NetAdmin bool   // this process has CAP_NET_ADMIN
	// Sysctls are the values of files below /proc/sys, without that prefix. One that could not be read is missing.
	Sysctls map[string]string
	Addrs   []netip.Addr
	Bridges []Bridge // with ports that lead to other network namespaces
	NoRoute []string // pods that the kernel does not route to, with the reasons
	// Tracked and TrackedMost are the use of connection tracking's table; TrackedMost is 0 without one, or a limit.
	Tracked, TrackedMost int
	Unset                []nodesetup.Write // settings that the configuration wants, and the node does not have
	ReadOnly             bool              // /proc/sys is
	Rules
}

// Rules are those of other programs.
type Rules struct {
	Chains []Chain  // base chains
	Unread []string // the errors of reading them
	// LegacyTables are the tables of iptables-legacy that may drop packets, by family.
	LegacyTables [len(model.Families)][]string
}

// Chain is a base chain of another program.
type Chain struct {
	others.Base
	// Rules is the number of rules that may drop or reject packets, in the chain or in those to which it leads.
	Rules int
	// Untracks are the rules there that keep packets from connection tracking, if the chain is before that, and
	// Translates those that replace the destination by an address.
	Untracks, Translates []others.Line
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
		pods := pods(family, w.PodRanges)
		w.LocalPods, w.Pods = append(w.LocalPods, pods[1]...), slices.Concat(w.Pods, pods[1], pods[0])
	}
	return w
}

// fewPods is the number of endpoints on this node, and on others, that doctor looks at, of each family.
const fewPods = 3

// pods returns a few endpoints on other nodes, with addresses in the ranges of pods, and a few on this node.
func pods(s *model.FamilySnapshot, ranges []netip.Prefix) (list [2][]netip.Addr) {
	for sp := range s.ServicePorts() {
		for _, e := range sp.Endpoints {
			where, a := 0, e.Addr.Addr()
			if e.Local {
				where = 1
			}
			isPod := e.Local && !slices.Contains(s.NodeAddrs, a) ||
				!e.Local && slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(a) })
			if len(list[where]) < fewPods && isPod && !slices.Contains(list[where], a) {
				list[where] = append(list[where], a)
			}
		}
		if len(list[0]) == fewPods && len(list[1]) == fewPods {
			break
		}
	}
	return list
}
