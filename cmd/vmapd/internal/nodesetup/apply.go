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

	"golang.org/x/sys/unix"
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

// ErrNotInitial means that the setting belongs to the machine, not to a network namespace.
var ErrNotInitial = errors.New("only the initial network namespace may change this, and this process is in another: " +
	"set it on the host itself")

// Apply writes the values of c that the node does not have. A setting that can't be written keeps its value: there is
// an error for each. Nothing can be set before the module nf_conntrack is loaded, which the first rules
// do.
func Apply(o Options, c Conntrack) []error {
	plan := Plan(c, o.facts())
	if _, err := os.Stat(o.path(fileMax)); errors.Is(err, fs.ErrNotExist) {
		plan = plan[:min(1, len(plan))] // then all files are missing; one failure is enough
	}
	return o.write(plan)
}

// InitOnly is Apply for a privileged container, after which the daemon needs only CAP_NET_ADMIN. It has no other task,
// so it returns the errors. A setting that no container of this node may change, because the node is a container
// itself, is only a warning ([ErrNotInitial]).
//
// Where the module br_netfilter is loaded, InitOnly also makes what bridges pass on meet netfilter, as kube-proxy
// expects of a node: a pod on a bridge reaches a Service with an endpoint on the same bridge by that alone.
func InitOnly(o Options, c Conntrack) error {
	var errs []error
	for _, err := range append(Apply(o, c), o.write(o.bridges())...) {
		if errors.Is(err, ErrNotInitial) {
			o.Log.Warn("could not set sysctl; keeping its current value", slog.Any("err", err))
			continue
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// OOM sets oom_score_adj of this process, from -1000 (the kernel never kills it) to 1000. A
// lower value than the present one needs CAP_SYS_RESOURCE. Without it, the score stays as the
// kubelet has set it for the pod, which is good enough: this is logged, but not as a warning.
func OOM(o Options, score int) {
	w := Write{File: fileOOMScore, Value: strconv.Itoa(score), Why: "oomScoreAdj"}
	w.Have, _ = o.read(w.File)
	if w.Have == w.Value {
		return
	}
	if err := o.writeFile(w); err != nil {
		o.Log.Info("could not set the OOM score; keeping its current value",
			slog.String("file", w.File), slog.String("want", w.Value), slog.String("have", w.Have), slog.Any("err", err))
	}
}

// bridges returns the writes that make packets on bridges meet netfilter, as far as the kernel has such settings.
func (o Options) bridges() (plan []Write) {
	for _, file := range BridgeCalls {
		file = "/proc/sys/" + file
		if have, err := o.read(file); err == nil && have != "1" {
			plan = append(plan, Write{File: file, Value: "1", Have: have, Why: "Services for pods on one bridge"})
		}
	}
	return plan
}

// write writes settings, and returns an error for each that could not be written.
func (o Options) write(plan []Write) (failed []error) {
	for _, w := range plan {
		err := o.writeFile(w)
		if o.notInitial(w.File, err) {
			err = ErrNotInitial
		}
		if err != nil {
			have := cmp.Or(w.Have, "unknown")
			failed = append(failed, fmt.Errorf("%s should be %s and is %s: %w", w.File, w.Value, have, err))
		}
	}
	return failed
}

func (o Options) facts() Facts {
	f := Facts{CPUs: o.cpus(), Values: map[string]string{}}
	for _, file := range []string{
		fileMax, fileBuckets, fileTCPEstablishedTimeout, fileTCPCloseWaitTimeout, fileTCPBeLiberal, fileUDPTimeout,
		fileUDPStreamTimeout, fileHashSize,
	} {
		if v, err := o.read(file); err == nil {
			f.Values[file] = v
		}
	}
	return f
}

// cpus counts the node's CPUs. Go's runtime counts only those that this process may run on; in
// a pod with exclusive CPUs, these are few (kubernetes #99225).
func (o Options) cpus() int {
	list, _ := o.read(fileOnlineCPUs)
	if cpus, err := cpuset.Parse(list); err == nil && !cpus.IsEmpty() {
		return cpus.Size()
	}
	return runtime.NumCPU()
}

func (o Options) path(file string) string { return filepath.Join("/", o.Root, file) }

func (o Options) read(file string) (string, error) {
	b, err := os.ReadFile(o.path(file))
	return strings.TrimSpace(string(b)), err
}

// writeFile does not create the file: the kernel lacks such a setting. Without a known value it writes nothing, because
// the new one could be worse.
func (o Options) writeFile(w Write) error {
	if w.Have == "" {
		if _, err := o.read(w.File); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(o.path(w.File), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(w.Value)
	if err = errors.Join(err, f.Close()); err == nil {
		o.Log.Info("changed node setting", slog.String("file", w.File), slog.String("value", w.Value),
			slog.String("before", w.Have), slog.String("reason", w.Why))
	}
	return err
}

// notInitial reports whether an error means that only the initial network namespace may write a file: the module says
// so about its parameter, and sysctls of other namespaces have a mode by which nobody may.
func (o Options) notInitial(file string, err error) bool {
	info, statErr := os.Stat(o.path(file))
	return errors.Is(err, unix.EOPNOTSUPP) ||
		errors.Is(err, fs.ErrPermission) && statErr == nil && info.Mode().Perm()&0o222 == 0
}
