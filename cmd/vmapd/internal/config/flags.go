package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"
)

// Flags are what a command line can say. The zero value is ready for AddFlags or
// AddTrafficFlags.
type Flags struct {
	// CleanUp, InitOnly and WriteConfigTo are what to do in place of running.
	CleanUp       bool
	InitOnly      bool
	WriteConfigTo string // path; empty: do not

	// ConfigFile is the path of a KubeProxyConfiguration, OwnConfigFile that of a
	// VmapdConfiguration. Empty: there is none.
	ConfigFile    string
	OwnConfigFile string

	set         *pflag.FlagSet
	kubeProxy   proxyconfig.KubeProxyConfiguration
	own         VmapdConfiguration
	hostname    string
	clusterCIDR []string
	master      string
	from        []string
	healthzPort int32
	metricsPort int32
}

// AddFlags defines all flags of the daemon: those of kube-proxy, with its names and
// defaults, and ours.
func (f *Flags) AddFlags(fs *pflag.FlagSet) {
	f.AddTrafficFlags(fs)
	c := &f.kubeProxy
	fs.StringVar(&f.WriteConfigTo, "write-config-to", "", "write the KubeProxyConfiguration that is in force to this file, and end")
	fs.BoolVar(&f.CleanUp, "cleanup", false, "remove everything that vmapd or kube-proxy left on this node, and end")
	fs.BoolVar(&f.InitOnly, "init-only", false, "do what needs all privileges, and end; CAP_NET_ADMIN is enough then")
	fs.StringArrayVar(&f.from, "from", nil, "files or folders of manifests in place of a cluster; followed as they change (repeatable)")
	fs.Var(cliflag.NewMapStringBool(&c.FeatureGates), "feature-gates", "kube-proxy's gates, as name=true or name=false; none changes anything, and what is the case here is said")

	fs.StringVar(&c.ClientConnection.Kubeconfig, "kubeconfig", "", "file with the address and credentials of the cluster (default: those of the pod)")
	fs.StringVar(&f.master, "master", "", "address of the API server, in place of the kubeconfig's")
	fs.StringVar(&c.ClientConnection.ContentType, "kube-api-content-type", defaultContentType, "what is sent to the API server")
	fs.Int32Var(&c.ClientConnection.Burst, "kube-api-burst", defaultBurst, "by how many requests --kube-api-qps may be exceeded for a moment")
	fs.Float32Var(&c.ClientConnection.QPS, "kube-api-qps", defaultQPS, "requests to the API server per second")

	fs.StringVar(&c.HealthzBindAddress, "healthz-bind-address", "0.0.0.0:10256", "where to say whether this node works, [::]:10256 if --bind-address is IPv6; empty for nowhere")
	fs.StringVar(&c.MetricsBindAddress, "metrics-bind-address", "127.0.0.1:10249", "where to serve metrics, [::1]:10249 if --bind-address is IPv6; empty for nowhere")
	fs.BoolVar(&c.BindAddressHardFail, "bind-address-hard-fail", false, "end if one of these addresses can't be had")
	fs.BoolVar(&c.EnableProfiling, "profiling", false, "serve /debug/pprof/ beside the metrics")
	c.OOMScoreAdj = new(defaultOOMScoreAdj)
	fs.Int32Var(c.OOMScoreAdj, "oom-score-adj", *c.OOMScoreAdj, "the process's, -1000 to 1000")
	f.addPeriodFlags(fs)
	f.addConntrackFlags(fs)
	f.addLoggingFlags(fs)
	f.addIgnoredFlags(fs)
	f.addOwnFlags(fs)
}

