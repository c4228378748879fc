package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// fault is what happens to endpoints: nftables' rules, from the first connection of a run on or for a while.
type fault struct {
	name  string
	rules string // of a table of an endpoint
	pods  int    // so many endpoints, the first ones, are at fault; 0: all
	until bool   // it comes a quarter into the load, and goes after half of it
}

const both = `table inet fault {
	chain in { type filter hook prerouting priority -400; %[1]s; }
	chain out { type filter hook output priority -400; %[1]s; }
}`

func silent() fault {
	return fault{name: "one is silent", rules: fmt.Sprintf(both, "policy drop"), pods: 1}
}

func refuses() fault {
	const rules = "table inet fault { chain in { type filter hook input priority 0; " +
		"tcp dport 8080 reject with tcp reset; }; }"
	return fault{name: "one refuses", rules: rules, pods: 1}
}

// lossy loses one of five packets to each endpoint, and one of five of its own.
func lossy() fault {
	return fault{name: "20 % of packets are lost", rules: fmt.Sprintf(both, "numgen random mod 5 0 drop")}
}

func nodeDies() fault {
	return fault{name: "a Node dies and comes back", rules: silent().rules, pods: 2, until: true}
}

// begin begins the fault.
func (w *world) begin(ctx context.Context) error {
	f := w.r.fault
	nft := func(commands string) (err error) {
		for _, p := range w.Pods()[:w.r.faulty()] {
			out, failed := p.Command(ctx, "nft", commands).CombinedOutput()
			if failed != nil {
				err = errors.Join(err, fmt.Errorf("nft %s: %w\n%s", commands, failed, out))
			}
		}
		return err
	}
	if !f.until {
		return nft(f.rules)
	}
	later := func(after time.Duration, commands string) {
		time.AfterFunc(after, func() {
			if err := nft(commands); err != nil && ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, err)
			}
		})
	}
	later(lasts/4, f.rules)
	later(lasts*3/4, "delete table inet fault")
	return nil
}
