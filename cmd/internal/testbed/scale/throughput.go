package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmapd/vmapd/cmd/internal/testbed/bench"
	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// Ports of the pod: a server that answers each connection, and iperf3's for TCP and UDP.
const answerPort, iperfPort = 8080, 5201

// path is how one pod reaches another: through the proxy of their node, or straight. From outside, the ports of the
// node's address for one endpoint would be used up in half a minute.
type path struct {
	name        string
	vmapd, kube string // programs, or ""
	world       *bench.World
	addr        netip.Addr
	bits        []float64 // a second, of one TCP connection; one value for each round
	datagrams   []float64 // a second, that arrived
	connections []float64 // new ones a second, that were answered
}

// throughput measures the paths through vmapd, through kube-proxy if there is one, and past both. All are there at the
// same time, each with machines of its own, and are measured in turns: machines differ from minute to minute.
func throughput(ctx context.Context, o *options, stdout io.Writer) (err error) {
	paths := []*path{{name: "straight to the pod"}, {name: "vmapd", vmapd: o.vmapd}}
	if o.kubeProxy != "" {
		paths = append(paths, &path{name: "kube-proxy, mode nftables", kube: o.kubeProxy})
	}
	for _, p := range paths {
		if p.world, err = bench.NewWorld(ctx, 2, answerPort); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.world.Close()) }()
		if err := p.build(ctx); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	const rounds = 5
	for range rounds {
		for _, p := range paths {
			if err := p.measure(ctx, o.throughput); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
	}
	fmt.Fprintf(stdout, "%s; medians of %d rounds of %v\n", bench.Machine(), rounds, o.throughput)
	t := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\tTCP Gbit/s\tUDP datagrams/s\tnew TCP connections/s\t")
	for _, p := range paths {
		fmt.Fprintf(t, "%s\t%.2f\t%.0f\t%.0f\t\n", p.name, median(p.bits)/1e9, median(p.datagrams), median(p.connections))
	}
	return t.Flush()
}

// build starts the servers and a proxy, and waits until the other pod is answered.
func (p *path) build(ctx context.Context) error {
	pod := p.world.Pods()[0]
	if err := pod.Command(ctx, "iperf3", "--server", "--port", strconv.Itoa(iperfPort)).Start(); err != nil {
		return err
	}
	if p.addr = pod.IP4; p.vmapd+p.kube != "" {
		p.addr = netip.MustParseAddr("172.30.0.10")
		both := []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}
		s := bench.Service("pod", answerPort, answerPort, both, p.addr)
		for _, of := range bench.Service("", iperfPort, iperfPort, both, p.addr).Spec.Ports {
			of.Name += "-iperf"
			s.Spec.Ports = append(s.Spec.Ports, of)
		}
		p.world.SetService(s, pod)
		flags := p.world.Flags(lab.NodeName, lab.PodRange4+","+lab.PodRange6)
		if err := p.world.StartEither(ctx, p.vmapd, p.kube, flags...); err != nil {
			return err
		}
	}
	return bench.Answered(ctx, p.ask)
}

// ask makes a new connection.
func (p *path) ask(ctx context.Context) (lab.Answer, error) {
	return p.world.Pods()[1].Ask(ctx, "tcp", netip.AddrPortFrom(p.addr, answerPort))
}

// measure measures one round of each kind, one after the other.
func (p *path) measure(ctx context.Context, each time.Duration) error {
	tcp, err := p.iperf(ctx, each)
	if err != nil {
		return err
	}
	udp, err := p.iperf(ctx, each, "--udp", "--bitrate", "0", "--length", "64")
	if err != nil {
		return err
	}
	p.bits = append(p.bits, tcp.Received.Bits)
	p.datagrams = append(p.datagrams, (udp.Sum.Packets-udp.Sum.Lost)/udp.Sum.Seconds)
	p.connections = append(p.connections, p.connect(ctx, each))
	return nil
}

// sums are what iperf3 reports at the end.
type sums struct {
	Received struct {
		Bits float64 `json:"bits_per_second"`
	} `json:"sum_received"`
	Sum struct {
		Packets, Seconds float64
		Lost             float64 `json:"lost_packets"`
	}
}

func (p *path) iperf(ctx context.Context, each time.Duration, flags ...string) (sums, error) {
	out, err := p.world.Pods()[1].Command(ctx, "iperf3", append([]string{
		"--client", p.addr.String(), "--port", strconv.Itoa(iperfPort), "--time", strconv.Itoa(int(each.Seconds())), "--json",
	}, flags...)...).Output()
	var report struct{ End sums }
	if err = cmp.Or(err, json.Unmarshal(out, &report)); err != nil {
		return sums{}, fmt.Errorf("iperf3: %w: %s", err, out)
	}
	return report.End, nil
}

// connect returns how many new connections a second are answered, if four clients connect again and again.
func (p *path) connect(ctx context.Context, each time.Duration) float64 {
	const clients = 4
	var answered atomic.Int64
	var wait sync.WaitGroup
	began := time.Now()
	for range clients {
		wait.Go(func() {
			for time.Since(began) < each && ctx.Err() == nil {
				if _, err := p.ask(ctx); err == nil {
					answered.Add(1)
				}
			}
		})
	}
	wait.Wait()
	return float64(answered.Load()) / time.Since(began).Seconds()
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