// AddTrafficFlags defines the flags that decide about traffic, for commands that show
// what the daemon with the same flags does.
func (f *Flags) AddTrafficFlags(fs *pflag.FlagSet) {
	f.set = fs
	c := &f.kubeProxy
	fs.StringVar(&f.ConfigFile, "config", "", "file with a KubeProxyConfiguration; kube-proxy's other flags then do not count")
	fs.StringVar(&f.hostname, "hostname-override", "", "name of this Node in the API (default: the host's name)")
	fs.StringVar(&c.BindAddress, "bind-address", defaultBindAddress, "this node's primary address, in place of the Node object's")
	fs.StringVar((*string)(&c.Mode), "proxy-mode", "", "kube-proxy's: nftables, iptables or ipvs (default: as --backend=auto)")
	fs.StringSliceVar(&c.NodePortAddresses, "nodeport-addresses", nil,
		"where node ports answer: primary, all, localhost (TCP and UDP, by a program that listens there), "+
			"or CIDRs of the node's addresses (default: primary; all with --proxy-mode=iptables or ipvs)")
	fs.StringVar((*string)(&c.DetectLocalMode), "detect-local-mode", defaultDetectLocalMode,
		"how connections from pods are told from others: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix")
	fs.StringSliceVar(&f.clusterCIDR, "cluster-cidr", nil,
		"the pods' ranges, one of each family: traffic to cluster IPs from elsewhere is masqueraded")
	fs.StringVar(&c.DetectLocal.BridgeInterface, "pod-bridge-interface", "", "the pods' bridge, for --detect-local-mode=BridgeInterface")
	fs.StringVar(&c.DetectLocal.InterfaceNamePrefix, "pod-interface-name-prefix", "",
		"what the names of the pods' interfaces begin with, for --detect-local-mode=InterfaceNamePrefix")
	fs.BoolVar(&c.IPTables.MasqueradeAll, "masquerade-all", false, "masquerade all traffic to cluster IPs")
	c.IPTables.MasqueradeBit, c.IPTables.LocalhostNodePorts = new(defaultMasqueradeBit), new(true)
	fs.Int32Var(c.IPTables.MasqueradeBit, "iptables-masquerade-bit", *c.IPTables.MasqueradeBit,
		"the bit of the packet mark that the rules of iptables use, 0 to 31")
	fs.BoolVar(c.IPTables.LocalhostNodePorts, "iptables-localhost-nodeports", true,
		"with --proxy-mode=iptables: node ports answer on 127.0.0.1 as well, if they do on all addresses")
	f.addIPVSFlags(fs)
	f.addOwnTrafficFlags(fs)
}

// AddCleanupFlags defines the flags that say what a clean-up leaves alone.
func (f *Flags) AddCleanupFlags(fs *pflag.FlagSet) {
	f.set = fs
	fs.StringVar(&f.ConfigFile, "config", "", "file with a KubeProxyConfiguration")
	fs.StringSliceVar(&f.kubeProxy.IPVS.ExcludeCIDRs, "ipvs-exclude-cidrs", nil, "where virtual servers of others are, which are left alone")
}

func (f *Flags) addIPVSFlags(fs *pflag.FlagSet) {
	c := &f.kubeProxy.IPVS
	fs.StringVar(&c.Scheduler, "ipvs-scheduler", "", "how IPVS chooses endpoints where neither a Service nor --lb-algorithm says (default: rr)")
	fs.BoolVar(&c.StrictARP, "ipvs-strict-arp", false, "do not answer ARP requests for Services' addresses")
	fs.StringSliceVar(&c.ExcludeCIDRs, "ipvs-exclude-cidrs", nil, "where virtual servers of others are, which are left alone")
	fs.DurationVar(&c.TCPTimeout.Duration, "ipvs-tcp-timeout", 0, "for idle TCP connections; 0 leaves the kernel's")
	fs.DurationVar(&c.TCPFinTimeout.Duration, "ipvs-tcpfin-timeout", 0, "for TCP connections after a FIN; 0 leaves the kernel's")
	fs.DurationVar(&c.UDPTimeout.Duration, "ipvs-udp-timeout", 0, "for UDP; 0 leaves the kernel's")
}

