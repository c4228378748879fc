package main

import (
	"context"
	"fmt"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// generations polls the number of the ruleset's generation, which each transaction increases.
// Notifications would make transactions slower (see observe); a poll does not wait for a running
// transaction.
type generations struct {
	cancel  context.CancelFunc
	done    chan error
	last    time.Time
	longest time.Duration
}

func (w *world) followGenerations(ctx context.Context) (*generations, error) {
	socket, err := w.netfilter()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	g := &generations{cancel: cancel, done: make(chan error, 1)}
	go func() {
		defer func() { _ = socket.Close() }()
		g.done <- g.follow(ctx, socket)
	}()
	return g, nil
}

// stop returns the longest time between two generations: no transaction but the first took
// longer.
func (g *generations) stop() (time.Duration, error) {
	g.cancel()
	err := <-g.done
	return g.longest, err
}

func (g *generations) follow(ctx context.Context, socket *netlink.Conn) error {
	const often = time.Millisecond
	ask := time.NewTicker(often)
	defer ask.Stop()
	before, err := generation(socket)
	for err == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-ask.C:
		}
		var now uint32
		if now, err = generation(socket); now == before {
			continue
		}
		before = now
		at := time.Now()
		if !g.last.IsZero() {
			g.longest = max(g.longest, at.Sub(g.last))
		}
		g.last = at
	}
	return err
}

// generation asks the kernel for the present generation.
func generation(socket *netlink.Conn) (uint32, error) {
	answers, err := socket.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETGEN, Flags: netlink.Request},
		Data:   make([]byte, 4), // struct nfgenmsg: of any family
	})
	if err != nil {
		return 0, fmt.Errorf("ask for the generation of rules: %w", err)
	}
	for _, m := range answers {
		d, err := netlink.NewAttributeDecoder(m.Data[4:])
		if err != nil {
			return 0, fmt.Errorf("read the generation of rules: %w", err)
		}
		for d.Next() {
			if d.Type() == unix.NFTA_GEN_ID {
				return d.Uint32(), nil
			}
		}
	}
	return 0, fmt.Errorf("ask for the generation of rules: no number in %d answers", len(answers))
}
