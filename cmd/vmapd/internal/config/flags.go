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

// Flags are the values of a command line. The zero value is ready for AddFlags or
// AddTrafficFlags.
type Flags struct {
	// CleanUp, InitOnly and WriteConfigTo ask for a task in place of the daemon.
	CleanUp       bool
	InitOnly      bool
	WriteConfigTo string // a path, or empty

	// ConfigFile is the path of a KubeProxyConfiguration, OwnConfigFile that of a
	// VmapdConfiguration. Either may be empty.
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
// defaults, and those of vmapd.
func (f *Flags) AddFlags(fs *pflag.FlagSet) {
	f.addTrafficFlags(fs)
	c := &f.kubeProxy
	fs.StringVar(&f.WriteConfigTo, "write-config-to", "", "")
	fs.BoolVar(&f.CleanUp, "cleanup", false, "")
	fs.BoolVar(&f.InitOnly, "init-only", false, "")
	fs.StringArrayVar(&f.from, "from", nil, "")
	fs.Var(cliflag.NewMapStringBool(&c.FeatureGates), "feature-gates", "")

	fs.StringVar(&c.ClientConnection.Kubeconfig, "kubeconfig", "", "")
	fs.StringVar(&f.master, "master", "", "")
	fs.StringVar(&c.ClientConnection.ContentType, "kube-api-content-type", defaultContentType, "")
	fs.Int32Var(&c.ClientConnection.Burst, "kube-api-burst", defaultBurst, "")
	fs.Float32Var(&c.ClientConnection.QPS, "kube-api-qps", defaultQPS, "")

	fs.StringVar(&c.HealthzBindAddress, "healthz-bind-address", "0.0.0.0:10256", "")
	fs.StringVar(&c.MetricsBindAddress, "metrics-bind-address", "127.0.0.1:10249", "")
	fs.BoolVar(&c.BindAddressHardFail, "bind-address-hard-fail", false, "")
	fs.BoolVar(&c.EnableProfiling, "profiling", false, "")
	c.OOMScoreAdj = new(defaultOOMScoreAdj)
	fs.Int32Var(c.OOMScoreAdj, "oom-score-adj", *c.OOMScoreAdj, "")
	f.addPeriodFlags(fs)
	f.addConntrackFlags(fs)
	f.addLoggingFlags(fs)
	f.addIgnoredFlags(fs)
	f.addOwnFlags(fs)
	describe(fs)
}

// AddTrafficFlags defines the flags that decide about traffic, for commands that show
// what the daemon with the same flags does.
func (f *Flags) AddTrafficFlags(fs *pflag.FlagSet) {
	f.addTrafficFlags(fs)
	describe(fs)
}

// AddCleanupFlags defines the flags that restrict a cleanup.
func (f *Flags) AddCleanupFlags(fs *pflag.FlagSet) {
	f.set = fs
	fs.StringVar(&f.ConfigFile, "config", "", "")
	fs.StringSliceVar(&f.kubeProxy.IPVS.ExcludeCIDRs, "ipvs-exclude-cidrs", nil, "")
	describe(fs)
}

// describe gives each flag the text of its setting as its help.
func describe(fs *pflag.FlagSet) {
	for _, s := range slices.Concat(kubeProxySettings, ownSettings) {
		if flag := fs.Lookup(s.flag); flag != nil && flag.Usage == "" {
			flag.Usage = s.help()
			flag.Hidden = strings.HasPrefix(flag.Usage, s.fate.String()+": ")
		}
	}
}

func (f *Flags) addTrafficFlags(fs *pflag.FlagSet) {
	f.set = fs
	c := &f.kubeProxy
	fs.StringVar(&f.ConfigFile, "config", "", "")
	fs.StringVar(&f.hostname, "hostname-override", "", "")
	fs.StringVar(&c.BindAddress, "bind-address", defaultBindAddress, "")
	fs.StringVar((*string)(&c.Mode), "proxy-mode", "", "")
	fs.StringSliceVar(&c.NodePortAddresses, "nodeport-addresses", nil, "")
	fs.StringVar((*string)(&c.DetectLocalMode), "detect-local-mode", defaultDetectLocalMode, "")
	fs.StringSliceVar(&f.clusterCIDR, "cluster-cidr", nil, "")
	fs.StringVar(&c.DetectLocal.BridgeInterface, "pod-bridge-interface", "", "")
	fs.StringVar(&c.DetectLocal.InterfaceNamePrefix, "pod-interface-name-prefix", "", "")
	fs.BoolVar(&c.IPTables.MasqueradeAll, "masquerade-all", false, "")
	c.IPTables.MasqueradeBit, c.IPTables.LocalhostNodePorts = new(defaultMasqueradeBit), new(true)
	fs.Int32Var(c.IPTables.MasqueradeBit, "iptables-masquerade-bit", *c.IPTables.MasqueradeBit, "")
	fs.BoolVar(c.IPTables.LocalhostNodePorts, "iptables-localhost-nodeports", true, "")
	f.addIPVSFlags(fs)
	f.addOwnTrafficFlags(fs)
}

func (f *Flags) addIPVSFlags(fs *pflag.FlagSet) {
	c := &f.kubeProxy.IPVS
	fs.StringVar(&c.Scheduler, "ipvs-scheduler", "", "")
	fs.BoolVar(&c.StrictARP, "ipvs-strict-arp", false, "")
	fs.StringSliceVar(&c.ExcludeCIDRs, "ipvs-exclude-cidrs", nil, "")
	fs.DurationVar(&c.TCPTimeout.Duration, "ipvs-tcp-timeout", 0, "")
	fs.DurationVar(&c.TCPFinTimeout.Duration, "ipvs-tcpfin-timeout", 0, "")
	fs.DurationVar(&c.UDPTimeout.Duration, "ipvs-udp-timeout", 0, "")
}

func (f *Flags) addPeriodFlags(fs *pflag.FlagSet) {
	c := &f.kubeProxy
	fs.DurationVar(&c.IPTables.SyncPeriod.Duration, "iptables-sync-period", defaultSyncPeriod, "")
	fs.DurationVar(&c.IPTables.MinSyncPeriod.Duration, "iptables-min-sync-period", 0, "")
	fs.DurationVar(&c.IPVS.SyncPeriod.Duration, "ipvs-sync-period", defaultSyncPeriod, "")
	fs.DurationVar(&c.IPVS.MinSyncPeriod.Duration, "ipvs-min-sync-period", 0, "")
}

func (f *Flags) addConntrackFlags(fs *pflag.FlagSet) {
	c := &f.kubeProxy.Conntrack
	*c = defaultConntrack()
	fs.Int32Var(c.MaxPerCore, "conntrack-max-per-core", *c.MaxPerCore, "")
	fs.Int32Var(c.Min, "conntrack-min", *c.Min, "")
	fs.DurationVar(&c.TCPEstablishedTimeout.Duration, "conntrack-tcp-timeout-established", c.TCPEstablishedTimeout.Duration, "")
	fs.DurationVar(&c.TCPCloseWaitTimeout.Duration, "conntrack-tcp-timeout-close-wait", c.TCPCloseWaitTimeout.Duration, "")
	fs.BoolVar(&c.TCPBeLiberal, "conntrack-tcp-be-liberal", false, "")
	fs.DurationVar(&c.UDPTimeout.Duration, "conntrack-udp-timeout", 0, "")
	fs.DurationVar(&c.UDPStreamTimeout.Duration, "conntrack-udp-timeout-stream", 0, "")
}

func (f *Flags) addLoggingFlags(fs *pflag.FlagSet) {
	c := &f.kubeProxy.Logging
	logsapi.SetRecommendedLoggingConfiguration(c)
	fs.VarP(logsapi.VerbosityLevelPflag(&c.Verbosity), "v", "v", "")
	fs.StringVar(&c.Format, "logging-format", c.Format, "")
	fs.Var(logsapi.VModuleConfigurationPflag(&c.VModule), "vmodule", "")
	fs.DurationVar(&c.FlushFrequency.Duration.Duration, "log-flush-frequency", c.FlushFrequency.Duration.Duration, "")
	fs.BoolVar(&c.Options.Text.SplitStream, "log-text-split-stream", false, "")
	fs.Var(&c.Options.Text.InfoBufferSize, "log-text-info-buffer-size", "")
	fs.BoolVar(&c.Options.JSON.SplitStream, "log-json-split-stream", false, "")
	fs.Var(&c.Options.JSON.InfoBufferSize, "log-json-info-buffer-size", "")
}

// addIgnoredFlags defines the flags that are deprecated or have no effect.
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
}

