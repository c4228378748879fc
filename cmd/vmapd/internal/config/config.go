package config

import (
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"time"

	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/legacy/iptables"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft"
	"github.com/vmapd/vmapd/sync/informer"
)

// Config is everything that an administrator sets, checked and with its defaults. It never
// changes, nor does anybody change its fields; [Config.Follow] brings new ones.
type Config struct {
	// Backend is how to program the node, and BackendReason who says so.
	Backend       Backend
	BackendReason string
	// From are files and folders of manifests in place of a cluster; empty: a cluster.
	From []string

	// HealthzBindAddress and MetricsBindAddress are an IP address and a port; empty: do not
	// serve. BindAddressHardFail ends the daemon if one of them can't be had.
	HealthzBindAddress  string
	MetricsBindAddress  string
	BindAddressHardFail bool
	// MetricsTLS is empty if metrics are served in plain text.
	MetricsTLS            TLSFiles
	MetricsAuthentication Authentication
	EnableProfiling       bool
	ServiceCounters       bool

	// OOMScoreAdj is the process's, -1000 to 1000.
	OOMScoreAdj int
	Conntrack   nodesetup.Conntrack // what connection tracking is set to
	// Verbosity is klog's: what developers want to know is from 4 on.
	Verbosity int
	// LogFormat is text or json.
	LogFormat string

	// Notes are what start must say: each thing that is set and does not count, and each
	// default that is not kube-proxy's.
	Notes []Note

	flags   *Flags
	files   []file // that were read
	model   model.Config
	ipvs    ipvs.Options
	noPause bool // a flag says that iptables needs no pause between rounds
	// Both with their defaults.
	kubeProxy *proxyconfig.KubeProxyConfiguration
	own       VmapdConfiguration
}

// Note is one line that start must say.
type Note struct {
	Level slog.Level
	Text  string // begins with the file and the field, or the flag
	Event bool   // worth an event at the Node, too
}

// Model returns what decides about traffic. NodeName is empty if nobody set it.
func (c *Config) Model() model.Config { return c.model }

// NFTables returns the options of what is compiled for the backend of that name.
func (c *Config) NFTables() nft.Options { return nft.Options{Counters: c.ServiceCounters} }

// IPTables returns the options of the backend of that name.
func (c *Config) IPTables() iptables.Options {
	return iptables.Options{MasqueradeMark: 1 << *c.kubeProxy.IPTables.MasqueradeBit, Comments: true}
}

// IPVS returns the options of the backend of that name. They are valid also if another is
// chosen, which needs them to remove what IPVS left.
func (c *Config) IPVS() ipvs.Options { return c.ipvs }

// Client says how to reach the API server.
func (c *Config) Client() informer.Config {
	conn := c.kubeProxy.ClientConnection
	return informer.Config{
		Kubeconfig: conn.Kubeconfig, Master: c.flags.master,
		ContentType: conn.ContentType, AcceptContentTypes: conn.AcceptContentTypes,
		QPS: conn.QPS, Burst: int(conn.Burst),
	}
}

// SyncPeriod is how often the node is compared with what should be there, and how long to
// wait before a failed round is repeated. It depends on which backend runs. Default: 30s.
func (c *Config) SyncPeriod(running Backend) time.Duration {
	sync, _ := periods(c.kubeProxy, running)
	return sync.value
}

// MinSyncPeriod is the least time between two rounds. It depends on which backend runs.
// Default: 1s for iptables if kube-proxy's mode is iptables, too; else 0.
func (c *Config) MinSyncPeriod(running Backend) time.Duration {
	_, pause := periods(c.kubeProxy, running)
	if running == IPTables && c.noPause {
		return 0
	}
	return pause.value
}

// KubeProxy returns a copy of kube-proxy's configuration as it is in force.
func (c *Config) KubeProxy() *proxyconfig.KubeProxyConfiguration { return c.kubeProxy.DeepCopy() }

