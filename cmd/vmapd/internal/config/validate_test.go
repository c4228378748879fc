package config_test

import (
	"strings"
	"testing"

	"github.com/vmapd/vmapd/model/modeltest/testaid"
)

// Each rule, with what it says: the file and the field.
func TestWhatIsWrongInAFileIsNamed(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       string // empty: it is valid
	}{
		{"mode", "mode: userspace\n", `mode: Invalid value: "userspace": none of ["" "iptables" "ipvs" "nftables"]`},
		{"bit of iptables, too high", "iptables: {masqueradeBit: 32}\n", `iptables.masqueradeBit: Invalid value: 32: not between 0 and 31`},
		{"bit of iptables, lowest", "iptables: {masqueradeBit: 0}\n", ``},
		{"bit of nftables", "mode: nftables\nnftables: {masqueradeBit: 32}\n", `nftables.masqueradeBit: Invalid value: 32: not between 0 and 31`},
		{"score, too low", "oomScoreAdj: -1001\n", `oomScoreAdj: Invalid value: -1001: not between -1000 and 1000`},
		{"burst", "clientConnection: {burst: -1}\n", `clientConnection.burst: Invalid value: -1: not between 0 and 2147483647`},
		{"config sync period", "configSyncPeriod: -1s\n", `configSyncPeriod: Invalid value: "-1s": not more than 0`},
		{"bind address", "bindAddress: here\n", `bindAddress: Invalid value: "here": not an IP address`},
		{"bind address with old zeros", "bindAddress: 192.168.000.002\n", ``},
		{"healthz without an address", "healthzBindAddress: ':10256'\n", `healthzBindAddress: Invalid value: ":10256": not an IP address with or without a port from 1 to 65535`},
		{"metrics with port 0", "metricsBindAddress: 127.0.0.1:0\n", `metricsBindAddress: Invalid value: "127.0.0.1:0": not an IP address with or without a port from 1 to 65535`},
		{"metrics with a named port", "metricsBindAddress: 127.0.0.1:http\n", `metricsBindAddress: Invalid value: "127.0.0.1:http": not an IP address with or without a port from 1 to 65535`},
		{"metrics, IPv6 without brackets", "metricsBindAddress: '::1'\n", ``},

		{"sync period", "mode: iptables\niptables: {syncPeriod: -1s}\n", `iptables.syncPeriod: Invalid value: "-1s": less than 0`},
		{"least period", "mode: iptables\niptables: {minSyncPeriod: -1s}\n", `iptables.minSyncPeriod: Invalid value: "-1s": less than 0`},
		{"least period above", "mode: iptables\niptables: {minSyncPeriod: 31s}\n", `iptables.minSyncPeriod: Invalid value: "31s": more than syncPeriod (30s)`},
		{"least period above, of nftables", "mode: nftables\nnftables: {minSyncPeriod: 3s, syncPeriod: 2s}\n", `nftables.minSyncPeriod: Invalid value: "3s": more than syncPeriod (2s)`},
		{"least period above, of ipvs", "mode: ipvs\nipvs: {minSyncPeriod: 3s, syncPeriod: 2s}\n", `ipvs.minSyncPeriod: Invalid value: "3s": more than syncPeriod (2s)`},
		{"least period above, of nobody", "mode: nftables\nipvs: {minSyncPeriod: 3s, syncPeriod: 2s}\n", ``},

		{"scheduler", "mode: ipvs\nipvs: {scheduler: best}\n", `ipvs.scheduler: Invalid value: "best": none of …`},
		{"exclude CIDRs", "mode: ipvs\nipvs: {excludeCIDRs: [10.0.0.0/8, ten]}\n", `ipvs.excludeCIDRs[1]: Invalid value: "ten": not a CIDR`},
		{"TCP timeout", "mode: ipvs\nipvs: {tcpTimeout: -1s}\n", `ipvs.tcpTimeout: Invalid value: "-1s": less than 0`},
		{"UDP timeout", "mode: ipvs\nipvs: {udpTimeout: 1500ms}\n", `ipvs.udpTimeout: Invalid value: "1.5s": not a number of whole seconds`},
		{"FIN timeout", "mode: ipvs\nipvs: {tcpFinTimeout: 1500ms}\n", `ipvs.tcpFinTimeout: Invalid value: "1.5s": not a number of whole seconds`},
		{"ipvs, which nobody chose", "mode: iptables\nipvs: {scheduler: best, excludeCIDRs: [ten], tcpTimeout: -1s, syncPeriod: -1s}\n", ``},

		{"conntrack per core", "conntrack: {maxPerCore: -1}\n", `conntrack.maxPerCore: Invalid value: -1: not between 0 and 2147483647`},
		{"conntrack min", "conntrack: {min: -1}\n", `conntrack.min: Invalid value: -1: not between 0 and 2147483647`},
		{"conntrack established", "conntrack: {tcpEstablishedTimeout: -1s}\n", `conntrack.tcpEstablishedTimeout: Invalid value: "-1s": less than 0`},
		{"conntrack close wait", "conntrack: {tcpCloseWaitTimeout: -1s}\n", `conntrack.tcpCloseWaitTimeout: Invalid value: "-1s": less than 0`},
		{"conntrack UDP", "conntrack: {udpTimeout: -1s}\n", `conntrack.udpTimeout: Invalid value: "-1s": less than 0`},

		{"local mode", "detectLocalMode: Guess\n", `detectLocalMode: Invalid value: "Guess": none of ["BridgeInterface" "ClusterCIDR" "InterfaceNamePrefix" "NodeCIDR"]`},
		{"bridge is missing", "detectLocalMode: BridgeInterface\n", `detectLocal.bridgeInterface: Required value: detectLocalMode BridgeInterface needs it`},
		{"prefix is missing", "detectLocalMode: InterfaceNamePrefix\n", `detectLocal.interfaceNamePrefix: Required value: detectLocalMode InterfaceNamePrefix needs it`},
		{"bridge", "detectLocal: {bridgeInterface: 'a\"b'}\n", `detectLocal.bridgeInterface: Invalid value: "a\"b": not the name of an interface`},
		{"long prefix", "detectLocal: {interfaceNamePrefix: abcdefghijklmnop}\n", `detectLocal.interfaceNamePrefix: Invalid value: "abcdefghijklmnop": longer than the 15 bytes that an interface's name can have`},

		{"cluster CIDR", "clusterCIDR: ten\n", `clusterCIDR: Invalid value: "ten": "ten" is not a CIDR`},
		{"two of a family", "clusterCIDR: 10.0.0.0/8,172.16.0.0/12\n", `clusterCIDR: Invalid value: "10.0.0.0/8,172.16.0.0/12": "172.16.0.0/12" is a second one of IPv4`},
		{"dual stack", "clusterCIDR: 10.0.0.0/8,fd00::/16\n", ``},

		{"node-port address", "nodePortAddresses: [primary, 10.0.0.0/33]\n", `nodePortAddresses[1]: Invalid value: "10.0.0.0/33": neither primary, all, localhost nor a CIDR`},
		{"node-port mixture", "nodePortAddresses: [primary, all, localhost, 10.0.0.0/8, 'fd00::/8']\n", ``},

		{"log format", "logging: {format: xml}\n", `logging.format: Invalid value: "xml": Unsupported log format`},
		{"vmodule with JSON", "logging: {format: json, vmodule: [{filePattern: a, verbosity: 1}]}\n", `logging.vmodule: Forbidden: Only supported for text log format`},
		{"options of the log, which are ignored", "logging: {format: json, options: {json: {splitStream: true, infoBufferSize: 1Ki}}}\n", ``},

		{"the first of two", "mode: x\noomScoreAdj: 5000\n", `mode: Invalid value: "x": none of ["" "iptables" "ipvs" "nftables"]`},
		{"wrong type", "iptables: {masqueradeBit: fourteen}\n", `json: cannot unmarshal string into Go struct field KubeProxyIPTablesConfiguration.iptables.masqueradeBit of type int32`},
		{"a word for a duration", "iptables: {syncPeriod: soon}\n", `iptables.syncPeriod: time: invalid duration "soon"`},
		{"a word for a quantity", "logging: {options: {text: {infoBufferSize: much}}}\n", `logging.options.text.infoBufferSize: quantities must match the regular expression…`},
		{"half a line", "mode: [\n", `yaml: line 3: did not find expected node content`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := files{proxy: tt.text}.load(t)
			check(t, err, "proxy.yaml: ", tt.want)
		})
	}
}

