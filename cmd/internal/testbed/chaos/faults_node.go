package main

import (
	"context"
	"fmt"
)

func nodeFaults() []fault {
	return []fault{{
		name: "conntrack -F", quick: true,
		does:  "connection tracking forgets all connections",
		loses: "the kernel takes the next packet of a connection that it does not know for the first of a new one, and chooses an endpoint and a port to masquerade with; the pod resets what it does not know",
		do:    func(_ context.Context, w *world) error { return w.Node.FlushConntrack() },
	}, {
		name: "links come and go",
		does: "the node gets a pair of interfaces, an address on one of them, and loses them, five times a second",
		do: func(ctx context.Context, w *world) error {
			return w.repeat(func() error {
				for _, command := range []string{
					"link add chaos0 type veth peer name chaos1", "addr add 192.168.77.1/24 dev chaos0", "link set chaos0 up", "link del chaos0",
				} {
					if err := w.run(ctx, "sh", "-c", "ip "+command); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}, {
		name: "address changes",
		does: "the node gets an address on its uplink and loses it, five times a second",
		do: func(ctx context.Context, w *world) error {
			return w.repeat(func() error {
				for _, verb := range []string{"add", "del"} {
					if err := w.run(ctx, "sh", "-c", fmt.Sprintf("ip addr %s 192.168.0.77/32 dev eth0", verb)); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}, {
		name: "pod's link down",
		does: "the interface of a pod that is no endpoint goes down and up, five times a second",
		do: func(ctx context.Context, w *world) error {
			return w.repeat(func() error {
				for _, state := range []string{"down", "up"} {
					if err := w.run(ctx, "ip", "link", "set", "veth5", state); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}}
}
