package config

import (
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
)

// kind says what a setting is about, or that it has no effect.
type kind uint8

const (
	honoured   kind = iota
	ignored         // it is read and checked, but has no effect; a note says so if it is set
	deprecated      // it has an effect, and the help hides it
)

func (k kind) String() string {
	return [...]string{honoured: "yes", ignored: "ignored", deprecated: "deprecated"}[k]
}

// setting is one field, one flag, or one of each that mean the same.
type setting struct {
	field string // path in the file; empty if there is only a flag
	flag  string // empty if there is only a field
	kind  kind
	def   any    // its default; nil: none, or another field decides
	check check  // of its value, or of each one in a list; nil: any is valid
	what  string // its effect or, if it is ignored, the reason
}

const windowsOnly = "Windows only"

// kubeProxySettings are kube-proxy's fields and flags. A flag that sets two fields stands
// in the row of each; its help is the text of the first.
var kubeProxySettings = []setting{
	{"", "config", honoured, nil, nil, "file with a `KubeProxyConfiguration`; kube-proxy's other flags are then ignored"},
	{"", "write-config-to", honoured, nil, nil, "write the effective `KubeProxyConfiguration` to this file, then exit"},
	{"", "cleanup", honoured, nil, nil, "remove everything that vmapd or kube-proxy left on this node, then exit; exit " +
		"code 1 after a failure"},
	{"", "init-only", honoured, nil, nil, "set sysctls of connection tracking and bridges (privileged), then exit; the " +
		"daemon then needs CAP_NET_ADMIN"},
	{"", "master", honoured, nil, nil, "address of the API server; overrides the kubeconfig's, also with `--config`"},
	{"featureGates", "feature-gates", honoured, nil, nil, "`AllowServiceExternalIPs=false` disables external IPs of " +
		"Services, `WatchListClient=false` or `WatchList=false` streamed lists; the log has a note for each other gate"},
	{"clientConnection.kubeconfig", "kubeconfig", honoured, nil, nil, "file with the cluster's address and credentials " +
		"(default: the pod's own)"},
	{"clientConnection.acceptContentTypes", "", honoured, nil, nil, "content types of the API server's answers"},
	{
		"clientConnection.contentType", "kube-api-content-type", honoured, "application/vnd.kubernetes.protobuf", nil,
		"content type of requests to the API server",
	},
	{"clientConnection.qps", "kube-api-qps", honoured, float32(5), nil, "requests to the API server per second"},
	{
		"clientConnection.burst", "kube-api-burst", honoured, int32(10), between(0, math.MaxInt32),
		"burst above `--kube-api-qps`",
	},
	{"logging.format", "logging-format", honoured, nil, nil, "format of the log: `text` (key=value) or `json`"},
	{"logging.flushFrequency", "log-flush-frequency", ignored, nil, nil, "the log is not buffered"},
	{"logging.verbosity", "v", honoured, nil, nil, "verbosity of the log; from 4 on, it has each batch"},
	{"logging.vmodule", "vmodule", ignored, nil, nil, "the verbosity is the same in all files"},
	{"logging.options.text.splitStream", "log-text-split-stream", ignored, nil, nil, "the log is one stream, to " +
		"standard error"},
	{"logging.options.text.infoBufferSize", "log-text-info-buffer-size", ignored, nil, nil, "the log is not buffered"},
	{"logging.options.json.splitStream", "log-json-split-stream", ignored, nil, nil, "the log is one stream, to " +
		"standard error"},
	{"logging.options.json.infoBufferSize", "log-json-info-buffer-size", ignored, nil, nil, "the log is not buffered"},
	{"hostnameOverride", "hostname-override", honoured, nil, nil, "name of this Node in the API (default: the host's " +
		"name); the flag overrides the file"},
	{"bindAddress", "bind-address", honoured, "0.0.0.0", isAddress, "this node's primary address; unless it is " +
		"unspecified, it overrides the Node object's"},
	{"healthzBindAddress", "healthz-bind-address", honoured, nil, isHostPort, "address for `/healthz`, `/livez`, " +
		"`/readyz`; empty: none (in a file: the default); `[::]:10256` if `--bind-address` is IPv6"},
	{"metricsBindAddress", "metrics-bind-address", honoured, nil, isHostPort, "address for `/metrics`; empty: none (in " +
		"a file: the default); `[::1]:10249` if `--bind-address` is IPv6"},
	{"bindAddressHardFail", "bind-address-hard-fail", honoured, nil, nil, "exit if vmapd cannot listen on one of these " +
		"addresses"},
	{"enableProfiling", "profiling", honoured, nil, nil, "serve `/debug/pprof/` on the metrics address"},
	{"showHiddenMetricsForVersion", "show-hidden-metrics-for-version", ignored, nil, nil, "no metric is hidden"},
	{
		"mode", "proxy-mode", honoured, nil, oneOf[proxyconfig.ProxyMode]("", "iptables", "ipvs", "nftables"),
		"kube-proxy's mode: `nftables`, `iptables` or `ipvs` (default: as `--backend=auto`); see [Backend](#backend)",
	},
	{
		"iptables.masqueradeBit", "iptables-masquerade-bit", honoured, int32(14), between(0, 31),
		"bit of the packet mark that iptables and IPVS use, 0 to 31",
	},
	{"iptables.masqueradeAll", "masquerade-all", honoured, nil, nil, "masquerade all traffic to cluster IPs; see " +
		"[Sections](#sections)"},
	{"iptables.localhostNodePorts", "iptables-localhost-nodeports", honoured, true, nil, "with `mode: iptables`: node " +
		"ports answer on 127.0.0.1 if `nodePortAddresses` includes it, by listeners"},
	{
		"iptables.syncPeriod", "iptables-sync-period", honoured, period(30 * time.Second), notNegative,
		"after twice this time without a successful sync, the node is unhealthy (not with IPVS); see [Sections](#sections)",
	},
	{"iptables.minSyncPeriod", "iptables-min-sync-period", honoured, nil, notNegative, "minimum time between two syncs " +
		"(not with IPVS; default: 1s with `mode: iptables`); see [Sections](#sections)"},
	{"ipvs.syncPeriod", "ipvs-sync-period", honoured, period(30 * time.Second), notNegative, "as " +
		"`--iptables-sync-period`, with IPVS"},
	{"ipvs.minSyncPeriod", "ipvs-min-sync-period", honoured, nil, notNegative, "as `--iptables-min-sync-period`, with " +
		"IPVS"},
	{
		"ipvs.scheduler", "ipvs-scheduler", honoured, nil, oneOf(slices.Concat(ipvs.Schedulers, []string{""})...),
		"IPVS scheduler of Services where neither they nor `--lb-algorithm` set an algorithm (default: rr)",
	},
	{"ipvs.excludeCIDRs", "ipvs-exclude-cidrs", honoured, nil, isCIDR, "ranges of other programs' virtual servers, " +
		"which a cleanup does not remove"},
	{"ipvs.strictARP", "ipvs-strict-arp", honoured, nil, nil, "do not answer ARP requests for Services' addresses"},
	{"ipvs.tcpTimeout", "ipvs-tcp-timeout", honoured, nil, wholeSeconds, "timeout of idle TCP connections, in whole " +
		"seconds; 0 keeps the kernel's"},
	{"ipvs.tcpFinTimeout", "ipvs-tcpfin-timeout", honoured, nil, wholeSeconds, "timeout of TCP connections after a FIN; " +
		"0 keeps the kernel's"},
	{"ipvs.udpTimeout", "ipvs-udp-timeout", honoured, nil, wholeSeconds, "timeout of UDP flows; 0 keeps the kernel's"},
	{"nftables.masqueradeBit", "", ignored, int32(14), between(0, 31), "nftables needs no packet mark here"},
	{"nftables.masqueradeAll", "masquerade-all", honoured, nil, nil, "masquerade all traffic to cluster IPs; see " +
		"[Sections](#sections)"},
	{
		"nftables.syncPeriod", "iptables-sync-period", honoured, period(30 * time.Second), notNegative,
		"after twice this time without a successful sync, the node is unhealthy",
	},
	{"nftables.minSyncPeriod", "iptables-min-sync-period", honoured, nil, notNegative, "as `iptables.minSyncPeriod`, " +
		"with nftables"},
	{"winkernel.networkName", "network-name", ignored, nil, nil, windowsOnly},
	{"winkernel.sourceVip", "source-vip", ignored, nil, nil, windowsOnly},
	{"winkernel.enableDSR", "enable-dsr", ignored, nil, nil, windowsOnly},
	{"winkernel.rootHnsEndpointName", "root-hnsendpoint-name", ignored, nil, nil, windowsOnly},
	{"winkernel.forwardHealthCheckVip", "forward-healthcheck-vip", ignored, nil, nil, windowsOnly},
	{
		"detectLocalMode", "detect-local-mode", honoured, defaultLocalMode, oneOf(slices.Sorted(maps.Keys(localModes))...),
		"what distinguishes pods: `ClusterCIDR`, `NodeCIDR`, `BridgeInterface` or `InterfaceNamePrefix`",
	},
	{"detectLocal.bridgeInterface", "pod-bridge-interface", honoured, nil, isInterface, "the pods' bridge, for " +
		"`BridgeInterface`"},
	{
		"detectLocal.interfaceNamePrefix", "pod-interface-name-prefix", honoured, nil, beginsInterface,
		"prefix of the pods' interface names, for `InterfaceNamePrefix`",
	},
	{"clusterCIDR", "cluster-cidr", honoured, nil, areClusterCIDRs, "for `ClusterCIDR`: the pods' range of each family; " +
		"traffic to cluster IPs from elsewhere is masqueraded"},
	{"nodePortAddresses", "nodeport-addresses", honoured, nil, isNodePortAddress, "addresses on which node ports " +
		"answer, except IPv6 link-local ones: `primary`, `all`, `localhost` (TCP and UDP, by listeners), CIDRs, or several " +
		"(default: `primary`; `all` with mode iptables or ipvs); see [Backend](#backend)"},
	{"oomScoreAdj", "oom-score-adj", honoured, int32(-999), between(-1000, 1000), "oom_score_adj of the vmapd process, " +
		"-1000 to 1000"},
	{
		"conntrack.maxPerCore", "conntrack-max-per-core", honoured, int32(32 << 10), between(0, math.MaxInt32),
		"nf_conntrack_max for each CPU core, at most 1,048,576 in all; a higher limit stays; 0 keeps any limit",
	},
	{
		"conntrack.min", "conntrack-min", honoured, int32(128 << 10), between(0, math.MaxInt32),
		"minimum of nf_conntrack_max, unless `--conntrack-max-per-core` is 0",
	},
	{
		"conntrack.tcpEstablishedTimeout", "conntrack-tcp-timeout-established", honoured, period(24 * time.Hour), notNegative,
		"timeout of idle TCP connections; 0 keeps the kernel's",
	},
	{
		"conntrack.tcpCloseWaitTimeout", "conntrack-tcp-timeout-close-wait", honoured, period(time.Hour), notNegative,
		"timeout of TCP connections in CLOSE_WAIT; 0 keeps the kernel's",
	},
	{"conntrack.tcpBeLiberal", "conntrack-tcp-be-liberal", honoured, nil, nil, "do not treat out-of-window TCP packets " +
		"as INVALID"},
	{"conntrack.udpTimeout", "conntrack-udp-timeout", honoured, nil, notNegative, "timeout of UDP flows without " +
		"replies; 0 keeps the kernel's"},
	{
		"conntrack.udpStreamTimeout", "conntrack-udp-timeout-stream", honoured, nil, notNegative,
		"timeout of UDP flows with replies; 0 keeps the kernel's",
	},
	{"configSyncPeriod", "config-sync-period", ignored, period(15 * time.Minute), positive, "each change is applied as " +
		"it arrives; there is nothing to refresh"},
	{"portRange", "proxy-port-range", ignored, nil, nil, "it belongs to kube-proxy's userspace mode, which no longer " +
		"exists"},
	{"windowsRunAsService", "windows-service", ignored, nil, nil, windowsOnly},
	{"", "healthz-port", deprecated, nil, nil, "0 disables the health address; else the port of a " +
		"`--healthz-bind-address` without one"},
	{"", "metrics-port", deprecated, nil, nil, "0 disables the metrics address; else the port of a " +
		"`--metrics-bind-address` without one"},
	{"", "boot-id-file", ignored, nil, nil, "kube-proxy does not read it either"},
	{"", "machine-id-file", ignored, nil, nil, "kube-proxy does not read it either"},
}

