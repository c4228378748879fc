package config

import "strings"

// fate is what becomes of a setting.
type fate uint8

const (
	honoured fate = iota
	ignored       // read and checked, but it means nothing here; said where it is set
)

func (f fate) String() string { return [...]string{"honoured", "ignored"}[f] }

// change is what becomes of a setting that changes in its file while the daemon runs.
type change uint8

const (
	unchangeable change = iota // a flag alone, or ignored
	live                       // the daemon applies it
	restart                    // the next start applies it
)

func (c change) String() string { return [...]string{"", "in place", "at the next start"}[c] }

// setting is one field, one flag, or one of each that mean the same.
type setting struct {
	field  string // path in the file; empty if there is only a flag
	flag   string // empty if there is only a field
	fate   fate
	change change
	what   string // what it does here or, if it is ignored, why
}

// windowsOnly is why winkernel's fields mean nothing.
const windowsOnly = "Windows only"

// kubeProxySettings are kube-proxy's fields and flags. A flag that sets two fields stands
// in the row of each.
var kubeProxySettings = []setting{
	{"", "config", honoured, unchangeable, "the file with these fields; followed while the daemon runs"},
	{"", "write-config-to", honoured, unchangeable, "write what is in force to this file, and end"},
	{"", "cleanup", honoured, unchangeable, "as `vmapd cleanup`; not 0 if something failed"},
	{"", "init-only", honoured, unchangeable, "do what needs all privileges, and end"},
	{"", "master", honoured, unchangeable, "the API server's address, in place of the kubeconfig's; counts with `--config` too"},
	{"featureGates", "feature-gates", ignored, unchangeable, "each gate that is set is named, and what is the case here; an unknown one does not stop a node"},
	{"clientConnection.kubeconfig", "kubeconfig", honoured, restart, "the file with the cluster's address and credentials; empty: the pod's own"},
	{"clientConnection.acceptContentTypes", "", honoured, restart, "what the API server may answer with"},
	{"clientConnection.contentType", "kube-api-content-type", honoured, restart, "what is sent to the API server"},
	{"clientConnection.qps", "kube-api-qps", honoured, restart, "requests per second"},
	{"clientConnection.burst", "kube-api-burst", honoured, restart, "by how many requests that may be exceeded for a moment"},
	{"logging.format", "logging-format", honoured, restart, "`text` (key=value) or `json`"},
	{"logging.flushFrequency", "log-flush-frequency", ignored, unchangeable, "the log is not buffered"},
	{"logging.verbosity", "v", honoured, live, "from 4 on, each batch is logged, too"},
	{"logging.vmodule", "vmodule", ignored, unchangeable, "the verbosity is the same in all files"},
	{"logging.options.text.splitStream", "log-text-split-stream", ignored, unchangeable, "the log is one stream, to standard error"},
	{"logging.options.text.infoBufferSize", "log-text-info-buffer-size", ignored, unchangeable, "the log is not buffered"},
	{"logging.options.json.splitStream", "log-json-split-stream", ignored, unchangeable, "the log is one stream, to standard error"},
	{"logging.options.json.infoBufferSize", "log-json-info-buffer-size", ignored, unchangeable, "the log is not buffered"},
	{"hostnameOverride", "hostname-override", honoured, restart, "the Node's name; the flag goes before the file; empty: the host's name"},
	{"bindAddress", "bind-address", honoured, live, "in place of the Node's primary address, unless it is unspecified; its family is that of the next two defaults"},
	{"healthzBindAddress", "healthz-bind-address", honoured, live, "`--healthz-bind-address=` serves no health; in a file, empty is the default"},
	{"metricsBindAddress", "metrics-bind-address", honoured, live, "`--metrics-bind-address=` serves no metrics; in a file, empty is the default"},
	{"bindAddressHardFail", "bind-address-hard-fail", honoured, live, "an address for health or metrics that can't be had ends the daemon"},
	{"enableProfiling", "profiling", honoured, live, "`/debug/pprof/` beside the metrics"},
	{"showHiddenMetricsForVersion", "show-hidden-metrics-for-version", ignored, unchangeable, "no metric is hidden"},
	{"mode", "proxy-mode", honoured, restart, "see [Backend](#backend)"},
	{"iptables.masqueradeBit", "iptables-masquerade-bit", honoured, restart, "the bit of the packet mark, with iptables and IPVS"},
	{"iptables.masqueradeAll", "masquerade-all", honoured, live, "masquerade all traffic to cluster IPs; see [Sections](#sections)"},
	{"iptables.localhostNodePorts", "iptables-localhost-nodeports", honoured, live, "with `mode: iptables`: node ports on 127.0.0.1, if `nodePortAddresses` includes it; by a program that listens there, without route_localnet"},
	{"iptables.syncPeriod", "iptables-sync-period", honoured, live, "how often the node is compared with what should be there; twice as long without a good round is unhealthy; see [Sections](#sections)"},
	{"iptables.minSyncPeriod", "iptables-min-sync-period", honoured, live, "least time between two rounds; see [Sections](#sections)"},
	{"ipvs.syncPeriod", "ipvs-sync-period", honoured, live, "as `iptables.syncPeriod`, with IPVS"},
	{"ipvs.minSyncPeriod", "ipvs-min-sync-period", honoured, live, "as `iptables.minSyncPeriod`, with IPVS"},
	{"ipvs.scheduler", "ipvs-scheduler", honoured, restart, "where neither a Service nor `lbAlgorithm` says how to choose; empty: rr"},
	{"ipvs.excludeCIDRs", "ipvs-exclude-cidrs", honoured, restart, "where virtual servers of others are, which a clean-up leaves alone"},
	{"ipvs.strictARP", "ipvs-strict-arp", honoured, restart, "do not answer ARP requests for Services' addresses"},
	{"ipvs.tcpTimeout", "ipvs-tcp-timeout", honoured, restart, "for idle TCP connections, in whole seconds; 0 leaves the kernel's"},
	{"ipvs.tcpFinTimeout", "ipvs-tcpfin-timeout", honoured, restart, "for TCP connections after a FIN"},
	{"ipvs.udpTimeout", "ipvs-udp-timeout", honoured, restart, "for UDP"},
	{"nftables.masqueradeBit", "", ignored, unchangeable, "nftables needs no packet mark here"},
	{"nftables.masqueradeAll", "masquerade-all", honoured, live, "masquerade all traffic to cluster IPs; see [Sections](#sections)"},
	{"nftables.syncPeriod", "iptables-sync-period", honoured, live, "twice as long without a good round is unhealthy; what others do to our tables is noticed at once"},
	{"nftables.minSyncPeriod", "iptables-min-sync-period", honoured, live, "as `iptables.minSyncPeriod`, with nftables"},
	{"winkernel.networkName", "network-name", ignored, unchangeable, windowsOnly},
	{"winkernel.sourceVip", "source-vip", ignored, unchangeable, windowsOnly},
	{"winkernel.enableDSR", "enable-dsr", ignored, unchangeable, windowsOnly},
	{"winkernel.rootHnsEndpointName", "root-hnsendpoint-name", ignored, unchangeable, windowsOnly},
	{"winkernel.forwardHealthCheckVip", "forward-healthcheck-vip", ignored, unchangeable, windowsOnly},
	{"detectLocalMode", "detect-local-mode", honoured, live, "how a pod is told from other clients"},
	{"detectLocal.bridgeInterface", "pod-bridge-interface", honoured, live, "for `BridgeInterface`"},
	{"detectLocal.interfaceNamePrefix", "pod-interface-name-prefix", honoured, live, "for `InterfaceNamePrefix`"},
	{"clusterCIDR", "cluster-cidr", honoured, live, "for `ClusterCIDR`: the pods' ranges, one of each family at most"},
	{"nodePortAddresses", "nodeport-addresses", honoured, live, "`primary`, `all`, `localhost` and CIDRs, in any mixture; empty: see [Backend](#backend)"},
	{"oomScoreAdj", "oom-score-adj", honoured, live, "of the daemon's process"},
	{"conntrack.maxPerCore", "conntrack-max-per-core", honoured, live, "nf_conntrack_max; 0 leaves it"},
	{"conntrack.min", "conntrack-min", honoured, live, "the least nf_conntrack_max"},
	{"conntrack.tcpEstablishedTimeout", "conntrack-tcp-timeout-established", honoured, live, "0 leaves the kernel's"},
	{"conntrack.tcpCloseWaitTimeout", "conntrack-tcp-timeout-close-wait", honoured, live, "0 leaves the kernel's"},
	{"conntrack.tcpBeLiberal", "conntrack-tcp-be-liberal", honoured, live, "no TCP packet counts as invalid for its sequence number"},
	{"conntrack.udpTimeout", "conntrack-udp-timeout", honoured, live, "0 leaves the kernel's"},
	{"conntrack.udpStreamTimeout", "conntrack-udp-timeout-stream", honoured, live, "0 leaves the kernel's"},
	{"configSyncPeriod", "config-sync-period", ignored, unchangeable, "each change is applied when it comes; there is nothing to refresh"},
	{"portRange", "proxy-port-range", ignored, unchangeable, "of kube-proxy's userspace mode, which no longer exists"},
	{"windowsRunAsService", "windows-service", ignored, unchangeable, windowsOnly},
	{"", "healthz-port", honoured, unchangeable, "deprecated: 0 serves no health, else the port of a `--healthz-bind-address` without one"},
	{"", "metrics-port", honoured, unchangeable, "deprecated: 0 serves no metrics, else the port of a `--metrics-bind-address` without one"},
	{"", "boot-id-file", ignored, unchangeable, "kube-proxy does not read it either"},
	{"", "machine-id-file", ignored, unchangeable, "kube-proxy does not read it either"},
}

