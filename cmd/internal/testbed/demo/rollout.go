package main

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// rate is the number of connections a second on each route of the rollout.
const rate = 200

// rollout replaces pod-1 by pod-4 under load, as Kubernetes does: pod-1 serves its connections for a while. No
// connection must be lost.
func (d *demo) rollout(ctx context.Context) error {
	d.printf("\npod-4 replaces pod-1, with %d connections a second on each route:\n\n", rate)
	loadCtx, stop := context.WithCancel(ctx)
	defer stop()
	ways := []struct{ network, ip string }{{"tcp4", loadBalancerIP4}, {"tcp6", clusterIP6}, {"udp4", clusterIP4}}
	reports := make([]lab.Report, len(ways))
	var wait sync.WaitGroup
	for i, way := range ways {
		to := netip.AddrPortFrom(netip.MustParseAddr(way.ip), servicePort)
		load := lab.Load{Rate: rate, Ask: func(ctx context.Context) (lab.Answer, error) {
			return d.world.Client.Ask(ctx, way.network, to)
		}}
		wait.Go(func() { reports[i] = load.Run(loadCtx) })
	}
	err := d.replacePod(ctx)
	stop()
	wait.Wait()
	if err != nil {
		return err
	}
	d.printf("\n")
	for i, way := range ways {
		r := &reports[i]
		d.asked += r.Sent
		d.wrong += r.Lost()
		d.printf("  %s: %s\n", way.network, strings.ReplaceAll(r.String(), "\n", "\n        "))
		if r.Answered["pod-4"] == 0 {
			d.complain("pod-4 got no connection")
		}
	}
	return nil
}

func (d *demo) replacePod(ctx context.Context) error {
	const moment = 750 * time.Millisecond // to see the load in each state of the world
	pause := func() error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(moment):
			return nil
		}
	}
	if err := pause(); err != nil {
		return err
	}
	if _, err := d.world.AddPod(ctx, "pod-4"); err != nil {
		return err
	}
	d.printf("  pod-4 is ready, and pod-1 is told to end; the EndpointSlices say so\n")
	took, err := d.change(ctx, "ending")
	if err != nil {
		return err
	}
	d.printf("  vmapd has programmed the change, %v after the files were written\n", took)
	if err := pause(); err != nil { // for the end of connections to pod-1
		return err
	}
	if _, err := d.change(ctx, "after"); err != nil {
		return err
	}
	if err := pause(); err != nil {
		return err
	}
	if err := d.world.RemovePod("pod-1"); err != nil {
		return err
	}
	d.printf("  pod-1 is removed\n")
	return pause()
}

// change writes a folder's manifests, and returns the time until vmapd has programmed them.
func (d *demo) change(ctx context.Context, folder string) (time.Duration, error) {
	start := time.Now()
	if err := d.write(folder); err != nil {
		return 0, err
	}
	err := d.waitFor(ctx, `msg="changes applied"`)
	return time.Since(start).Round(time.Millisecond), err
}
