package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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
		name: "table owned by another", backends: nftables,
		does: "vmapd is killed, and started again while another program is the owner of its table for IPv4",
		do:   anotherOwner,
	}, {
		name: "iptables -F", backends: iptables,
		does:  "another program flushes all chains of the tables nat and filter, of both families",
		loses: unowned,
		do: func(ctx context.Context, w *world) error {
			return w.shell(ctx, "for i in iptables ip6tables; do $i -t nat -F && $i -t filter -F || exit 1; done")
		},
	}, {
		name: "iptables -D", backends: iptables,
		does:  "another program deletes vmapd's jump out of the chain PREROUTING",
		loses: unowned,
		do:    func(ctx context.Context, w *world) error { return w.shell(ctx, "iptables -t nat -D PREROUTING 1") },
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

// anotherOwner lets an interactive nft own the table: the owner is the socket, which nft keeps open only there.
func anotherOwner(ctx context.Context, w *world) (err error) {
	_ = w.Proxy.End(unix.SIGKILL)
	other := w.Node.Command(ctx, "nft", "-i")
	in, err := other.StdinPipe()
	if err != nil {
		return err
	}
	if err := other.Start(); err != nil {
		return err
	}
	_, err = io.WriteString(in, "add table ip vmapd { flags owner, persist; }\n")
	if err == nil {
		err = w.launch(ctx)
		time.Sleep(w.o.lasts)
	}
	err = errors.Join(err, w.refused(ctx, "flush map ip vmapd service-ips"), in.Close())
	return errors.Join(err, other.Wait())
}
