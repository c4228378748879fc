package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// usage is the resources that a process has used so far.
type usage struct {
	user, system time.Duration
	rss, peak    int64 // memory, in bytes; the peak since it was started, or since resetPeak
}

// tick is the unit of times in /proc/PID/stat on every kernel.
const tick = time.Second / 100

func (d *daemon) usage() (usage, error) {
	var u usage
	stat, err := os.ReadFile(d.proc("stat"))
	if err != nil {
		return u, fmt.Errorf("read the daemon's times: %w", err)
	}
	// The name, in parentheses, may hold anything. Behind it: state, then numbers, of which
	// utime is field 14 and stime 15 (proc_pid_stat(5)).
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const utime, stime = 14 - 3, 15 - 3
	for i, to := range map[int]*time.Duration{utime: &u.user, stime: &u.system} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return u, fmt.Errorf("read the daemon's times: %w", err)
		}
		*to = time.Duration(n) * tick
	}
	status, err := os.ReadFile(d.proc("status"))
	if err != nil {
		return u, fmt.Errorf("read the daemon's memory: %w", err)
	}
	for key, to := range map[string]*int64{"VmRSS:": &u.rss, "VmHWM:": &u.peak} {
		_, value, _ := strings.Cut(string(status), key)
		kib, _, _ := strings.Cut(strings.TrimSpace(value), " ")
		n, err := strconv.ParseInt(kib, 10, 64)
		if err != nil {
			return u, fmt.Errorf("read the daemon's memory: %w", err)
		}
		*to = n << 10
	}
	return u, nil
}

// resetPeak begins a new peak of the memory.
func (d *daemon) resetPeak() error {
	const peak = "5" // see proc_pid_clear_refs(5)
	if err := os.WriteFile(d.proc("clear_refs"), []byte(peak), 0); err != nil {
		return fmt.Errorf("reset the daemon's peak of memory: %w", err)
	}
	return nil
}

func (d *daemon) proc(file string) string { return fmt.Sprintf("/proc/%d/%s", d.cmd.Process.Pid, file) }

// traffic is the volume that the daemon has sent to the kernel so far: operations, bytes and batches.
type traffic struct{ operations, bytes, batches int }

func (t traffic) minus(o traffic) traffic {
	return traffic{t.operations - o.operations, t.bytes - o.bytes, t.batches - o.batches}
}

func (d *daemon) traffic(ctx context.Context) (traffic, error) {
	body, err := d.get(ctx, "/metrics")
	if err != nil {
		return traffic{}, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return traffic{}, fmt.Errorf("read the daemon's metrics: %w", err)
	}
	sum := func(name string) (total int) {
		for _, m := range families[name].GetMetric() {
			total += int(m.GetCounter().GetValue())
		}
		return total
	}
	return traffic{
		sum("vmapd_batch_operations_total"), sum("vmapd_batch_bytes_total"), sum("vmapd_batches_total"),
	}, nil
}

// get asks the daemon's metrics port.
func (d *daemon) get(ctx context.Context, path string) ([]byte, error) {
	client := http.Client{Transport: &http.Transport{DialContext: d.world.dial, DisableKeepAlives: true}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+metricsAddress+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("ask the daemon: %w", err)
	}
	body, err := io.ReadAll(answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		return nil, fmt.Errorf("ask the daemon for %s: %w", path, err)
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask the daemon for %s: %s", path, answer.Status)
	}
	return body, nil
}
