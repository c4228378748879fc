package main

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmapd/vmapd/cmd/internal/testbed/bench"
	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

const pollPause = 10 * time.Millisecond

// The Services are web, with the first two pods as endpoints, and probe, with one endpoint, which changes.
const (
	podPort        = 8080
	webNodePort    = 30080
	probeAtFirst   = 2
	probeElsewhere = 3
)

var (
	webVIP   = netip.MustParseAddrPort("172.30.0.10:80")       //nolint:gochecknoglobals // a constant
	webVIP6  = netip.MustParseAddrPort("[fd00:172:30::10]:80") //nolint:gochecknoglobals // a constant
	probeVIP = netip.MustParseAddrPort("172.30.0.11:80")       //nolint:gochecknoglobals // a constant
)

// world is a node with pods, an API server and vmapd.
type world struct {
	*bench.World
	o       *options
	backend string
}

func newWorld(ctx context.Context, o *options, backend string) (w *world, err error) {
	w = &world{o: o, backend: backend}
	const pods = 5
	if w.World, err = bench.NewWorld(ctx, pods, podPort); err != nil {
		return nil, err
	}
	web := service("web", webVIP.Addr(), webVIP6.Addr())
	web.Spec.Type = corev1.ServiceTypeNodePort
	for i := range web.Spec.Ports {
		web.Spec.Ports[i].NodePort = webNodePort
	}
	w.SetService(web, w.Pods()[0], w.Pods()[1])
	w.setProbe(probeAtFirst)
	return w, nil
}

func service(name string, ips ...netip.Addr) *corev1.Service {
	both := []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}
	return bench.Service(name, int32(webVIP.Port()), podPort, both, ips...)
}

// setProbe makes a pod the endpoint of the Service probe.
func (w *world) setProbe(pod int) { w.SetService(service("probe", probeVIP.Addr()), w.Pods()[pod]) }

func (w *world) flags() []string {
	return append(w.Vmapd(w.backend), w.Flags(lab.NodeName, lab.PodRange4+","+lab.PodRange6)...)
}

// start starts vmapd, and waits until it has programmed the Services.
func (w *world) start(ctx context.Context) error {
	if err := w.Start(ctx, w.o.vmapd, w.flags()...); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, w.o.patience)
	defer cancel()
	for _, p := range w.paths() {
		if err := w.answers(ctx, p.To, ""); err != nil {
			return fmt.Errorf("start: %w; %s", err, w.Log())
		}
	}
	return w.answers(ctx, probeVIP, w.Pods()[probeAtFirst].Name())
}

// answers waits until an address answers, and it is the pod, if one is named.
func (w *world) answers(ctx context.Context, to netip.AddrPort, pod string) error {
	for {
		asking, cancel := context.WithTimeout(ctx, w.o.within)
		a, err := w.Client.Ask(asking, "tcp", to)
		cancel()
		switch {
		case err == nil && (pod == "" || a.Pod == pod):
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%v answered %q, want %q: %w", to, a.Pod, pod, err)
		}
		time.Sleep(pollPause)
	}
}

// rules lists the node's rules without counters.
func (w *world) rules(ctx context.Context) (string, error) {
	list := "nft --stateless list ruleset"
	if w.backend == "iptables" {
		list = "iptables-save; ip6tables-save"
	}
	out, err := w.Node.Command(ctx, "sh", "-ec", list).Output()
	// Comments have times and process IDs.
	var kept strings.Builder
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		if strings.HasPrefix(line, ":") {
			line = strings.Join(strings.Fields(line)[:2], " ") + "\n"
		}
		kept.WriteString(line)
	}
	return kept.String(), err
}

// shell runs commands in the node, until one fails.
func (w *world) shell(ctx context.Context, commands string) error {
	out, err := w.Node.Command(ctx, "sh", "-ec", commands).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", commands, err, out)
	}
	return nil
}
