package config

import (
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/devices"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/compile"
	"github.com/vmapd/vmapd/sync/informer"
)

// Config is all settings, checked and with their defaults. It is immutable; [Config.Follow] returns new ones.
type Config struct {
	// Backend programs the node; BackendReason names the setting that chose it.
	Backend       Backend
	BackendReason string
	// From are files and folders of manifests in place of a cluster.
	From []string

	// HealthzBindAddress and MetricsBindAddress are an IP address and a port; empty disables
	// them. With BindAddressHardFail, the daemon exits if it cannot listen on one of them.
	HealthzBindAddress  string
	MetricsBindAddress  string
	BindAddressHardFail bool
	EnableProfiling     bool
	ServiceCounters     bool
	FastPath            devices.Choice
	// Socket is the path of the socket for vmapd's subcommands; empty disables it.
	Socket string

	// OOMScoreAdj is the oom_score_adj of the process, -1000 to 1000.
	OOMScoreAdj int
	Conntrack   nodesetup.Conntrack // settings of connection tracking
	// Verbosity is klog's: debugging messages begin at 4.
	Verbosity int
	// LogFormat is text or json.
	LogFormat string

	// Notes are lines for the log: each setting without effect, and each default that is not kube-proxy's.
	Notes []Note

	flags *Flags
	files []file // the files that were read
	model model.Config
	ipvs  ipvs.Options
	// The two configurations, with their defaults.
	kubeProxy *proxyconfig.KubeProxyConfiguration
	own       VmapdConfiguration
}

// Note is one line for the log.
type Note struct {
	Level slog.Level
	Text  string // begins with the file and the field, or the flag
	Event bool   // it is also an event about the Node
}

// Model returns the settings that decide about traffic. NodeName is empty if it is not set. [Budgets] are those of
// the backend; auto becomes one only when that is open.
func (c *Config) Model() model.Config { return c.model }

// NFTables returns the options of the nftables backend, without the settings of a node.
func (c *Config) NFTables() compile.Options {
	return compile.Options{
		Counters: c.ServiceCounters, FastPath: c.FastPath.On(), Timeouts: nft.RetryTimeouts(nft.NoSettings),
	}
}

// IPTables returns the options of the iptables backend.
func (c *Config) IPTables() iptables.Options {
	return iptables.Options{MasqueradeMark: 1 << *c.kubeProxy.IPTables.MasqueradeBit, Comments: true}
}

// IPVS returns the options of the IPVS backend. They are valid also if another one is chosen:
// it needs them to remove what IPVS left.
func (c *Config) IPVS() ipvs.Options { return c.ipvs }

// Client returns how to reach the API server.
func (c *Config) Client() informer.Config {
	conn := c.kubeProxy.ClientConnection
	return informer.Config{
		Kubeconfig: conn.Kubeconfig, Master: c.flags.master,
		ContentType: conn.ContentType, AcceptContentTypes: conn.AcceptContentTypes,
		QPS: conn.QPS, Burst: int(conn.Burst),
	}
}

// SyncPeriod is half the time for which a change may wait until the node is unhealthy. Default: 30s.
func (c *Config) SyncPeriod() time.Duration {
	_, sync, _ := periods(c.kubeProxy)
	return sync.Duration
}

// MinSyncPeriod is the minimum time between two syncs. Default: 1s for iptables if kube-proxy's mode is iptables, too;
// else 0.
func (c *Config) MinSyncPeriod() time.Duration {
	_, _, pause := periods(c.kubeProxy)
	return pause.Duration
}

// KubeProxy returns a copy of the effective configuration of kube-proxy.
func (c *Config) KubeProxy() *proxyconfig.KubeProxyConfiguration { return c.kubeProxy.DeepCopy() }

// Own returns the effective configuration of vmapd.
func (c *Config) Own() VmapdConfiguration { return c.own }

// FlagValues returns the values of all flags by name, in the form of a command line, also of those without effect.
func (c *Config) FlagValues() map[string]string {
	values := map[string]string{}
	c.flags.set.VisitAll(func(flag *pflag.Flag) { values[flag.Name] = flag.Value.String() })
	return values
}

// WriteFile writes the effective configuration of kube-proxy, as a file for --config. The file
// lacks vmapd's own settings, and it cannot disable health or metrics.
func (c *Config) WriteFile(path string) error {
	data, err := yaml.Marshal(c.kubeProxy)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o666)
}

