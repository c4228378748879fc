package main

import "context"

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
	}}
}
