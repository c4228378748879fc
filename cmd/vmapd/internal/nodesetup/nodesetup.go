package nodesetup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeproxyv1alpha1 "k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/cpuset"
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

	fileHashSize   = "/sys/module/nf_conntrack/parameters/hashsize"
	fileOnlineCPUs = "/sys/devices/system/cpu/online"
	fileOOMScore   = "/proc/self/oom_score_adj"
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
// file, "" if it is not known: that is planned, too, so that its failure is reported. The limit of connections and the
// hash table only grow: a larger one costs memory only if it is used, and a smaller limit drops connections.
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

// Options of all functions.
type Options struct {
	// Root is the folder that has proc and sys. Default: the real ones.
	Root string
	Log  *slog.Logger
}

// Unset returns the settings of c that the node does not have now: none before the module nf_conntrack is loaded, which
// the first rules do.
func Unset(o Options, c Conntrack) []Write {
	if _, err := os.Stat(o.path(fileMax)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return Plan(c, o.cpus(), o.value)
}

// Apply writes the values of c that the node does not have. A setting that can't be written keeps its value: there is
// a warning and an error for each.
func Apply(o Options, c Conntrack) []error { return o.write(Unset(o, c), slog.LevelWarn) }

// LeadBridges makes what bridges pass on meet netfilter, where the module br_netfilter is loaded, as kube-proxy expects
// of a node: a pod on a bridge reaches a Service with an endpoint on the same bridge by that alone.
func LeadBridges(o Options) []error {
	var plan []Write
	for _, file := range BridgeCalls {
		file = "/proc/sys/" + file
		if have, err := o.read(file); err == nil && have != "1" {
			plan = append(plan, Write{File: file, Value: "1", Have: have, Why: "Services for pods on one bridge"})
		}
	}
	return o.write(plan, slog.LevelWarn)
}

// OOM sets oom_score_adj of this process. A lower value than the present one needs CAP_SYS_RESOURCE; without it, the
// score that the kubelet has set for the pod is good enough for no warning.
func OOM(o Options, score int) {
	w := Write{File: fileOOMScore, Value: strconv.Itoa(score), Have: o.value(fileOOMScore), Why: "oomScoreAdj"}
	if w.Have != w.Value {
		o.write([]Write{w}, slog.LevelInfo)
	}
}

// TableUse returns the number of connections that the kernel tracks in this network namespace, and its limit; 0 is no
// limit. At the limit, the kernel drops the first packet of a connection ("nf_conntrack: table full, dropping packet").
func TableUse(o Options) (used, limit int, err error) {
	used, err = o.readInt(fileCount)
	limit, noLimit := o.readInt(fileMax)
	return used, limit, cmp.Or(err, noLimit)
}

// Sysctl reads a file below /proc/sys.
func Sysctl(file string) (string, error) { return Options{}.read("/proc/sys/" + file) }

// Setting returns a setting of connection tracking in this network namespace, by its name below net/netfilter; false if
// the kernel has none of this name.
func Setting(name string) (value uint32, ok bool) {
	n, err := Options{}.readInt(sysctls + name)
	return uint32(n), err == nil && name != "" && n >= 0
}

// cpus counts the node's CPUs. Go's runtime counts only those that this process may run on; in
// a pod with exclusive CPUs, these are few (kubernetes #99225).
func (o Options) cpus() int {
	if cpus, err := cpuset.Parse(o.value(fileOnlineCPUs)); err == nil && !cpus.IsEmpty() {
		return cpus.Size()
	}
	return runtime.NumCPU()
}

func (o Options) path(file string) string { return filepath.Join("/", o.Root, file) }

func (o Options) read(file string) (string, error) {
	b, err := os.ReadFile(o.path(file))
	return strings.TrimSpace(string(b)), err
}

func (o Options) value(file string) string {
	text, _ := o.read(file)
	return text
}

func (o Options) readInt(file string) (int, error) {
	text, err := o.read(file)
	n, invalid := strconv.Atoi(text)
	if err == nil && invalid != nil {
		err = fmt.Errorf("read %s: %w", file, invalid)
	}
	return n, err
}

// write writes settings, and logs and returns an error for each that could not be written. It makes no file: the kernel
// lacks such a setting.
func (o Options) write(plan []Write, failure slog.Level) (failed []error) {
	for _, w := range plan {
		f, err := os.OpenFile(o.path(w.File), os.O_WRONLY|os.O_TRUNC, 0)
		if err == nil {
			_, err = f.WriteString(w.Value)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			have := cmp.Or(w.Have, "unknown")
			err = fmt.Errorf("%s should be %s and is %s: %w", w.File, w.Value, have, err)
			o.Log.Log(context.Background(), failure, "could not set sysctl; keeping its current value", slog.Any("err", err))
			failed = append(failed, err)
			continue
		}
		o.Log.Info("changed node setting", slog.String("file", w.File), slog.String("value", w.Value),
			slog.String("before", w.Have), slog.String("reason", w.Why))
	}
	return failed
}
