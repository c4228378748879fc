package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/model"
)

// trafficFlags are those that decide about traffic. The daemon and render share them.
type trafficFlags struct {
	nodeName           string
	nodePortAddresses  []string
	localMode          string
	clusterCIDRs       []string
	podBridge          string
	podInterfacePrefix string
	masqueradeAll      bool
	algorithm          string
	dropInvalid        bool
	backend            string
	masqueradeBit      int
	ipvs               ipvsFlags
}

func (t *trafficFlags) addFlags(f *pflag.FlagSet) {
	f.StringVar(&t.nodeName, "hostname-override", "", "name of this Node in the API (default: the host's name)")
	f.StringSliceVar(&t.nodePortAddresses, "nodeport-addresses", nil,
		"where node ports answer: primary, all, localhost (TCP and UDP, by a program that listens there), "+
			"or CIDRs of the node's addresses (default primary)")
	f.StringVar(&t.localMode, "detect-local-mode", "ClusterCIDR",
		"how connections from pods are told from others: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix")
	f.StringSliceVar(&t.clusterCIDRs, "cluster-cidr", nil,
		"the pods' ranges, one of each family: traffic to cluster IPs from elsewhere is masqueraded")
	f.StringVar(&t.podBridge, "pod-bridge-interface", "", "the pods' bridge, for --detect-local-mode=BridgeInterface")
	f.StringVar(&t.podInterfacePrefix, "pod-interface-name-prefix", "",
		"what the names of the pods' interfaces begin with, for --detect-local-mode=InterfaceNamePrefix")
	f.BoolVar(&t.masqueradeAll, "masquerade-all", false, "masquerade all traffic to cluster IPs")
	f.StringVar(&t.algorithm, "lb-algorithm", "random",
		"how endpoints are chosen: random, round-robin or source-hash; the annotation "+model.AnnotationAlgorithm+" of a Service goes before")
	f.BoolVar(&t.dropInvalid, "drop-invalid", false, "drop packets of Services that connection tracking takes for invalid")
	f.StringVar(&t.backend, "backend", auto, "how to program the node: nftables, ipvs, iptables, or auto for the first of these that the kernel has")
	t.ipvs.addFlags(f)
	f.IntVar(&t.masqueradeBit, "iptables-masquerade-bit", defaultMasqueradeBit, "the bit of the packet mark that the rules of iptables use, 0 to 31")
}

// Names of the backends.
const (
	auto            = "auto"
	nftables        = "nftables"
	ipvsBackend     = "ipvs"
	iptablesBackend = "iptables"
)

const defaultMasqueradeBit = 14 // as kube-proxy

func (t *trafficFlags) iptablesOptions() iptables.Options {
	return iptables.Options{MasqueradeMark: 1 << t.masqueradeBit, Comments: true}
}

// config checks the flags.
func (t *trafficFlags) config() (model.Config, error) {
	c := model.Config{NodeName: strings.ToLower(t.nodeName), MasqueradeAll: t.masqueradeAll, DropInvalid: t.dropInvalid}
	if !slices.Contains([]string{auto, nftables, ipvsBackend, iptablesBackend}, t.backend) {
		return c, fmt.Errorf("--backend: %q is none of auto, nftables, ipvs, iptables", t.backend)
	}
	if t.masqueradeBit < 0 || t.masqueradeBit > 31 {
		return c, fmt.Errorf("--iptables-masquerade-bit: %d is not between 0 and 31", t.masqueradeBit)
	}
	if _, err := t.ipvsOptions(); err != nil {
		return c, err
	}
	var err error
	if c.NodePortAddresses, err = model.ParseNodePortAddresses(t.nodePortAddresses); err != nil {
		return c, fmt.Errorf("--nodeport-addresses: %w", err)
	}
	if c.Algorithm, err = model.ParseAlgorithm(t.algorithm); err != nil {
		return c, fmt.Errorf("--lb-algorithm: %w", err)
	}
	c.LocalPods, err = t.localPods()
	return c, err
}

// localPods checks the flags that say how connections from pods are told from others. As
// with kube-proxy, those of another mode are checked but have no effect.
func (t *trafficFlags) localPods() (model.LocalPods, error) {
	var l model.LocalPods
	var err error
	if l.Mode, err = model.ParseLocalPodsMode(t.localMode); err != nil {
		return l, fmt.Errorf("--detect-local-mode: %w", err)
	}
	if l.ClusterCIDRs, err = parseClusterCIDRs(t.clusterCIDRs); err != nil {
		return l, fmt.Errorf("--cluster-cidr: %w", err)
	}
	if err := checkInterface(t.podBridge); err != nil {
		return l, fmt.Errorf("--pod-bridge-interface: %w", err)
	}
	if err := checkInterface(t.podInterfacePrefix); err != nil {
		return l, fmt.Errorf("--pod-interface-name-prefix: %w", err)
	}
	switch l.Mode {
	case model.ByBridge:
		if l.Interface = t.podBridge; l.Interface == "" {
			return l, errors.New("--detect-local-mode=BridgeInterface needs --pod-bridge-interface")
		}
	case model.ByInterfacePrefix:
		if l.Interface = t.podInterfacePrefix; l.Interface == "" {
			return l, errors.New("--detect-local-mode=InterfaceNamePrefix needs --pod-interface-name-prefix")
		}
	case model.ByClusterCIDR, model.ByNodeCIDR:
	}
	return l, nil
}

func parseClusterCIDRs(list []string) ([]netip.Prefix, error) {
	var cidrs []netip.Prefix
	for _, s := range list {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("%q is not a CIDR", s)
		}
		f := model.FamilyOf(p.Addr())
		if slices.ContainsFunc(cidrs, func(o netip.Prefix) bool { return model.FamilyOf(o.Addr()) == f }) {
			return nil, fmt.Errorf("%q is a second one of %v", s, f)
		}
		cidrs = append(cidrs, p.Masked())
	}
	return cidrs, nil
}

// maxInterfaceName is the longest name that an interface can have (IFNAMSIZ).
const maxInterfaceName = 15

// checkInterface checks the name of an interface, or what names begin with: it gets into
// rules as it is. Empty means that there is none.
func checkInterface(name string) error {
	if len(name) > maxInterfaceName {
		return fmt.Errorf("%q is longer than the %d bytes that an interface's name can have", name, maxInterfaceName)
	}
	odd := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"\\*/:", r) }
	if strings.ContainsFunc(name, odd) {
		return fmt.Errorf("%q is not the name of an interface", name)
	}
	return nil
}

// hostNodeName is the Node's name where nobody says another: kubelet uses the host's
// name in lower case, too.
func hostNodeName() (string, error) {
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find out the host's name (use --hostname-override): %w", err)
	}
	return strings.ToLower(strings.TrimSpace(name)), nil
}
