package model

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// NodePortAddresses selects the addresses of the node on which node ports answer. The zero value selects none.
type NodePortAddresses struct {
	Primary bool           // the node's primary address of each family; if it has none of one, all addresses of that
	All     bool           // every address of the node but loopback
	CIDRs   []netip.Prefix // those of the node's addresses that lie in one of these
	// Unlisted are the families of which a list of nothing but ranges has none. As with kube-proxy, their node ports
	// answer on all addresses: clusters rely on it.
	Unlisted [len(Families)]bool
	// Localhost selects the loopback addresses. The kernel does not forward from these, so a
	// program listens there (KEP-6032).
	Localhost [len(Families)]bool
}

// Config is the part of the configuration that concerns traffic.
type Config struct {
	// NodeName is this Node's name in the API; endpoints with it are local.
	NodeName string
	// NodePortAddresses defaults to Primary in the commands.
	NodePortAddresses NodePortAddresses
	LocalPods         LocalPods
	// MasqueradeAll masquerades all traffic to cluster IPs.
	MasqueradeAll bool
	// Algorithm chooses endpoints of Services without AnnotationAlgorithm.
	Algorithm Algorithm
	// TableSize is the number of slots of a lookup table, from MinTableSize to MaxTableSize. Default:
	// DefaultTableSize. Two of the same size are the same on all nodes.
	TableSize int
	// PrimaryAddress is this node's primary address of its family; the zero value is the first one of the Node object.
	PrimaryAddress netip.Addr
	// ConnectionGrace is for Services without AnnotationConnectionGrace; 0 is never.
	ConnectionGrace time.Duration
	// ConnectionRetry is for Services without AnnotationConnectionRetry, see ServicePort.RetryAfter.
	ConnectionRetry bool
	// DropInvalid drops packets from endpoints that are INVALID for connection tracking. They
	// would reach the client with the pod's address, and the client would reset the connection.
	DropInvalid       bool
	ExternalAddresses ExternalAddresses
	Budgets           Budgets
}

// DefaultTableSize is the number of slots of a lookup table unless Config.TableSize says otherwise. It is prime,
// so that each step of a permutation has a chance to be another. Up to 50 endpoints, a change moves at
// most 1.5/n of the clients, and up to 200 no endpoint has more than 1.05 of the mean: see lookupTable.
const DefaultTableSize = 4093

// MinTableSize and MaxTableSize are the limits of Config.TableSize.
const (
	MinTableSize = 61
	MaxTableSize = 65521
)

// LocalPods says how connections from pods are identified (KEP-2450). The zero value can't: no
// connection is then treated as a pod's, and none as coming from outside.
type LocalPods struct {
	Mode LocalPodsMode
	// ClusterCIDRs are the pods' ranges in the whole cluster, for ByClusterCIDR.
	ClusterCIDRs []netip.Prefix
	// Interface is the bridge's name, or the prefix of the names of pods' interfaces. It must
	// have passed CheckInterface: no backend checks it again.
	Interface string
}

// MaxInterface is the longest name of an interface (IFNAMSIZ with its final zero).
const MaxInterface = 15

// CheckInterface says what is wrong with the name of an interface or, with prefix, with the beginning of one. The name
// gets into rules as it is, also into those of iptables, where "+" at the end stands for any ending.
func CheckInterface(name string, prefix bool) error {
	odd := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"'\*/:!`, r) }
	switch {
	case len(name) > MaxInterface:
		return fmt.Errorf("longer than the %d bytes that an interface's name can have", MaxInterface)
	case strings.ContainsFunc(name, odd), !prefix && strings.HasSuffix(name, "+"):
		return errors.New("not the name of an interface")
	}
	return nil
}

// LocalPodsMode is kube-proxy's detectLocalMode.
type LocalPodsMode uint8

// The modes.
const (
	// ByClusterCIDR: the source is in one of ClusterCIDRs.
	ByClusterCIDR LocalPodsMode = iota
	// ByNodeCIDR: the source is in one of this Node's spec.podCIDRs.
	ByNodeCIDR
	// ByBridge: the connection comes in by the interface of this name.
	ByBridge
	// ByInterfacePrefix: … by an interface with a name that begins with this.
	ByInterfacePrefix
)

// ExternalAddresses restricts the addresses that Services may have besides their cluster IPs:
// those of spec.externalIPs, which a tenant chooses freely (CVE-2020-8554), and those of
// status.loadBalancer. The zero value serves what kube-proxy serves, except addresses in a range of cluster IPs.
type ExternalAddresses struct {
	// NoExternalIPs: spec.externalIPs are not served, as with kube-proxy's gate AllowServiceExternalIPs=false (KEP-5707).
	NoExternalIPs bool
	// Ranges, if there are any: spec.externalIPs outside of them are not served.
	Ranges []netip.Prefix
	// InServiceCIDRs: addresses in a ServiceCIDR are served. Otherwise they are not, since the
	// API server may give each of them to another Service.
	InServiceCIDRs bool
	// NoNodeAddresses: addresses of this node are not served. Otherwise they are: clusters
	// without a load balancer, and k3s' ServiceLB, depend on it.
	NoNodeAddresses bool
}