func (f *Flags) addPeriodFlags(fs *pflag.FlagSet) {
	c := &f.kubeProxy
	fs.DurationVar(&c.IPTables.SyncPeriod.Duration, "iptables-sync-period", defaultSyncPeriod,
		"how often this node is compared with what should be there, unless with ipvs")
	fs.DurationVar(&c.IPTables.MinSyncPeriod.Duration, "iptables-min-sync-period", 0,
		"least time between two changes to this node, unless with ipvs (default: 1s with --proxy-mode=iptables, else 0)")
	fs.DurationVar(&c.IPVS.SyncPeriod.Duration, "ipvs-sync-period", defaultSyncPeriod, "as --iptables-sync-period, with ipvs")
	fs.DurationVar(&c.IPVS.MinSyncPeriod.Duration, "ipvs-min-sync-period", 0, "as --iptables-min-sync-period, with ipvs")
}

func (f *Flags) addConntrackFlags(fs *pflag.FlagSet) {
	c := &f.kubeProxy.Conntrack
	*c = defaultConntrack()
	fs.Int32Var(c.MaxPerCore, "conntrack-max-per-core", *c.MaxPerCore, "connections to track, for each CPU core; 0 leaves the limit and --conntrack-min does not count")
	fs.Int32Var(c.Min, "conntrack-min", *c.Min, "connections to track at least")
	fs.DurationVar(&c.TCPEstablishedTimeout.Duration, "conntrack-tcp-timeout-established", c.TCPEstablishedTimeout.Duration, "for idle TCP connections; 0 leaves the kernel's")
	fs.DurationVar(&c.TCPCloseWaitTimeout.Duration, "conntrack-tcp-timeout-close-wait", c.TCPCloseWaitTimeout.Duration, "for TCP connections in CLOSE_WAIT; 0 leaves the kernel's")
	fs.BoolVar(&c.TCPBeLiberal, "conntrack-tcp-be-liberal", false, "let no TCP packet count as invalid for its sequence number")
	fs.DurationVar(&c.UDPTimeout.Duration, "conntrack-udp-timeout", 0, "for UDP without an answer; 0 leaves the kernel's")
	fs.DurationVar(&c.UDPStreamTimeout.Duration, "conntrack-udp-timeout-stream", 0, "for UDP with answers; 0 leaves the kernel's")
}

func (f *Flags) addLoggingFlags(fs *pflag.FlagSet) {
	c := &f.kubeProxy.Logging
	logsapi.SetRecommendedLoggingConfiguration(c)
	fs.VarP(logsapi.VerbosityLevelPflag(&c.Verbosity), "v", "v", "how much to log; from 4 on also each batch")
	fs.StringVar(&c.Format, "logging-format", c.Format, "text or json")
	fs.Var(logsapi.VModuleConfigurationPflag(&c.VModule), "vmodule", "")
	fs.DurationVar(&c.FlushFrequency.Duration.Duration, "log-flush-frequency", c.FlushFrequency.Duration.Duration, "")
	fs.BoolVar(&c.Options.Text.SplitStream, "log-text-split-stream", false, "")
	fs.Var(&c.Options.Text.InfoBufferSize, "log-text-info-buffer-size", "")
	fs.BoolVar(&c.Options.JSON.SplitStream, "log-json-split-stream", false, "")
	fs.Var(&c.Options.JSON.InfoBufferSize, "log-json-info-buffer-size", "")
}

// addIgnoredFlags defines what is deprecated or means nothing here, and hides it.
func (f *Flags) addIgnoredFlags(fs *pflag.FlagSet) {
	c := &f.kubeProxy
	fs.Int32Var(&f.healthzPort, "healthz-port", healthzPort, "")
	fs.Int32Var(&f.metricsPort, "metrics-port", metricsPort, "")
	fs.StringVar(&c.ShowHiddenMetricsForVersion, "show-hidden-metrics-for-version", "", "")
	fs.DurationVar(&c.ConfigSyncPeriod.Duration, "config-sync-period", defaultConfigSyncPeriod, "")
	fs.StringVar(&c.PortRange, "proxy-port-range", "", "")
	fs.String("boot-id-file", "", "")
	fs.String("machine-id-file", "", "")
	fs.StringVar(&c.Winkernel.NetworkName, "network-name", "", "")
	fs.StringVar(&c.Winkernel.SourceVip, "source-vip", "", "")
	fs.BoolVar(&c.Winkernel.EnableDSR, "enable-dsr", false, "")
	fs.StringVar(&c.Winkernel.RootHnsEndpointName, "root-hnsendpoint-name", "", "")
	fs.BoolVar(&c.Winkernel.ForwardHealthCheckVip, "forward-healthcheck-vip", false, "")
	fs.BoolVar(&c.WindowsRunAsService, "windows-service", false, "")
	for _, s := range kubeProxySettings {
		if flag := fs.Lookup(s.flag); flag != nil && flag.Usage == "" {
			flag.Usage, flag.Hidden = strings.ReplaceAll(s.what, "`", ""), true
			if s.fate == ignored {
				flag.Usage = "ignored: " + flag.Usage
			}
		}
	}
}

