package config

import (
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	componentconfig "k8s.io/component-base/config/v1alpha1"
	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/nft/compile"
	"github.com/vmapd/vmapd/sync/devices"
)

// Config is all settings, checked and with their defaults. It is immutable.
type Config struct {
	// Backend programs the node; BackendReason names the setting that chose it.
	Backend       Backend
	BackendReason string
	// From are files and folders of manifests in place of a cluster.
	From []string

	FastPath devices.Choice

	// SyncPeriod is half the time for which a change may wait until the node is unhealthy. Default: 30s.
	SyncPeriod time.Duration
	// MinSyncPeriod is the minimum time between two syncs. Default: 1s for iptables if kube-proxy's mode is iptables, too;
	// else 0.
	MinSyncPeriod time.Duration

	// Notes are lines for the log: each setting without effect, and each default that is not kube-proxy's.
	Notes []Note

	// The two configurations, with their defaults; an address that is disabled is empty. Nobody changes them.
	KubeProxy *proxyconfig.KubeProxyConfiguration
	Own       VmapdConfiguration

	flags *Flags
	files []file // the files that were read
	model model.Config
	ipvs  ipvs.Options
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
		Counters: c.Own.ServiceCounters, FastPath: c.FastPath.On(), Timeouts: nft.RetryTimeouts(nil),
	}
}

// IPTables returns the options of the iptables backend.
func (c *Config) IPTables() iptables.Options {
	return iptables.Options{MasqueradeMark: 1 << *c.KubeProxy.IPTables.MasqueradeBit}
}

// IPVS returns the options of the IPVS backend. They are valid also if another one is chosen:
// it needs them to remove what IPVS left.
func (c *Config) IPVS() ipvs.Options { return c.ipvs }

// Client returns how to reach the API server, and its URL in place of the one in the kubeconfig.
func (c *Config) Client() (conn componentconfig.ClientConnectionConfiguration, master string) {
	return c.KubeProxy.ClientConnection, c.flags.master
}

// FlagValues returns the values of all flags by name, in the form of a command line, also of those without effect.
func (c *Config) FlagValues() map[string]string {
	values := map[string]string{}
	c.flags.set.VisitAll(func(flag *pflag.Flag) { values[flag.Name] = flag.Value.String() })
	return values
}

// WriteFile writes the effective configuration of kube-proxy, as a file for --config. The file
// lacks vmapd's own settings, and it cannot disable health or metrics.
func (c *Config) WriteFile(path string) error {
	data, err := yaml.Marshal(c.KubeProxy)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o666)
}

// fill derives the fields of c from the two configurations.
func (c *Config) fill() {
	p := c.KubeProxy
	if c.disabled("healthz-bind-address", "healthz-port", c.flags.healthzPort) {
		p.HealthzBindAddress = ""
	}
	if c.disabled("metrics-bind-address", "metrics-port", c.flags.metricsPort) {
		p.MetricsBindAddress = ""
	}
	c.FastPath, _ = devices.Parse(c.Own.FastPath)
	_, sync, pause := periods(p)
	c.SyncPeriod, c.MinSyncPeriod = sync.Duration, pause.Duration
	c.model, c.ipvs = c.traffic(), c.optionsOfIPVS()
}

// disabled reports whether the flags disable an address: a file cannot.
func (c *Config) disabled(address, port string, n int32) bool {
	if c.flags.ConfigFile != "" {
		return false
	}
	return c.flags.given(address) && c.flags.set.Lookup(address).Value.String() == "" || c.flags.given(port) && n == 0
}

// traffic requires valid configurations.
func (c *Config) traffic() model.Config {
	p, b := c.KubeProxy, c.Backend
	m := model.Config{
		NodeName: p.HostnameOverride, NodePortAddresses: c.nodePortAddresses(), MasqueradeAll: c.masqueradeAll(),
		DropInvalid: c.Own.DropInvalid, ConnectionGrace: c.Own.ConnectionGrace.Duration,
		ConnectionRetry: *c.Own.ConnectionRetry,
		Budgets:         Budgets(b),
		ExternalAddresses: model.ExternalAddresses{
			NoExternalIPs: c.off(allowExternalIPs), Ranges: validCIDRs(c.Own.ExternalAddresses.IPRanges),
			InServiceCIDRs:  c.Own.ExternalAddresses.AllowServiceCIDRs,
			NoNodeAddresses: c.Own.ExternalAddresses.RefuseNodeAddresses,
		},
	}
	m.Algorithm, _, _ = model.ParseAlgorithm(c.Own.LBAlgorithm)
	if m.TableSize = int(c.Own.MaglevTableSize); b == IPTables || b == IPVS {
		m.TableSize = model.MinTableSize // only the listener on loopback has a table, which must not use up a budget
	}
	if a, err := model.ParseAddr(p.BindAddress); err == nil && !a.IsUnspecified() {
		m.PrimaryAddress = a
	}
	m.LocalPods.Mode = localModes[p.DetectLocalMode]
	m.LocalPods.ClusterCIDRs = validCIDRs(strings.Split(p.ClusterCIDR, ","))
	m.LocalPods.Interface = map[model.LocalPodsMode]string{
		model.ByBridge: p.DetectLocal.BridgeInterface, model.ByInterfacePrefix: p.DetectLocal.InterfaceNamePrefix,
	}[m.LocalPods.Mode]
	return m
}

// optionsOfIPVS leaves out invalid settings: they are errors only if IPVS is chosen.
func (c *Config) optionsOfIPVS() ipvs.Options {
	p := c.KubeProxy
	o := ipvs.Options{MasqueradeMark: 1 << *p.IPTables.MasqueradeBit, ExcludeCIDRs: validCIDRs(p.IPVS.ExcludeCIDRs)}
	ipvsAlone := func(s setting) bool { return Backend(s.section()) == IPVS }
	if err := c.firstError(ipvsAlone); err != nil {
		c.note(slog.LevelWarn, c.place(err.Field), "%s: ignored, because ipvs is not chosen", err.ErrorBody())
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
	return strings.ToLower(strings.TrimSpace(name)), err
}

// OnlyNode returns a name that is given or, with "", that of the Node if there is exactly one, and else the host's.
func OnlyNode(given string, nodes []model.Node) (string, error) {
	if given == "" && len(nodes) == 1 {
		return nodes[0].Name, nil
	}
	if given == "" {
		return HostNodeName()
	}
	return given, nil
}