// given reports whether the flag is on the command line.
func (f *Flags) given(name string) bool { return f.set != nil && f.set.Changed(name) }

// Values returns the values of all flags by name, in the form of a command line.
func (f *Flags) Values() map[string]string {
	values := map[string]string{}
	if f.set != nil {
		f.set.VisitAll(func(flag *pflag.Flag) { values[flag.Name] = flag.Value.String() })
	}
	return values
}

// configuration returns the flags of kube-proxy in the form of a file. Without their flag,
// fields whose default depends on others stay empty.
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

// address returns the flag's address, with a port, or "" if it was not given: the default
// depends on the family of another flag.
func (f *Flags) address(flag, value string, port int32) string {
	if !f.given(flag) {
		return ""
	}
	return withPort(value, port)
}

// merge overrides fields of a configuration with those of the flags that were given.
func (f *Flags) merge(settings []setting, to, from any) {
	for _, s := range settings {
		if s.field != "" && f.given(s.flag) {
			fieldByPath(to, s.field).Set(fieldByPath(from, s.field))
		}
	}
}

// mergeLogging overrides the file's fields about logging with the flags that were given. Of
// --vmodule and the file both apply, the flag first.
func (f *Flags) mergeLogging(c *proxyconfig.KubeProxyConfiguration) {
	modules := c.Logging.VModule
	f.merge(slices.DeleteFunc(slices.Clone(kubeProxySettings), func(s setting) bool { return !s.isLogging() }), c, f.kubeProxy.DeepCopy())
	if f.given("vmodule") {
		c.Logging.VModule = append(c.Logging.VModule, modules...)
	}
}

// withoutEffect returns the flags that were given although --config overrides them, sorted.
func (f *Flags) withoutEffect() []string {
	names := map[string]bool{}
	for _, s := range kubeProxySettings {
		if f.given(s.flag) && !appliesWithFile[s.flag] && !s.isLogging() {
			names[s.flag] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