// given reports whether the flag is on the command line.
func (f *Flags) given(name string) bool { return f.set != nil && f.set.Changed(name) }

// Values returns the values of all flags, by name, as a command line would have them.
func (f *Flags) Values() map[string]string {
	values := map[string]string{}
	if f.set != nil {
		f.set.VisitAll(func(flag *pflag.Flag) { values[flag.Name] = flag.Value.String() })
	}
	return values
}

// configuration returns the flags of kube-proxy as a file would have them. What depends on
// other settings is left out unless its flag was given.
func (f *Flags) configuration() *proxyconfig.KubeProxyConfiguration {
	c := f.kubeProxy.DeepCopy()
	c.ClusterCIDR = strings.Join(f.clusterCIDR, ",")
	if !f.given("iptables-sync-period") {
		c.IPTables.SyncPeriod.Duration = 0
	}
	if !f.given("ipvs-sync-period") {
		c.IPVS.SyncPeriod.Duration = 0
	}
	c.NFTables.MasqueradeAll = c.IPTables.MasqueradeAll
	c.NFTables.SyncPeriod, c.NFTables.MinSyncPeriod = c.IPTables.SyncPeriod, c.IPTables.MinSyncPeriod
	c.HealthzBindAddress = f.address("healthz-bind-address", c.HealthzBindAddress, f.healthzPort)
	c.MetricsBindAddress = f.address("metrics-bind-address", c.MetricsBindAddress, f.metricsPort)
	return c
}

// address returns what the flag says, with a port, or "" where the default depends on the
// family of another flag.
func (f *Flags) address(flag, value string, port int32) string {
	if !f.given(flag) {
		return ""
	}
	return withPort(value, port)
}

// mergeLogging puts the flags about logging that were given over the file's fields.
// What --vmodule says comes before what the file says, and both count.
func (f *Flags) mergeLogging(c *logsapi.LoggingConfiguration) {
	from := f.kubeProxy.Logging.DeepCopy()
	for name, merge := range map[string]func(){
		"v":                         func() { c.Verbosity = from.Verbosity },
		"logging-format":            func() { c.Format = from.Format },
		"vmodule":                   func() { c.VModule = slices.Concat(from.VModule, c.VModule) },
		"log-flush-frequency":       func() { c.FlushFrequency = from.FlushFrequency },
		"log-text-split-stream":     func() { c.Options.Text.SplitStream = from.Options.Text.SplitStream },
		"log-text-info-buffer-size": func() { c.Options.Text.InfoBufferSize = from.Options.Text.InfoBufferSize },
		"log-json-split-stream":     func() { c.Options.JSON.SplitStream = from.Options.JSON.SplitStream },
		"log-json-info-buffer-size": func() { c.Options.JSON.InfoBufferSize = from.Options.JSON.InfoBufferSize },
	} {
		if f.given(name) {
			merge()
		}
	}
}

// withoutEffect returns the flags that were given though --config takes their place, in
// order.
func (f *Flags) withoutEffect() []string {
	names := map[string]bool{}
	for _, s := range kubeProxySettings {
		if f.given(s.flag) && !countsWithFile[s.flag] && !s.isLogging() {
			names[s.flag] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