// ownSettings are vmapd's fields and flags.
var ownSettings = []setting{
	{"", "vmapd-config", honoured, nil, nil, "file with a `" + ownKind + "`; vmapd's own flags override it"},
	{"", "from", honoured, nil, nil, "file or folder of manifests to use in place of a cluster; vmapd follows changes " +
		"(repeatable)"},
	{"backend", "backend", honoured, Auto, oneOf(Auto, NFTables, IPVS, IPTables, Userspace), "`nftables`, `ipvs`, " +
		"`iptables`, `userspace`, or `auto`: kube-proxy's mode, else the first of these that works; see [Backend](#backend)"},
	{"lbAlgorithm", "lb-algorithm", honoured, "random", isAlgorithm, "algorithm that chooses an endpoint: `random`, " +
		"`maglev` or `maglev-port`; Services' `vmapd.io/lb-algorithm` overrides it; see [Algorithms](#algorithms)"},
	{
		"maglevTableSize", "maglev-table-size", honoured, int32(model.DefaultTableSize),
		between(model.MinTableSize, model.MaxTableSize), "slots of a lookup table of maglev; the same on all nodes, " +
			"preferably prime; see [Algorithms](#algorithms)",
	},
	{"dropInvalid", "drop-invalid", honoured, nil, nil, "drop packets of Services that connection tracking classifies " +
		"as INVALID"},
	{"serviceCounters", "service-counters", honoured, nil, nil, "count the new connections of each Service port"},
	{"fastPath", "fast-path", honoured, "off", areDevices, "devices between which connections take the fast path: " +
		"`off`, `auto`, or as `eth0,cali*`; see [Fast path](#fast-path)"},
	{"connectionGrace", "connection-grace", honoured, nil, notNegative, "close TCP and SCTP connections to a removed " +
		"endpoint after this time (0: never); Services' `vmapd.io/connection-grace` overrides it"},
	{"connectionRetry", "connection-retry", honoured, true, nil, "a connection without an answer within a second gets " +
		"another endpoint; Services' `vmapd.io/connection-retry` overrides it; see [Dead endpoints](#dead-endpoints)"},
	{"outlierDetection", "outlier-detection", ignored, nil, nil, "there is no outlier detection any more"},
	{"externalAddresses.ipRanges", "external-ip-ranges", honoured, nil, isCIDR, "ranges of external IPs that are served " +
		"(default: all); see [External addresses](#external-addresses)"},
	{
		"externalAddresses.allowServiceCIDRs", "external-addresses-in-service-cidrs", honoured, nil, nil,
		"serve external addresses in a range of cluster IPs; see [External addresses](#external-addresses)",
	},
	{"externalAddresses.refuseNodeAddresses", "refuse-node-addresses", honoured, nil, nil, "do not serve external " +
		"addresses that are the node's; see [External addresses](#external-addresses)"},
	{"socket", "socket", honoured, socket.DefaultPath, isAbsolute, "unix socket at which commands on the node ask the " +
		"daemon; empty: none"},
}

// help returns the setting's text for the help of its flag.
func (s setting) help() string {
	text, _, _ := strings.Cut(s.what, "; see [") // a section of the document
	text = strings.ReplaceAll(text, "`", "")
	if s.kind > honoured {
		text = s.kind.String() + ": " + text
	}
	return text
}

func (s setting) section() string {
	section, _, _ := strings.Cut(s.field, ".")
	return section
}

// flagOf returns the flag that sets a field, or "". It does not look at an index at the end of the path.
func flagOf(settings []setting, field string) string {
	field, _, _ = strings.Cut(field, "[")
	for _, s := range settings {
		if s.field == field {
			return s.flag
		}
	}
	return ""
}

// appliesWithFile are the flags of kube-proxy that apply although there is --config, besides those
// of [loggingSection].
var appliesWithFile = map[string]bool{
	"config": true, "write-config-to": true, "cleanup": true, "init-only": true, "master": true,
	"hostname-override": true,
}

// loggingSection begins the paths of the fields with flags that override the file.
const loggingSection = "logging."