// ownSettings are vmapd's fields and flags.
var ownSettings = []setting{
	{"", "vmapd-config", honoured, unchangeable, "the file with these fields; followed while the daemon runs"},
	{"", "from", honoured, unchangeable, "files or folders of manifests in place of a cluster (repeatable)"},
	{"backend", "backend", honoured, restart, "`nftables`, `ipvs`, `iptables` or `auto`; see [Backend](#backend)"},
	{"lbAlgorithm", "lb-algorithm", honoured, live, "`random` (default), `round-robin` or `source-hash`; a Service's annotation `vmapd.io/lb-algorithm` goes before it"},
	{"dropInvalid", "drop-invalid", honoured, live, "drop packets of Services that connection tracking takes for invalid"},
	{"serviceCounters", "service-counters", honoured, live, "count each Service's connections"},
	{"connectionGrace", "connection-grace", honoured, live, "how long TCP and SCTP connections may go on to an endpoint that is gone; 0, the default: as long as they like; a Service's annotation `vmapd.io/connection-grace` goes before it"},
	{"metricsTLS.certFile", "tls-cert-file", honoured, live, "certificate, for metrics over TLS"},
	{"metricsTLS.keyFile", "tls-private-key-file", honoured, live, "its key"},
	{"metricsAuthentication", "metrics-auth", honoured, live, "`none` (default), or `token`: ask the API server who may read metrics"},
}

// flagOf returns the flag that sets a field, or "". An index at the end of the path is
// left out of the look-up.
func flagOf(settings []setting, field string) string {
	field, _, _ = strings.Cut(field, "[")
	for _, s := range settings {
		if s.field == field {
			return s.flag
		}
	}
	return ""
}

// countsWithFile are the flags of kube-proxy that count although there is --config.
// Flags of logging do so as well; they are merged over the file.
var countsWithFile = map[string]bool{
	"config": true, "write-config-to": true, "cleanup": true, "init-only": true, "master": true, "hostname-override": true,
}

// isLogging reports whether s is about the log.
func (s setting) isLogging() bool { return strings.HasPrefix(s.field, "logging.") }