// check compares an error with what it should say; "…" at the end stands for anything.
func check(t *testing.T, err error, place, want string) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	if want != "" {
		want = place + want
	}
	if start, ok := strings.CutSuffix(want, "…"); ok && strings.HasPrefix(got, start) {
		return
	}
	testaid.Equal(t, "error", want, got)
}

func TestWhatIsWrongInOurFileIsNamed(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"backend", "backend: ebpf\n", `backend: Invalid value: "ebpf": none of ["auto" "nftables" "ipvs" "iptables" "userspace"]`},
		{"algorithm", "lbAlgorithm: best\n", `lbAlgorithm: Invalid value: "best": "best" is none of random, maglev, maglev-port`},
		{"a table that is too small", "maglevTableSize: 60\n", `maglevTableSize: Invalid value: 60: not between 61 and 65521`},
		{"grace", "connectionGrace: -1s\n", `connectionGrace: Invalid value: "-1s": less than 0`},
		{"range", "externalAddresses: {ipRanges: [192.168.99.0/24, here]}\n", `externalAddresses.ipRanges[1]: Invalid value: "here": not a CIDR`},
		{"wrong type", "connectionGrace: soon\n", `connectionGrace: time: invalid duration "soon"`},
		{"all right", "backend: nftables\nlbAlgorithm: maglev\ndropInvalid: true\nserviceCounters: true\nconnectionGrace: 1m\nexternalAddresses: {ipRanges: [192.168.99.0/24], allowServiceCIDRs: true, refuseNodeAddresses: true}\n", ``},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := files{own: tt.text}.load(t)
			check(t, err, "own.yaml: ", tt.want)
		})
	}
}

