package main

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/vmapd/vmapd/model"
)

// trafficFlags are those that decide about traffic. The daemon and render share them.
type trafficFlags struct {
	nodeName          string
	nodePortAddresses []string
	clusterCIDRs      []string
	masqueradeAll     bool
	backend           string
}

func (t *trafficFlags) addFlags(f *pflag.FlagSet) {
	f.StringVar(&t.nodeName, "hostname-override", "", "name of this Node in the API (default: the host's name)")
	f.StringSliceVar(&t.nodePortAddresses, "nodeport-addresses", nil,
		"where node ports answer: primary, all, or CIDRs of the node's addresses (default primary)")
	f.StringSliceVar(&t.clusterCIDRs, "cluster-cidr", nil,
		"the pods' ranges, one of each family: traffic to cluster IPs from elsewhere is masqueraded")
	f.BoolVar(&t.masqueradeAll, "masquerade-all", false, "masquerade all traffic to cluster IPs")
	f.StringVar(&t.backend, "backend", "nftables", "how to program the node; in this version only nftables")
}

// config checks the flags.
func (t *trafficFlags) config() (model.Config, error) {
	c := model.Config{NodeName: strings.ToLower(t.nodeName), MasqueradeAll: t.masqueradeAll}
	if t.backend != "nftables" {
		return c, fmt.Errorf("--backend: %q is not in this version, only nftables", t.backend)
	}
	var err error
	if c.NodePortAddresses, err = model.ParseNodePortAddresses(t.nodePortAddresses); err != nil {
		return c, fmt.Errorf("--nodeport-addresses: %w", err)
	}
	for _, s := range t.clusterCIDRs {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return c, fmt.Errorf("--cluster-cidr: %q is not a CIDR", s)
		}
		c.ClusterCIDRs = append(c.ClusterCIDRs, p.Masked())
	}
	return c, nil
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
