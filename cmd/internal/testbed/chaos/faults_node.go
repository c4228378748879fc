package main

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

func nodeFaults() []fault {
	repeat := func(commands string) func(context.Context, *world) error {
		return func(ctx context.Context, w *world) error {
			return w.repeat(func() error { return w.shell(ctx, commands) })
		}
	}
	return []fault{{
		name: "conntrack -F", quick: true,
		does: "connection tracking forgets all connections",
		loses: "the next packet of a forgotten connection is the first of a new one for the kernel, which chooses another " +
			"endpoint or another port to masquerade with; the pod resets a connection that it does not know",
		do: func(_ context.Context, w *world) error { return w.Node.FlushConntrack() },
	}, {
		name: "links come and go",
		does: "the node gets a pair of interfaces, an address on one of them, and loses them, five times a second",
		do: repeat("ip link add chaos0 type veth peer name chaos1; ip addr add 192.168.77.1/24 dev chaos0; " +
			"ip link set chaos0 up; ip link del chaos0"),
	}, {
		name: "address changes",
		does: "the node gets an address on its uplink and loses it, five times a second",
		do:   repeat("ip addr add 192.168.0.77/32 dev eth0; ip addr del 192.168.0.77/32 dev eth0"),
	}, {
		name: "pod's link down",
		does: "the interface of a pod that is no endpoint goes down and up, five times a second",
		do:   repeat("ip link set veth5 down; ip link set veth5 up"),
	}, nodeDies()}
}

// nodeDies ends all pods of another Node, for as long as Kubernetes may take to report it.
func nodeDies() fault {
	pod := podName(probeAtFirst)
	const silence = `table inet dead {
		chain in { type filter hook prerouting priority -400; policy drop; }
		chain out { type filter hook output priority -400; policy drop; }
	}`
	return fault{
		name: "node dies", backends: []string{"nftables", kubeProxy},
		does: "another Node dies for a while: its pods get and send no packet, and the API server does not report it; they " +
			"are one of three endpoints of a Service over TCP, and one of two over UDP; clients are pods and outside, have " +
			"IPv4 and IPv6, wait four seconds, and keep no connections",
		loses: "UDP queries to endpoints on the Node fail until Kubernetes reports that it is dead, and with kube-proxy " +
			"connections, too; with nftables, one in 3^5 meets the dead Node at each of five tries in four seconds",
		clients: &clients{within: 4 * time.Second, paths: []path{
			{"tcp4", netip.AddrPortFrom(netip.MustParseAddr(lab.NodeIP4), webNodePort), ""},
			{"tcp6", netip.AddrPortFrom(netip.MustParseAddr(lab.NodeIP6), webNodePort), ""},
			{"tcp4", webVIP, pod},
			{"tcp6", webVIP6, pod},
			{"udp4", dnsVIP, pod},
			{"udp6", dnsVIP6, pod},
		}},
		do: func(ctx context.Context, w *world) error {
			err := w.inOtherPods(ctx, silence)
			w.died = time.Now()
			time.Sleep(w.o.lasts)
			return errors.Join(err, w.inOtherPods(ctx, "delete table inet dead"))
		},
	}
}

// inOtherPods gives nft commands in all pods of the other Node.
func (w *world) inOtherPods(ctx context.Context, commands string) error {
	for _, n := range otherPods() {
		pod, err := w.Pod(podName(n))
		if err == nil {
			err = pod.Command(ctx, "nft", commands).Run()
		}
		if err != nil {
			return err
		}
	}
	return nil
}