// fill derives the fields of c from the two configurations.
func (l *loader) fill(c *Config) {
	p, own := l.kubeProxy, l.own
	c.HealthzBindAddress, c.MetricsBindAddress = p.HealthzBindAddress, p.MetricsBindAddress
	if l.disabled("healthz-bind-address", "healthz-port", l.flags.healthzPort) {
		c.HealthzBindAddress = ""
	}
	if l.disabled("metrics-bind-address", "metrics-port", l.flags.metricsPort) {
		c.MetricsBindAddress = ""
	}
	c.BindAddressHardFail, c.EnableProfiling = p.BindAddressHardFail, p.EnableProfiling
	c.ServiceCounters = own.ServiceCounters
	c.FastPath, _ = devices.Parse(own.FastPath)
	c.Socket = *own.Socket
	c.OOMScoreAdj = int(*p.OOMScoreAdj)
	c.Conntrack = nodesetup.Conntrack{
		MaxPerCore: *p.Conntrack.MaxPerCore, Min: *p.Conntrack.Min,
		TCPEstablishedTimeout: p.Conntrack.TCPEstablishedTimeout.Duration,
		TCPCloseWaitTimeout:   p.Conntrack.TCPCloseWaitTimeout.Duration,
		TCPBeLiberal:          p.Conntrack.TCPBeLiberal,
		UDPTimeout:            p.Conntrack.UDPTimeout.Duration,
		UDPStreamTimeout:      p.Conntrack.UDPStreamTimeout.Duration,
	}
	c.Verbosity, c.LogFormat = int(p.Logging.Verbosity), p.Logging.Format
	c.model, c.ipvs = l.model(c.Backend), l.ipvs()
}

// disabled reports whether the flags disable an address: a file cannot.
func (l *loader) disabled(address, port string, n int32) bool {
	if l.flags.ConfigFile != "" {
		return false
	}
	return l.flags.given(address) && l.flags.set.Lookup(address).Value.String() == "" || l.flags.given(port) && n == 0
}

// model requires valid configurations.
func (l *loader) model(b Backend) model.Config {
	p := l.kubeProxy
	m := model.Config{
		NodeName: p.HostnameOverride, NodePortAddresses: l.nodePortAddresses(), MasqueradeAll: l.masqueradeAll(b),
		DropInvalid: l.own.DropInvalid, ConnectionGrace: l.own.ConnectionGrace.Duration,
		ConnectionRetry: *l.own.ConnectionRetry,
		Budgets:         Budgets(b), ServiceCounters: l.own.ServiceCounters,
		ExternalAddresses: model.ExternalAddresses{
			NoExternalIPs: l.noExternalIPs(), Ranges: validCIDRs(l.own.ExternalAddresses.IPRanges),
			InServiceCIDRs:  l.own.ExternalAddresses.AllowServiceCIDRs,
			NoNodeAddresses: l.own.ExternalAddresses.RefuseNodeAddresses,
		},
	}
	m.Algorithm, _, _ = model.ParseAlgorithm(l.own.LBAlgorithm)
	if m.TableSize = int(l.own.MaglevTableSize); b == IPTables || b == IPVS {
		m.TableSize = model.MinTableSize // only the listener on loopback has a table, which must not use up a budget
	}
	if a, err := model.ParseAddr(p.BindAddress); err == nil && !a.IsUnspecified() {
		m.PrimaryAddress = a
	}
	m.LocalPods.Mode = localModes[p.DetectLocalMode]
	m.LocalPods.ClusterCIDRs = validCIDRs(strings.Split(p.ClusterCIDR, ","))
	switch m.LocalPods.Mode {
	case model.ByBridge:
		m.LocalPods.Interface = p.DetectLocal.BridgeInterface
	case model.ByInterfacePrefix:
		m.LocalPods.Interface = p.DetectLocal.InterfaceNamePrefix
	case model.ByClusterCIDR, model.ByNodeCIDR:
	}
	return m
}

// ipvs leaves out invalid settings: they are errors only if IPVS is chosen.
func (l *loader) ipvs() ipvs.Options {
	p := l.kubeProxy
	o := ipvs.Options{MasqueradeMark: 1 << *p.IPTables.MasqueradeBit, ExcludeCIDRs: validCIDRs(p.IPVS.ExcludeCIDRs)}
	if err := validateIPVS(p); err != nil {
		l.note(slog.LevelWarn, l.place(err.Field), "%s: ignored, because ipvs is not chosen", err.ErrorBody())
		return o
	}
	o.Scheduler, o.StrictARP = p.IPVS.Scheduler, p.IPVS.StrictARP
	o.Timeouts = ipvs.Timeouts{
		TCP: p.IPVS.TCPTimeout.Duration, TCPFin: p.IPVS.TCPFinTimeout.Duration, UDP: p.IPVS.UDPTimeout.Duration,
	}
	return o
}

func validCIDRs(list []string) []netip.Prefix {
	var all []netip.Prefix
	for _, s := range list {
		if cidr, err := model.ParsePrefix(s); err == nil {
			all = append(all, cidr)
		}
	}
	return all
}

// HostNodeName is the default name of the Node: the host's name in lower case, as kubelet's.
func HostNodeName() (string, error) {
	name, err := os.Hostname()
	if err != nil {
		return "", err
	}
	return strings.ToLower(strings.TrimSpace(name)), nil
}

// OnlyNode returns the name of the Node if there is exactly one, and else the host's name.
func OnlyNode(nodes []model.Node) (string, error) {
	if len(nodes) == 1 {
		return nodes[0].Name, nil
	}
	return HostNodeName()
}