func TestWhatIsWrongOnTheCommandLineIsNamed(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"--cluster-cidr=ten", `cluster-cidr: Invalid value: "ten": "ten" is not a CIDR`},
		{"--nodeport-addresses=primary,x", `nodeport-addresses: Invalid value: "x": neither primary, all, localhost nor a CIDR`},
		{"--proxy-mode=userspace", `proxy-mode: Invalid value: "userspace": none of ["" "iptables" "ipvs" "nftables"]`},
		{"--iptables-masquerade-bit=32", `iptables-masquerade-bit: Invalid value: 32: not between 0 and 31`},
		{"--iptables-sync-period=0", `iptables-sync-period: must be greater than 0`},
		{"--ipvs-sync-period=0", `ipvs-sync-period: must be greater than 0`},
		{"--config-sync-period=0", `config-sync-period: must be greater than 0`},
		{"--iptables-sync-period=-1s --proxy-mode=iptables", `iptables-sync-period: Invalid value: "-1s": less than 0`},
		{"--detect-local-mode=BridgeInterface", `pod-bridge-interface: Required value: detectLocalMode BridgeInterface needs it`},
		{"--metrics-bind-address=here", `metrics-bind-address: Invalid value: "here": not an IP address with or without a port from 1 to 65535`},
		{"--ipvs-exclude-cidrs=ten", `ipvs-exclude-cidrs: Invalid value: "ten": not a CIDR`},
		{"--backend=ipvs --ipvs-exclude-cidrs=ten", `ipvs-exclude-cidrs: Invalid value: "ten": not a CIDR`},
		{"--backend=ebpf", `backend: Invalid value: "ebpf": none of ["auto" "nftables" "ipvs" "iptables" "userspace"]`},
		{"--from=x --master=y", `from excludes --kubeconfig and --master`},
		{"--config=missing", `config: open missing: no such file or directory`},
		{"--vmapd-config=missing", `vmapd-config: open missing: no such file or directory`},
		{"--hostname-override= --cluster-cidr=10.0.0.0/8", ``},
	} {
		t.Run(tt.args, func(t *testing.T) {
			_, err := files{}.load(t, strings.Fields(tt.args)...)
			check(t, err, "--", tt.want)
		})
	}
	_, err := files{}.load(t, "--hostname-override= ")
	check(t, err, "--", "hostname-override: must not consist of spaces only")
}

// A file of another kind is refused in one line, however long it is.
func TestAnotherKindIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"apiVersion: kubeproxy.config.k8s.io/v1beta1\nkind: KubeProxyConfiguration\n": `apiVersion "kubeproxy.config.k8s.io/v1beta1", kind "KubeProxyConfiguration": want kubeproxy.config.k8s.io/v1alpha1, KubeProxyConfiguration`,
		"apiVersion: v1\nkind: ConfigMap\ndata: {config.conf: x}\n":                   `apiVersion "v1", kind "ConfigMap": want kubeproxy.config.k8s.io/v1alpha1, KubeProxyConfiguration`,
		ownHeader:                             `apiVersion "vmapd.io/v1alpha1", kind "VmapdConfiguration": want kubeproxy.config.k8s.io/v1alpha1, KubeProxyConfiguration`,
		"mode: ipvs\n":                        `apiVersion "", kind "": want kubeproxy.config.k8s.io/v1alpha1, KubeProxyConfiguration`,
		"":                                    `apiVersion "", kind "": want kubeproxy.config.k8s.io/v1alpha1, KubeProxyConfiguration`,
		"[1, 2]":                              `not an object: want apiVersion kubeproxy.config.k8s.io/v1alpha1, kind KubeProxyConfiguration`,
		"kind: " + strings.Repeat("x", 1<<20): `apiVersion "", kind "` + strings.Repeat("x", 100) + `": want kubeproxy.config.k8s.io/v1alpha1, KubeProxyConfiguration`,
		strings.Repeat("x", 5<<20):            `larger than 4194304 bytes`,
	} {
		_, err := loadText(t, text)
		if err == nil || strings.TrimPrefix(strings.TrimPrefix(err.Error(), "--config: "), "proxy.yaml: ") != want {
			t.Errorf("%.50q:\ngot  %.300v\nwant %s", text, err, want)
		}
	}
}