// Own returns our configuration as it is in force.
func (c *Config) Own() VmapdConfiguration { return c.own }

// FlagValues returns the values of all flags by name, whether they count or not.
func (c *Config) FlagValues() map[string]string { return c.flags.Values() }

// fill sets what follows from the two configurations.
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
	c.MetricsTLS, c.MetricsAuthentication, c.ServiceCounters = own.MetricsTLS, own.MetricsAuthentication, own.ServiceCounters
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
	c.noPause = l.flags.ConfigFile == "" && l.flags.given("iptables-min-sync-period") && l.flags.kubeProxy.IPTables.MinSyncPeriod.Duration == 0
	c.model, c.ipvs = l.model(c.Backend), l.ipvs()
}

// disabled reports whether the flags say not to serve: no file can.
func (l *loader) disabled(address, port string, n int32) bool {
	if l.flags.ConfigFile != "" {
		return false
	}
	return l.flags.given(address) && l.flags.set.Lookup(address).Value.String() == "" || l.flags.given(port) && n == 0
}

// model is called when all of it has been found valid.
func (l *loader) model(b Backend) model.Config {
	p := l.kubeProxy
	m := model.Config{
		NodeName: p.HostnameOverride, NodePortAddresses: l.nodePortAddresses(), MasqueradeAll: l.masqueradeAll(b),
		DropInvalid: l.own.DropInvalid, ConnectionGrace: l.own.ConnectionGrace.Duration,
	}
	m.Algorithm, _ = model.ParseAlgorithm(l.own.LBAlgorithm)
	if a, err := parseIP(p.BindAddress); err == nil && !a.IsUnspecified() {
		m.PrimaryAddress = a
	}
	m.LocalPods.Mode, _ = model.ParseLocalPodsMode(string(p.DetectLocalMode))
	for s := range strings.SplitSeq(p.ClusterCIDR, ",") {
		if cidr, err := parseCIDR(s); err == nil {
			m.LocalPods.ClusterCIDRs = append(m.LocalPods.ClusterCIDRs, cidr)
		}
	}
	switch m.LocalPods.Mode {
	case model.ByBridge:
		m.LocalPods.Interface = p.DetectLocal.BridgeInterface
	case model.ByInterfacePrefix:
		m.LocalPods.Interface = p.DetectLocal.InterfaceNamePrefix
	case model.ByClusterCIDR, model.ByNodeCIDR:
	}
	return m
}

// ipvs leaves out what is wrong in the section: only if nobody chose it, that is no error.
func (l *loader) ipvs() ipvs.Options {
	p := l.kubeProxy
	o := ipvs.Options{MasqueradeMark: 1 << min(*p.IPTables.MasqueradeBit, maxIPVSBit), ExcludeCIDRs: excludeCIDRs(p.IPVS.ExcludeCIDRs)}
	if errs := validateIPVS(p); len(errs) > 0 {
		for _, e := range errs {
			l.note(slog.LevelWarn, l.place(e.Field), "%s: not used, as ipvs is not chosen", e.ErrorBody())
		}
		return o
	}
	o.Scheduler, o.StrictARP = p.IPVS.Scheduler, p.IPVS.StrictARP
	o.Timeouts = ipvs.Timeouts{TCP: p.IPVS.TCPTimeout.Duration, TCPFin: p.IPVS.TCPFinTimeout.Duration, UDP: p.IPVS.UDPTimeout.Duration}
	return o
}

func excludeCIDRs(list []string) []netip.Prefix {
	var all []netip.Prefix
	for _, s := range list {
		if cidr, err := parseCIDR(s); err == nil {
			all = append(all, cidr)
		}
	}
	return all
}

// HostNodeName is the Node's name where nobody says another: kubelet uses the host's name
// in lower case, too.
func HostNodeName() (string, error) {
	name, err := os.Hostname()
	if err != nil {
		return "", err
	}
	return strings.ToLower(strings.TrimSpace(name)), nil
}
