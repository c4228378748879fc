package preflight

import (
	"net/netip"
	"slices"
	"strings"

	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/model"
)

// Input is everything that the differences depend on.
type Input struct {
	// KubeProxy is kube-proxy's configuration with its defaults, which vmapd reads, too.
	KubeProxy *proxyconfig.KubeProxyConfiguration
	// Version is kube-proxy's minor version, 36 for 1.36; 0: it is not known.
	Version int
	// Config is vmapd's configuration, Backend the one that it chooses: nftables, iptables, ipvs or userspace.
	Config  model.Config
	Backend string
	// Notes are what vmapd says about its configuration.
	Notes []string
	// ProxyFile and OwnFile name the files of kube-proxy's settings and of vmapd's own.
	ProxyFile, OwnFile string

	Nodes          []model.Node
	ServiceCIDRs   []model.ServiceCIDR
	Services       []model.Service
	EndpointSlices []model.EndpointSlice
}

// Modes of kube-proxy and backends of vmapd.
const (
	nftables  = "nftables"
	iptables  = "iptables"
	ipvs      = "ipvs"
	userspace = "userspace"
)

// nftablesDefault is the first minor version in which an empty mode is nftables (KEP-5343).
const nftablesDefault = 40

// mode is the mode in which kube-proxy runs.
func (in *Input) mode() string {
	switch {
	case in.KubeProxy.Mode != "":
		return string(in.KubeProxy.Mode)
	case in.Version >= nftablesDefault:
		return nftables
	}
	return iptables
}

// before reports whether kube-proxy is, or may be, older than a minor version.
func (in *Input) before(minor int) bool { return in.Version < minor }

// served are the Services that a proxy serves.
func (in *Input) served() []model.Service {
	return slices.DeleteFunc(slices.Clone(in.Services), func(s model.Service) bool {
		_, other := s.Labels[model.LabelServiceProxyName]
		return other || s.Type == "ExternalName" || len(s.ClusterIPs) == 0 || slices.Contains([]string{"", "None"}, s.ClusterIPs[0])
	})
}

// nodePortSetting makes node ports answer where kube-proxy's do, in words that all versions know.
func (in *Input) nodePortSetting() *Setting {
	list := slices.Clone(in.KubeProxy.NodePortAddresses)
	if len(list) == 0 {
		list = []string{"0.0.0.0/0", "::/0"}
	}
	if in.loopback() {
		list = append(list, "127.0.0.0/8")
	}
	return &Setting{in.ProxyFile, `nodePortAddresses: ["` + strings.Join(list, `", "`) + `"]`}
}

// loopback reports whether kube-proxy's node ports answer on 127.0.0.1.
func (in *Input) loopback() bool {
	if in.mode() != iptables || !*in.KubeProxy.IPTables.LocalhostNodePorts {
		return false
	}
	n, err := config.ParseNodePortAddresses(in.KubeProxy.NodePortAddresses)
	overlaps := slices.ContainsFunc(n.CIDRs, netip.MustParsePrefix("127.0.0.0/8").Overlaps)
	return err == nil && (len(in.KubeProxy.NodePortAddresses) == 0 || n.All || n.Localhost[model.IPv4] || overlaps)
}

// snapshot is the model of the node with vmapd.
func (in *Input) snapshot() *model.Snapshot {
	b := model.NewBuilder(in.Config)
	for _, n := range in.Nodes {
		b.SetNode(n)
	}
	for _, r := range in.ServiceCIDRs {
		b.SetServiceCIDR(r)
	}
	for _, s := range in.Services {
		b.SetService(s)
	}
	for _, s := range in.EndpointSlices {
		b.SetEndpointSlice(s)
	}
	return b.Snapshot()
}
