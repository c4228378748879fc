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

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/procfs"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// proxy is vmapd or kube-proxy, running in the namespace.
type proxy struct {
	*lab.Daemon
	world *world
	ready time.Duration // since its start
	peak  int64         // of its memory then, in bytes
}

// start starts the proxy, and waits until it has programmed everything.
func (w *world) start(ctx context.Context, o *options) (*proxy, error) {
	began := time.Now()
	if err := w.StartEither(ctx, o.vmapd, o.kubeProxy, w.Flags(nodeName, podRange)...); err != nil {
		return nil, err
	}
	p := &proxy{Daemon: w.Proxy, world: w}
	const patience, often = 10 * time.Minute, 20 * time.Millisecond
	for !p.synced(ctx) {
		err := lab.Pause(ctx, often)
		if time.Since(began) > patience {
			err = fmt.Errorf("not ready after %v:\n%s", patience, &p.Log)
		}
		if err != nil {
			p.kill()
			return nil, err
		}
	}
	p.ready = time.Since(began)
	process, err := procfs.NewProc(p.Process.Pid)
	if err == nil {
		var status procfs.ProcStatus
		status, err = process.NewStatus()
		p.peak = int64(status.VmHWM)
	}
	if err != nil {
		p.kill()
	}
	return p, err
}

// synced reports whether the proxy has programmed IPv4. Until it has all objects, it programs nothing.
func (p *proxy) synced(ctx context.Context) bool {
	const lastSync = "kubeproxy_sync_proxy_rules_last_timestamp_seconds" // of both programs
	all, err := p.metrics(ctx)
	if err != nil {
		return false // it does not listen yet
	}
	for _, m := range all[lastSync].GetMetric() {
		family := "IPv4" // older versions do not say
		for _, l := range m.GetLabel() {
			if l.GetName() == "ip_family" {
				family = l.GetValue()
			}
		}
		if family == "IPv4" && m.GetGauge().GetValue() > 0 {
			return true
		}
	}
	return false
}

// kill ends the proxy as if it had crashed.
func (p *proxy) kill() {
	_ = p.End(os.Kill) // the signal is its result
}

// operations returns how many operations vmapd has sent to the kernel so far.
func (p *proxy) operations(ctx context.Context) (sum int, err error) {
	all, err := p.metrics(ctx)
	for _, m := range all["vmapd_batch_operations_total"].GetMetric() {
		sum += int(m.GetCounter().GetValue())
	}
	return sum, err
}

func (p *proxy) metrics(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	client := http.Client{Transport: &http.Transport{
		DialContext: p.world.ns.DialContext, DisableKeepAlives: true,
		DisableCompression: true, // which would take processor time of both
	}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:10249/metrics", nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(answer.Body)
	if err := errors.Join(err, answer.Body.Close()); err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(bytes.NewReader(body))
}
