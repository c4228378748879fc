package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/procfs"
)

// usage is the resources that a process has used so far.
type usage struct {
	user, system time.Duration
	rss, peak    int64 // memory, in bytes; the peak since it was started, or since resetPeak
}

// tick is the unit of times in /proc/PID/stat on every kernel.
const tick = time.Second / 100

func (d *daemon) usage() (usage, error) {
	p, err := procfs.NewProc(d.cmd.Process.Pid)
	if err != nil {
		return usage{}, fmt.Errorf("find the daemon: %w", err)
	}
	stat, err := p.Stat()
	if err != nil {
		return usage{}, fmt.Errorf("read the daemon's times: %w", err)
	}
	status, err := p.NewStatus()
	if err != nil {
		return usage{}, fmt.Errorf("read the daemon's memory: %w", err)
	}
	return usage{
		user: time.Duration(stat.UTime) * tick, system: time.Duration(stat.STime) * tick,
		rss: int64(status.VmRSS), peak: int64(status.VmHWM),
	}, nil
}

// resetPeak begins a new peak of the memory.
func (d *daemon) resetPeak() error {
	const peak = "5" // see proc_pid_clear_refs(5)
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", d.cmd.Process.Pid), []byte(peak), 0); err != nil {
		return fmt.Errorf("reset the daemon's peak of memory: %w", err)
	}
	return nil
}

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
