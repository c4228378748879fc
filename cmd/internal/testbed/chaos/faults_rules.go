package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Other programs write to vmapd's rules. Since Linux 6.9, the kernel refuses that for its nftables tables, which have
// an owner; iptables has none.
func ruleFaults() []fault {
	const unowned = "rules of iptables have no owner, and no packet is translated until vmapd has restored them; it " +
		"notices the change within a second"
	nftables, iptables := []string{"nftables"}, []string{"iptables"}
	return []fault{{
		name: "nft flush ruleset", backends: nftables, quick: true,
		does: "another program flushes all tables, five times a second",
		do: func(ctx context.Context, w *world) error {
			return w.repeat(func() error { return w.shell(ctx, "nft flush ruleset") })
		},
	}, {
		name: "nft edits", backends: nftables,
		does: "five times a second, another program deletes vmapd's tables, flushes its maps of Services, and inserts a " +
			"rule that drops everything; the kernel refuses it (flag owner)",
		do: func(ctx context.Context, w *world) error {
			return w.repeat(func() error {
				return errors.Join(w.refused(ctx, "delete table ip vmapd; delete table ip6 vmapd"),
					w.refused(ctx, "flush map ip vmapd service-ips; flush map ip vmapd service-nodeports"),
					w.refused(ctx, "insert rule ip vmapd services drop"))
			})
		},
	}, {
		name: "table deleted while vmapd is away", backends: nftables, quick: true,
		does:  "vmapd is killed, another program deletes its tables, and vmapd is started again",
		loses: "without a table, and without a program that could repair it, no packet is translated",
		do: func(ctx context.Context, w *world) error {
			_ = w.Proxy.End(unix.SIGKILL)
			if err := w.shell(ctx, "nft 'delete table ip vmapd; delete table ip6 vmapd'"); err != nil {
				return err
			}
			return w.start(ctx)
		},
	}, {
		name: "iptables -F", backends: iptables,
		does:  "another program flushes all chains of the tables nat and filter, of both families",
		loses: unowned,
		do: func(ctx context.Context, w *world) error {
			return w.shell(ctx, "for i in iptables ip6tables; do $i -t nat -F && $i -t filter -F || exit 1; done")
		},
	}, {
		name: "conntrack -F", quick: true,
		does: "connection tracking forgets all connections",
		loses: "the next packet of a forgotten connection is the first of a new one for the kernel, which chooses another " +
			"endpoint or another port to masquerade with; the pod resets a connection that it does not know",
		do: func(_ context.Context, w *world) error { return w.Node.FlushConntrack() },
	}, {
		name: "links come and go",
		does: "five times a second, the node gets and loses a pair of interfaces with an address, and an address on its " +
			"uplink; the interface of a pod that is no endpoint goes down and up",
		do: func(ctx context.Context, w *world) error {
			return w.repeat(func() error {
				return w.shell(ctx, "ip link add chaos0 type veth peer name chaos1; ip addr add 192.168.77.1/24 dev chaos0; "+
					"ip link set chaos0 up; ip link del chaos0; ip link set veth5 down; ip link set veth5 up; "+
					"ip addr add 192.168.0.77/32 dev eth0; ip addr del 192.168.0.77/32 dev eth0")
			})
		},
	}}
}

// repeat does something five times a second while a fault lasts.
func (w *world) repeat(do func() error) error {
	tick := time.NewTicker(time.Second / 5)
	defer tick.Stop()
	for end := time.Now().Add(w.o.lasts); time.Now().Before(end); <-tick.C {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// refused gives nft a command that the kernel must refuse.
func (w *world) refused(ctx context.Context, command string) error {
	out, err := w.Node.Command(ctx, "nft", command).CombinedOutput()
	switch {
	case err == nil:
		return fmt.Errorf("nft %s was not refused", command)
	case !strings.Contains(string(out), "Operation not permitted"):
		return fmt.Errorf("nft %s: %w\n%s", command, err, out)
	}
	return nil
}
