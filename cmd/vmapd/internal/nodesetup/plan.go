package nodesetup

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeproxyv1alpha1 "k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/vmapd/vmapd/model"
)

// The kernel's settings. Those below /proc/sys/net belong to a network namespace, except the size of the table: only
// the initial namespace may change it (Documentation/networking/nf_conntrack-sysctl.rst).
const (
	sysctls = "/proc/sys/net/netfilter/"

	fileMax                   = sysctls + "nf_conntrack_max"
	fileCount                 = sysctls + "nf_conntrack_count"
	fileBuckets               = sysctls + "nf_conntrack_buckets"
	fileTCPEstablishedTimeout = sysctls + "nf_conntrack_tcp_timeout_established"
	fileTCPCloseWaitTimeout   = sysctls + "nf_conntrack_tcp_timeout_close_wait"
	fileTCPBeLiberal          = sysctls + "nf_conntrack_tcp_be_liberal"
	fileUDPTimeout            = sysctls + "nf_conntrack_udp_timeout"
	fileUDPStreamTimeout      = sysctls + "nf_conntrack_udp_timeout_stream"

	fileHashSize = "/sys/module/nf_conntrack/parameters/hashsize"
)

// BridgeCalls are the files below /proc/sys by which packets that a bridge passes on meet netfilter. Without the module
// br_netfilter, there are none.
var BridgeCalls = [len(model.Families)]string{
	model.IPv4: "net/bridge/bridge-nf-call-iptables", model.IPv6: "net/bridge/bridge-nf-call-ip6tables",
}

// Dotted returns the name of a sysctl by its file below /proc/sys.
func Dotted(file string) string { return strings.ReplaceAll(file, "/", ".") }

// Conntrack is kube-proxy's section conntrack. What is 0, less or missing changes nothing; false changes nothing about
// tcpBeLiberal. Timeouts are rounded down to whole seconds, but to at least one.
type Conntrack = kubeproxyv1alpha1.KubeProxyConntrackConfiguration

// maxScaled bounds MaxPerCore times the CPUs, as in kube-proxy since 1.36: 300 CPUs would allow 10 million connections.
// kube-proxy then ignores a Min above it. vmapd does not, because an operator who sets a number expects it.
const maxScaled = 1 << 20

// Write is one file to write, with its value.
type Write struct {
	File  string
	Value string
	Have  string // the present value; empty if it is not known
	Why   string
}

// Plan returns the writes that bring a node with so many online CPUs in line with c. have returns the content of a
// file, "" if it is not known. The limit of connections and the size of the hash table, which is a quarter of that,
// only grow: what an administrator made larger costs memory only if it is used, and a smaller limit drops connections.
// A value that is not known is planned, too, so that its failure is reported.
func Plan(c Conntrack, cpus int, have func(file string) string) (plan []Write) {
	set := func(file, have string, want int64, mayBeMore bool, why string) {
		if now, err := strconv.ParseInt(have, 10, 64); err != nil || now < want || now > want && !mayBeMore {
			plan = append(plan, Write{File: file, Value: strconv.FormatInt(want, 10), Have: have, Why: why})
		}
	}
	timeout := func(file string, d metav1.Duration, why string) {
		if d.Duration > 0 { // with 0 seconds, the kernel would not track it
			set(file, have(file), max(int64(d.Duration/time.Second), 1), false, why)
		}
	}
	perCore, least := int64(ptr.Deref(c.MaxPerCore, 0)), int64(ptr.Deref(c.Min, 0))
	if limit := max(min(perCore*int64(cpus), maxScaled), least); perCore > 0 {
		if now := have(fileMax); now != "0" { // no limit
			const why = "the greater of conntrack.maxPerCore %d for %d CPUs and conntrack.min %d"
			set(fileMax, now, limit, true, fmt.Sprintf(why, perCore, cpus, least))
		}
		// The kernel rounds the size up, and shows the result in another file, which everybody may read.
		set(fileHashSize, cmp.Or(have(fileBuckets), have(fileHashSize)), limit/4, true,
			"a quarter of the connections, for short chains in the hash table")
	}
	timeout(fileTCPEstablishedTimeout, ptr.Deref(c.TCPEstablishedTimeout, metav1.Duration{}),
		"conntrack.tcpEstablishedTimeout")
	timeout(fileTCPCloseWaitTimeout, ptr.Deref(c.TCPCloseWaitTimeout, metav1.Duration{}),
		"conntrack.tcpCloseWaitTimeout")
	timeout(fileUDPTimeout, c.UDPTimeout, "conntrack.udpTimeout")
	timeout(fileUDPStreamTimeout, c.UDPStreamTimeout, "conntrack.udpStreamTimeout")
	if c.TCPBeLiberal {
		set(fileTCPBeLiberal, have(fileTCPBeLiberal), 1, false, "conntrack.tcpBeLiberal")
	}
	return plan
}
