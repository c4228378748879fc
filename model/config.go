package model

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// NodePortAddresses selects the addresses of the node on which node ports answer. The zero value selects none.
type NodePortAddresses struct {
	Primary bool           // the node's primary address of each family
	All     bool           // every address of the node but loopback
	CIDRs   []netip.Prefix // those of the node's addresses that lie in one of these
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
	// LocalPods says how connections from pods are identified.
	LocalPods LocalPods
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
	// OutlierDetection is for Services without AnnotationOutlierDetection, see Ejections.
	OutlierDetection bool
	// DropInvalid drops packets from endpoints that are INVALID for connection tracking. They
	// would reach the client with the pod's address, and the client would reset the connection.
	DropInvalid bool
	// ExternalAddresses restricts the addresses that Services have besides their cluster IPs.
	ExternalAddresses ExternalAddresses
	// Budgets limit the cost of each Service.
	Budgets Budgets
	// ServiceCounters: connections are counted, as far as the budget of a Service allows.
	ServiceCounters bool
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

// withDefaults fills in the fields that are 0.
func (c Config) withDefaults() Config {
	c.Budgets, c.TableSize = c.Budgets.WithDefaults(), cmp.Or(c.TableSize, DefaultTableSize)
	return c
}

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
	// ByInterfacePrefix: … by an interface whose name begins with this.
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

// Annotation is an annotation of Services that vmapd reads.
type Annotation struct {
	Name      string
	Sets      string   // what the value is, in words
	Examples  []string // of valid values
	Otherwise string   // what happens without a value, or with an invalid one
	parse     func(to *annotated, value string) (note string, err error)
}

// The names of the annotations that others refer to.
const (
	AnnotationAlgorithm        = "vmapd.io/lb-algorithm"
	AnnotationConnectionGrace  = "vmapd.io/connection-grace"
	AnnotationOutlierDetection = "vmapd.io/outlier-detection"
)

// Annotations are all annotations. The others of a Service are not read.
var Annotations = [...]Annotation{
	{
		AnnotationAlgorithm, "algorithm that chooses an endpoint",
		[]string{"random", "maglev", "maglev-port"},
		"the configuration decides",
		func(to *annotated, value string) (string, error) {
			a, note, err := ParseAlgorithm(value)
			if err == nil {
				to.algorithm = &a
			}
			return note, err
		},
	},
	{
		AnnotationConnectionGrace,
		"time after which TCP and SCTP connections to a removed endpoint are closed; `0s` is never",
		[]string{"30s"},
		"the configuration decides",
		func(to *annotated, value string) (string, error) {
			d, err := time.ParseDuration(value)
			if err != nil || d < 0 {
				return "", fmt.Errorf("%q is not a duration like \"30s\"", value)
			}
			to.connectionGrace = &d
			return "", nil
		},
	},
	{
		AnnotationOutlierDetection,
		"whether endpoints that do not answer are left out, `true` or `false`",
		[]string{"true", "false"},
		"the configuration decides",
		func(to *annotated, value string) (string, error) {
			on, err := strconv.ParseBool(value)
			if err != nil {
				return "", fmt.Errorf("%q is neither \"true\" nor \"false\"", value)
			}
			to.outlierDetection = &on
			return "", nil
		},
	},
}

// annotated has the values of a Service's annotations; nil is none.
type annotated struct {
	algorithm        *Algorithm
	connectionGrace  *time.Duration
	outlierDetection *bool
}

// Budgets limit the cost of one Service, which shares the process and the kernel's tables with all others. A field that
// is 0 has its default. Backends have others for some of them, and tests have small ones.
//
// A Service over a budget is served in part. Which part depends on the Service and its slices
// alone: with the same budgets, it is the same on every node, with every backend, and regardless of the
// order in which objects arrive. Neither the readiness nor the place of endpoints matters.
type Budgets struct {
	// Ports is the number of ports that are served, in the order of spec.ports. Default: 1000.
	// The API has no limit but the size of an object, in which 10,000 have room.
	Ports int
	// Frontends is the number of addresses times the number of ports. Cluster IPs and node ports come first, then
	// addresses of load balancers, then external IPs, each in their order. Default: 10000, enough for two ports of a
	// Service with a load balancer at every node of a cluster with 5,000.
	Frontends int
	// Endpoints is the number of endpoints of a family. EndpointSlices are taken whole, in the
	// order of their names, and one without endpoints counts as one. Default: 20000, four times
	// the pods that one Service has in the largest clusters that are tested.
	Endpoints int
	// Entries is the number of frontends of a family times the number of endpoints, rounded up by an eighth at most, so
	// that a new endpoint seldom changes the part that is served. A Service with both families has half of the budget for
	// each. The slots of a lookup table are counted in place of the endpoints, and those of a frontend with external
	// traffic policy Local twice; over the budget, tables are smaller by quarters, and at last Random chooses. The order
	// is that of Frontends. An address is served on all ports or on none; the first port's cluster IP and node port are
	// always served. Default: 65536, enough for 5,000 endpoints of three ports with a cluster IP, a node port and two
	// other addresses each.
	Entries int
	// SourceRanges is the number of source ranges of a family times the number of frontends with addresses of load
	// balancers. Over it, all connections to these are dropped: some of the ranges would refuse some of the clients, and
	// no range would admit everybody. Default: 4000; the kernel's time for them grows with their square.
	SourceRanges int
	// Counters is the number of ports with counted connections, in the order of spec.ports. Default: 100.
	Counters int
	// Problems is the number of problems of an object, of any kind, that are reported one by one. Default: 10.
	Problems int
}

// WithDefaults fills in the fields that are 0, with the defaults of nftables.
func (b Budgets) WithDefaults() Budgets {
	return Budgets{
		Ports: cmp.Or(b.Ports, 1000), Frontends: cmp.Or(b.Frontends, 10_000), Endpoints: cmp.Or(b.Endpoints, 20_000),
		Entries: cmp.Or(b.Entries, 1<<16), SourceRanges: cmp.Or(b.SourceRanges, 4000),
		Counters: cmp.Or(b.Counters, 100), Problems: cmp.Or(b.Problems, 10),
	}
}

// Budget names a field of Budgets, in a Problem.
type Budget string

// The budgets.
const (
	PortsBudget        Budget = "ports"
	FrontendsBudget    Budget = "frontends"
	EndpointsBudget    Budget = "endpoints"
	EntriesBudget      Budget = "entries"
	SourceRangesBudget Budget = "sourceRanges"
	CountersBudget     Budget = "counters"
	ProblemsBudget     Budget = "problems"
)

// AllBudgets are all budgets.
var AllBudgets = [...]Budget{
	PortsBudget, FrontendsBudget, EndpointsBudget, EntriesBudget, SourceRangesBudget, CountersBudget, ProblemsBudget,
}
