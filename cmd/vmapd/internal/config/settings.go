package config

import "strings"

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
	what  string // its effect or, if it is ignored, the reason
}

// windowsOnly is why winkernel's fields mean nothing.
const windowsOnly = "Windows only"

// kubeProxySettings are kube-proxy's fields and flags. A flag that sets two fields stands
// in the row of each; its help is the text of the first.
var kubeProxySettings = []setting{
	{"", "config", honoured, "file with a `KubeProxyConfiguration`; kube-proxy's other flags are then ignored"},
	{"", "write-config-to", honoured, "write the effective `KubeProxyConfiguration` to this file, then exit"},
	{"", "cleanup", honoured, "remove everything that vmapd or kube-proxy left on this node, then exit; exit code 1 " +
		"after a failure"},
	{"", "init-only", honoured, "set sysctls of connection tracking and bridges (privileged), then exit; the daemon " +
		"then needs CAP_NET_ADMIN"},
	{"", "master", honoured, "address of the API server; overrides the kubeconfig's, also with `--config`"},
	{"featureGates", "feature-gates", honoured, "`AllowServiceExternalIPs=false` disables external IPs of Services, " +
		"`WatchListClient=false` or `WatchList=false` streamed lists; the log has a note for each other gate"},
	{"clientConnection.kubeconfig", "kubeconfig", honoured, "file with the cluster's address and credentials (default: " +
		"the pod's own)"},
	{"clientConnection.acceptContentTypes", "", honoured, "content types of the API server's answers"},
	{"clientConnection.contentType", "kube-api-content-type", honoured, "content type of requests to the API server"},
	{"clientConnection.qps", "kube-api-qps", honoured, "requests to the API server per second"},
	{"clientConnection.burst", "kube-api-burst", honoured, "burst above `--kube-api-qps`"},
	{"logging.format", "logging-format", honoured, "format of the log: `text` (key=value) or `json`"},
	{"logging.flushFrequency", "log-flush-frequency", ignored, "the log is not buffered"},
	{"logging.verbosity", "v", honoured, "verbosity of the log; from 4 on, it has each batch"},
	{"logging.vmodule", "vmodule", ignored, "the verbosity is the same in all files"},
	{"logging.options.text.splitStream", "log-text-split-stream", ignored, "the log is one stream, to standard error"},
	{"logging.options.text.infoBufferSize", "log-text-info-buffer-size", ignored, "the log is not buffered"},
	{"logging.options.json.splitStream", "log-json-split-stream", ignored, "the log is one stream, to standard error"},
	{"logging.options.json.infoBufferSize", "log-json-info-buffer-size", ignored, "the log is not buffered"},
	{"hostnameOverride", "hostname-override", honoured, "name of this Node in the API (default: the host's name); the " +
		"flag overrides the file"},
	{"bindAddress", "bind-address", honoured, "this node's primary address; unless it is unspecified, it overrides " +
		"the Node object's"},
	{"healthzBindAddress", "healthz-bind-address", honoured, "address for `/healthz`, `/livez`, `/readyz`; empty: " +
		"none (in a file: the default); `[::]:10256` if `--bind-address` is IPv6"},
	{"metricsBindAddress", "metrics-bind-address", honoured, "address for `/metrics`; empty: none (in a file: the " +
		"default); `[::1]:10249` if `--bind-address` is IPv6"},
	{"bindAddressHardFail", "bind-address-hard-fail", honoured, "exit if vmapd cannot listen on one of these addresses"},
	{"enableProfiling", "profiling", honoured, "serve `/debug/pprof/` on the metrics address"},
	{"showHiddenMetricsForVersion", "show-hidden-metrics-for-version", ignored, "no metric is hidden"},
	{"mode", "proxy-mode", honoured, "kube-proxy's mode: `nftables`, `iptables` or `ipvs` (default: as " +
		"`--backend=auto`); see [Backend](#backend)"},
	{"iptables.masqueradeBit", "iptables-masquerade-bit", honoured, "bit of the packet mark that iptables and IPVS " +
		"use, 0 to 31"},
	{"iptables.masqueradeAll", "masquerade-all", honoured, "masquerade all traffic to cluster IPs; see " +
		"[Sections](#sections)"},
	{"iptables.localhostNodePorts", "iptables-localhost-nodeports", honoured, "with `mode: iptables`: node ports " +
		"answer on 127.0.0.1 if `nodePortAddresses` includes it, by listeners"},
	{"iptables.syncPeriod", "iptables-sync-period", honoured, "after twice this time without a successful sync, the " +
		"node is unhealthy (not with IPVS); see [Sections](#sections)"},
	{"iptables.minSyncPeriod", "iptables-min-sync-period", honoured, "minimum time between two syncs (not with IPVS; " +
		"default: 1s with `mode: iptables`); see [Sections](#sections)"},
	{"ipvs.syncPeriod", "ipvs-sync-period", honoured, "as `--iptables-sync-period`, with IPVS"},
	{"ipvs.minSyncPeriod", "ipvs-min-sync-period", honoured, "as `--iptables-min-sync-period`, with IPVS"},
	{"ipvs.scheduler", "ipvs-scheduler", honoured, "IPVS scheduler of Services where neither they nor " +
		"`--lb-algorithm` set an algorithm (default: rr)"},
	{"ipvs.excludeCIDRs", "ipvs-exclude-cidrs", honoured, "ranges of other programs' virtual servers, which a cleanup " +
		"does not remove"},
	{"ipvs.strictARP", "ipvs-strict-arp", honoured, "do not answer ARP requests for Services' addresses"},
	{"ipvs.tcpTimeout", "ipvs-tcp-timeout", honoured, "timeout of idle TCP connections, in whole seconds; 0 keeps the " +
		"kernel's"},
	{"ipvs.tcpFinTimeout", "ipvs-tcpfin-timeout", honoured, "timeout of TCP connections after a FIN; 0 keeps the " +
		"kernel's"},
	{"ipvs.udpTimeout", "ipvs-udp-timeout", honoured, "timeout of UDP flows; 0 keeps the kernel's"},
	{"nftables.masqueradeBit", "", ignored, "nftables needs no packet mark here"},
	{"nftables.masqueradeAll", "masquerade-all", honoured, "masquerade all traffic to cluster IPs; see " +
		"[Sections](#sections)"},
	{"nftables.syncPeriod", "iptables-sync-period", honoured, "after twice this time without a successful sync, the " +
		"node is unhealthy"},
	{"nftables.minSyncPeriod", "iptables-min-sync-period", honoured, "as `iptables.minSyncPeriod`, with nftables"},
	{"winkernel.networkName", "network-name", ignored, windowsOnly},
	{"winkernel.sourceVip", "source-vip", ignored, windowsOnly},
	{"winkernel.enableDSR", "enable-dsr", ignored, windowsOnly},
	{"winkernel.rootHnsEndpointName", "root-hnsendpoint-name", ignored, windowsOnly},
	{"winkernel.forwardHealthCheckVip", "forward-healthcheck-vip", ignored, windowsOnly},
	{"detectLocalMode", "detect-local-mode", honoured, "what distinguishes pods: `ClusterCIDR`, `NodeCIDR`, " +
		"`BridgeInterface` or `InterfaceNamePrefix`"},
	{"detectLocal.bridgeInterface", "pod-bridge-interface", honoured, "the pods' bridge, for `BridgeInterface`"},
	{"detectLocal.interfaceNamePrefix", "pod-interface-name-prefix", honoured, "prefix of the pods' interface names, " +
		"for `InterfaceNamePrefix`"},
	{"clusterCIDR", "cluster-cidr", honoured, "for `ClusterCIDR`: the pods' range of each family; traffic to cluster " +
		"IPs from elsewhere is masqueraded"},
	{"nodePortAddresses", "nodeport-addresses", honoured, "addresses on which node ports answer, except IPv6 " +
		"link-local ones: `primary`, `all`, `localhost` (TCP and UDP, by listeners), CIDRs, or several (default: " +
		"`primary`; `all` with mode iptables or ipvs); see [Backend](#backend)"},
	{"oomScoreAdj", "oom-score-adj", honoured, "oom_score_adj of the vmapd process, -1000 to 1000"},
	{"conntrack.maxPerCore", "conntrack-max-per-core", honoured, "nf_conntrack_max for each CPU core, at most " +
		"1,048,576 in all; a higher limit stays; 0 keeps any limit"},
	{"conntrack.min", "conntrack-min", honoured, "minimum of nf_conntrack_max, unless `--conntrack-max-per-core` is 0"},
	{"conntrack.tcpEstablishedTimeout", "conntrack-tcp-timeout-established", honoured, "timeout of idle TCP " +
		"connections; 0 keeps the kernel's"},
	{"conntrack.tcpCloseWaitTimeout", "conntrack-tcp-timeout-close-wait", honoured, "timeout of TCP connections in " +
		"CLOSE_WAIT; 0 keeps the kernel's"},
	{"conntrack.tcpBeLiberal", "conntrack-tcp-be-liberal", honoured, "do not treat out-of-window TCP packets as " +
		"INVALID"},
	{"conntrack.udpTimeout", "conntrack-udp-timeout", honoured, "timeout of UDP flows without replies; 0 keeps the " +
		"kernel's"},
	{"conntrack.udpStreamTimeout", "conntrack-udp-timeout-stream", honoured, "timeout of UDP flows with replies; 0 " +
		"keeps the kernel's"},
	{"configSyncPeriod", "config-sync-period", ignored, "each change is applied as it arrives; there is nothing to " +
		"refresh"},
	{"portRange", "proxy-port-range", ignored, "it belongs to kube-proxy's userspace mode, which no longer exists"},
	{"windowsRunAsService", "windows-service", ignored, windowsOnly},
	{"", "healthz-port", deprecated, "0 disables the health address; else the port of a `--healthz-bind-address` " +
		"without one"},
	{"", "metrics-port", deprecated, "0 disables the metrics address; else the port of a `--metrics-bind-address` " +
		"without one"},
	{"", "boot-id-file", ignored, "kube-proxy does not read it either"},
	{"", "machine-id-file", ignored, "kube-proxy does not read it either"},
}

