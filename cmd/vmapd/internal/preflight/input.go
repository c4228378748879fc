package preflight

import (
	"net/netip"
	"slices"
	"strings"

	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
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

	// Objects are those of the cluster.
	Objects *names.Directory
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
func (in *Input) served() []names.ServiceObject {
	return slices.DeleteFunc(slices.Clone(in.Objects.Services), func(s names.ServiceObject) bool {
		_, other := s.Labels[model.LabelServiceProxyName]
		return other || s.Type == "ExternalName" || len(s.ClusterIPs) == 0 ||
			slices.Contains([]string{"", "None"}, s.ClusterIPs[0])
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
	included := slices.ContainsFunc(n.CIDRs, func(p netip.Prefix) bool { return p.Contains(model.IPv4.Loopback()) })
	return err == nil && (len(in.KubeProxy.NodePortAddresses) == 0 || n.All || n.Unlisted[model.IPv4] ||
		n.Localhost[model.IPv4] || included)
}
