package doctor

import (
	"net/netip"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/others"
)

// Facts are everything that Diagnose judges.
type Facts struct {
	At      time.Time
	Version string  // of this program
	Daemon  *Daemon // nil if none answers
	// NoDaemon is the reason for which none answers, and Hangs: one is there, so that nothing is known about its rules.
	NoDaemon string
	Hangs    bool
	// ConfigError is the reason for which a daemon with the same flags would not start.
	ConfigError string
	Wants       Wants
	Host        Host
}

// Wants are the parts of the configuration and of the Services that the node must meet. Without a
// daemon, they come from flags alone.
type Wants struct {
	NodeName string `json:"nodeName"`
	Backend  string `json:"backend"` // nftables, ipvs or iptables; "" is not known
	// PodsBy is the mode by which pods are told from others. The ranges are those of the mode
	// ClusterCIDR.
	PodsBy       string         `json:"podsBy,omitempty"`
	ClusterCIDRs []netip.Prefix `json:"clusterCIDRs,omitempty"`
	// ServicePorts is the number of service ports of each family.
	ServicePorts [len(model.Families)]int `json:"servicePorts"`
	NodeAddrs    []netip.Addr             `json:"nodeAddrs,omitempty"` // those of node ports
	LocalPods    []netip.Addr             `json:"localPods,omitempty"` // a few endpoints on this node
	// MasqueradeAll: connections of pods to cluster IPs are masqueraded.
	MasqueradeAll bool `json:"masqueradeAll,omitempty"`
	// Conntrack are the settings of connection tracking.
	Conntrack nodesetup.Conntrack `json:"conntrack"`
}

// Daemon is the daemon's own view.
type Daemon struct {
	Version  string    `json:"version"`
	Started  time.Time `json:"started"`
	NetAdmin bool      `json:"netAdmin"`
	Why      string    `json:"why"` // the reason for choosing the backend
	// ConfigError is the reason for which the last change of the configuration was refused.
	ConfigError string   `json:"configError,omitempty"`
	Cluster     *Cluster `json:"cluster,omitempty"` // nil with files
	Node        Node     `json:"node"`
	Families    []Rounds `json:"families"`
	Pending     int      `json:"pending"` // changes that wait for a round
	// Table is the comparison of the kernel's tables with the rules that they should have, nil if
	// there was none.
	Table        *Table   `json:"table,omitempty"`
	OtherProxies []string `json:"otherProxies,omitempty"`
	Leftovers    string   `json:"leftovers,omitempty"`
	Ports        []string `json:"ports,omitempty"`    // errors of the daemon's own ports
	PortsOff     []string `json:"portsOff,omitempty"` // those that the configuration turns off
	// FastPath says whether connections take the fast path; "": it is off. NoFastPath: some that should can't.
	FastPath   string `json:"fastPath,omitempty"`
	NoFastPath bool   `json:"noFastPath,omitempty"`
	Wants      Wants  `json:"wants"`
}

// Cluster is what is known about the API server.
type Cluster struct {
	Heard   time.Time     `json:"heard"`            // the last answer; zero: there was none
	Skew    time.Duration `json:"skew"`             // of its clock against this node's
	Skewed  bool          `json:"skewKnown"`        // Skew is known
	Errors  []APIError    `json:"errors"`           // kinds of objects that can't be read now
	Unread  []string      `json:"unread,omitempty"` // kinds that have not been read once: of these, nothing is known
	Address string        `json:"address"`          // of the server
	Server  string        `json:"server,omitempty"` // its version, such as v1.36.2, if it is known
}

// APIError is a kind of objects that can't be read.
type APIError struct {
	Resource string    `json:"resource"`
	Since    time.Time `json:"since"`
	Error    string    `json:"error"`
	Remedy   string    `json:"remedy,omitempty"`
}

// Node is what is known about the Node object.
type Node struct {
	Known       bool           `json:"known"`
	Unread      bool           `json:"unread,omitempty"` // nothing is known: not all objects have been read once
	Never       bool           `json:"never"`            // the cluster never had it
	NotEligible string         `json:"notEligible,omitempty"`
	Addrs       []netip.Addr   `json:"addrs,omitempty"`
	PodCIDRs    []netip.Prefix `json:"podCIDRs,omitempty"`
}

// Rounds is the state of one IP family.
type Rounds struct {
	Family  string    `json:"family"`
	Synced  time.Time `json:"synced"`           // the last success; zero: there was none
	Waiting time.Time `json:"waiting,omitzero"` // since when a change waits
	Error   string    `json:"error,omitempty"`  // of the last round
	Healthy bool      `json:"healthy"`
}

// Table is a comparison of the kernel's tables with the snapshot.
type Table struct {
	Differences []string `json:"differences,omitempty"` // the first few
	Count       int      `json:"count"`                 // of all differences
	Errors      []string `json:"errors,omitempty"`      // of reading, by family
	Skipped     string   `json:"skipped,omitempty"`     // the reason for which nothing was compared
}

// Host is what the node alone tells.
type Host struct {
	Kernel   string // its release
	NetAdmin bool   // this process has CAP_NET_ADMIN
	// Sysctls are the values of files below /proc/sys, without that prefix. One that could not be
	// read is missing.
	Sysctls    map[string]string
	Interfaces []Interface
	// Bridges are those with ports that lead to other network namespaces.
	Bridges []Bridge
	// DefaultRoutes are the interfaces of the default routes.
	DefaultRoutes [len(model.Families)]string
	Conntrack     Conntrack
	// Unset are the settings that the configuration wants, and the node does not have.
	Unset []nodesetup.Write
	// Proc is whether /proc/sys is writable, for the remedy.
	ReadOnly bool
	// Leftovers of other proxies or backends, as text; only without a daemon.
	Leftovers string
	// NoPrograms are those that the configured backend runs, and that are not installed; only without a daemon.
	NoPrograms []string
	// Listening is the mode of a proxy that answers at the metrics port; only without a daemon.
	Listening string
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

// Interface is a network interface with its addresses.
type Interface struct {
	Name  string
	Addrs []netip.Addr
}

// Bridge is a bridge with its addresses.
type Bridge struct {
	Name  string
	Addrs []netip.Prefix
}

// Conntrack is the use of the connection tracking table.
type Conntrack struct {
	Known       bool
	Used, Limit int
	// InsertFailed and Dropped count connections since the network namespace was made.
	InsertFailed, Dropped uint64
}