// ownSettings are vmapd's fields and flags.
var ownSettings = []setting{
	{"", "vmapd-config", honoured, "file with a `" + ownKind + "`; vmapd's own flags override it"},
	{"", "from", honoured, "file or folder of manifests to use in place of a cluster; vmapd follows changes " +
		"(repeatable)"},
	{"backend", "backend", honoured, "`nftables`, `ipvs`, `iptables`, `userspace`, or `auto`: kube-proxy's mode, else " +
		"the first of these that works; see [Backend](#backend)"},
	{"lbAlgorithm", "lb-algorithm", honoured, "algorithm that chooses an endpoint: `random`, `maglev` or " +
		"`maglev-port`; Services' `vmapd.io/lb-algorithm` overrides it; see [Algorithms](#algorithms)"},
	{"maglevTableSize", "maglev-table-size", honoured, "slots of a lookup table of maglev; the same on all nodes, " +
		"preferably prime; see [Algorithms](#algorithms)"},
	{"dropInvalid", "drop-invalid", honoured, "drop packets of Services that connection tracking classifies as INVALID"},
	{"serviceCounters", "service-counters", honoured, "count the new connections of each Service port"},
	{"fastPath", "fast-path", honoured, "devices between which connections take the fast path: `off`, `auto`, or as " +
		"`eth0,cali*`; see [Fast path](#fast-path)"},
	{"connectionGrace", "connection-grace", honoured, "close TCP and SCTP connections to a removed endpoint after " +
		"this time (0: never); Services' `vmapd.io/connection-grace` overrides it"},
	{"connectionRetry", "connection-retry", honoured, "a connection without an answer within a second gets another " +
		"endpoint; Services' `vmapd.io/connection-retry` overrides it; see [Dead endpoints](#dead-endpoints)"},
	{"outlierDetection", "outlier-detection", ignored, "there is no outlier detection any more"},
	{"externalAddresses.ipRanges", "external-ip-ranges", honoured, "ranges of external IPs that are served (default: " +
		"all); see [External addresses](#external-addresses)"},
	{"externalAddresses.allowServiceCIDRs", "external-addresses-in-service-cidrs", honoured, "serve external " +
		"addresses in a range of cluster IPs; see [External addresses](#external-addresses)"},
	{"externalAddresses.refuseNodeAddresses", "refuse-node-addresses", honoured, "do not serve external addresses " +
		"that are the node's; see [External addresses](#external-addresses)"},
	{"socket", "socket", honoured, "unix socket at which commands on the node ask the daemon; empty: none"},
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
