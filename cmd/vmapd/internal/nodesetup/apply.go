package nodesetup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
)

const (
	fileOnlineCPUs = "/sys/devices/system/cpu/online"
	fileOOMScore   = "/proc/self/oom_score_adj"
)

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
// an error for each.
func Apply(o Options, c Conntrack) []error { return o.write(Unset(o, c)) }

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
	return o.write(plan)
}

// OOM sets oom_score_adj of this process, from -1000 (the kernel never kills it) to 1000. A
// lower value than the present one needs CAP_SYS_RESOURCE. Without it, the score stays as the
// kubelet has set it for the pod, which is good enough: this is logged, but not as a warning.
func OOM(o Options, score int) {
	w := Write{File: fileOOMScore, Value: strconv.Itoa(score), Have: o.value(fileOOMScore), Why: "oomScoreAdj"}
	if w.Have == w.Value {
		return
	}
	for _, err := range o.write([]Write{w}) {
		o.Log.Info("could not set the OOM score; keeping its current value", slog.Any("err", err))
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
	s, err := o.read(file)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", file, err)
	}
	return n, nil
}

// write writes settings, and returns an error for each that could not be written. It makes no file: the kernel lacks
// such a setting.
func (o Options) write(plan []Write) (failed []error) {
	for _, w := range plan {
		f, err := os.OpenFile(o.path(w.File), os.O_WRONLY|os.O_TRUNC, 0)
		if err == nil {
			_, err = f.WriteString(w.Value)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			have := cmp.Or(w.Have, "unknown")
			failed = append(failed, fmt.Errorf("%s should be %s and is %s: %w", w.File, w.Value, have, err))
			continue
		}
		o.Log.Info("changed node setting", slog.String("file", w.File), slog.String("value", w.Value),
			slog.String("before", w.Have), slog.String("reason", w.Why))
	}
	return failed
}
