package nodesetup

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

const (
	fileOnlineCPUs = "/sys/devices/system/cpu/online"
	fileOOMScore   = "/proc/self/oom_score_adj"
)

// Options says where a node is set up, and who hears of it.
type Options struct {
	// Root is the folder that has proc and sys. Default: the real ones.
	Root string
	Log  *slog.Logger
	// Failed is told what could not be set, one at a time, after it was logged; to make an
	// event of it. nil: nobody is.
	Failed func(WriteError)
}

// Apply sets connection tracking as c says. What is right already is not written. What can't
// be set is logged as a warning, told to o.Failed, and left; nothing of it keeps the proxy
// from working.
//
// If the module nf_conntrack is not loaded, nothing can be set: it is once rules need it, so
// call Apply again then. Call it again as well when the configuration changed; what it does not
// mention any more stays as it was set.
func Apply(ctx context.Context, o Options, c Conntrack) {
	for _, f := range o.apply(ctx, c) {
		o.Log.LogAttrs(ctx, slog.LevelWarn, "could not set the node up for connection tracking; going on without",
			slog.String("file", f.File), slog.String("want", f.Value), slog.String("have", f.Have), slog.Any("err", f.Err))
		if o.Failed != nil {
			o.Failed(f)
		}
	}
}

// InitOnly does the part that needs privilege: writing /proc/sys and /sys, which takes a
// container where they are writable. After it, Apply with the same configuration
// finds everything right, so that the daemon itself gets by with CAP_NET_ADMIN.
//
// To set the node up is all that InitOnly is asked for, so what can't be set is an error
// here, of type [WriteError] for each, joined; all the rest is set. o.Failed is not told.
//
// The OOM score is none of this: it belongs to a process, and this one ends.
func InitOnly(ctx context.Context, o Options, c Conntrack) error {
	var errs []error
	for _, f := range o.apply(ctx, c) {
		errs = append(errs, f)
	}
	return errors.Join(errs...)
}

// OOM sets how likely the kernel is to kill this process when memory runs out: from -1000,
// never, to 1000. To go lower than where one is takes CAP_SYS_RESOURCE. Without it the
// score stays as whoever started the process has set it, which is the kubelet's choice
// for the pod and good enough: this is logged, but no warning.
func OOM(ctx context.Context, o Options, score int) {
	w := Write{File: fileOOMScore, Value: strconv.Itoa(score), Why: "oomScoreAdj"}
	w.Have, _ = o.read(w.File)
	if w.Have == w.Value {
		return
	}
	if err := o.write(w); err != nil {
		o.Log.LogAttrs(ctx, slog.LevelInfo, "the OOM score stays as it is",
			slog.String("file", w.File), slog.String("want", w.Value), slog.String("have", w.Have), slog.Any("err", err))
		return
	}
	o.logSet(ctx, w)
}

// apply returns what could not be set.
func (o Options) apply(ctx context.Context, c Conntrack) []WriteError {
	plan := Plan(c, o.facts())
	if len(plan) == 0 {
		return nil
	}
	if _, err := os.Stat(o.path(fileMax)); errors.Is(err, fs.ErrNotExist) {
		// All files are missing then; once is enough to say so.
		return []WriteError{{Write: plan[0], Err: ErrNoConntrack}}
	}
	var failed []WriteError
	for _, w := range plan {
		if err := o.write(w); err != nil {
			failed = append(failed, WriteError{Write: w, Err: o.explain(w.File, err)})
			continue
		}
		o.logSet(ctx, w)
	}
	return failed
}

func (o Options) logSet(ctx context.Context, w Write) {
	o.Log.LogAttrs(ctx, slog.LevelInfo, "set up the node", slog.String("file", w.File), slog.String("value", w.Value),
		slog.String("before", w.Have), slog.String("because", w.Why))
}

func (o Options) facts() Facts {
	f := Facts{CPUs: o.cpus(), Values: map[string]string{}}
	for _, file := range []string{
		fileMax, fileBuckets, fileTCPEstablishedTimeout, fileTCPCloseWaitTimeout, fileTCPBeLiberal, fileUDPTimeout, fileUDPStreamTimeout,
	} {
		if v, err := o.read(file); err == nil {
			f.Values[file] = v
		}
	}
	return f
}

// cpus counts the node's CPUs. What Go's runtime counts are those that this process may run
// on, which in a pod with exclusive CPUs are few (kubernetes #99225).
func (o Options) cpus() int {
	list, err := o.read(fileOnlineCPUs)
	if err == nil {
		if n, ok := countCPUs(list); ok {
			return n
		}
	}
	return runtime.NumCPU()
}

// countCPUs counts a list like "0-3,8", as in cpuset(7).
func countCPUs(list string) (int, bool) {
	count := 0
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.ParseUint(from, 10, 16)
		last, err2 := strconv.ParseUint(to, 10, 16)
		if err1 != nil || err2 != nil || last < first {
			return 0, false
		}
		count += int(last-first) + 1
	}
	return count, true
}

func (o Options) path(file string) string { return filepath.Join("/", o.Root, file) }

func (o Options) read(file string) (string, error) {
	b, err := os.ReadFile(o.path(file))
	return strings.TrimSpace(string(b)), err
}

// write does not create the file: what the kernel doesn't have can't be set.
func (o Options) write(w Write) error {
	f, err := os.OpenFile(o.path(w.File), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(w.Value)
	return errors.Join(err, f.Close())
}
