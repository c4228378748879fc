package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/vmapd/vmapd/cmd/internal/testbed/scale/cluster"
)

// lastSync is kube-proxy's metric of the end of its last sync. Until it has all objects, it syncs nothing.
const lastSync = "kubeproxy_sync_proxy_rules_last_timestamp_seconds"

// measureKubeProxy starts kube-proxy in the place of the daemon, and returns the time until everything
// is programmed, and its memory, without that of nft, which it runs.
func measureKubeProxy(ctx context.Context, o *options, s cluster.Shape, log io.Writer) (r record, err error) {
	load := machineLoad()
	w, err := newWorld(ctx, s)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	d := &daemon{world: w, cmd: w.ns.Command(ctx, o.kubeProxy,
		"--proxy-mode", o.mode, "--hostname-override", cluster.NodeName, "--cluster-cidr", strings.Join(cluster.PodCIDRs, ","),
		"--kubeconfig", w.kubeconfig, "--conntrack-max-per-core", "0")}
	var said bytes.Buffer
	d.cmd.Stderr = &said
	d.started = time.Now()
	if err := d.cmd.Start(); err != nil {
		return r, fmt.Errorf("start kube-proxy: %w", err)
	}
	defer func() { err = errors.Join(err, d.cmd.Process.Kill()); _ = d.cmd.Wait() }()
	const patience, often = 5 * time.Minute, 20 * time.Millisecond
	for !d.synced(ctx) {
		if time.Since(d.started) > patience {
			return r, fmt.Errorf("kube-proxy is not ready after %v: %s", patience, &said)
		}
		if err := pause(ctx, often); err != nil {
			return r, err
		}
	}
	ready := time.Since(d.started)
	fmt.Fprintf(log, "%v: kube-proxy is ready after %v\n", s, ready.Round(time.Millisecond))
	if err := pause(ctx, o.settle); err != nil {
		return r, err
	}
	if err := w.connections(ctx, o, fmt.Sprintf("%v: kube-proxy %s", s, o.mode), log); err != nil {
		return r, err
	}
	u, err := d.usage()
	size := w.cluster.Size()
	return record{
		Proxy: "kube-proxy " + o.mode, Cluster: s.String(), Services: size.Services, Endpoints: size.Endpoints, Load: load + " to " + machineLoad(),
		Ready: rounded(ready), Peak: u.peak, Settled: u.rss,
	}, err
}

// synced reports whether kube-proxy has programmed IPv4, the family of the plain shapes.
func (d *daemon) synced(ctx context.Context) bool {
	body, err := d.get(ctx, "/metrics")
	if err != nil {
		return false // it does not listen yet
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return false
	}
	for _, m := range families[lastSync].GetMetric() {
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
