package main

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// Connections a second on each path of the rollout, and their time-out: a busy machine may need seconds.
const rate, patient = 200, 10 * time.Second

// rollout replaces pod-1 by pod-4 under load, as Kubernetes does: pod-1 serves its connections for a while. No
// connection must be lost.
func (d *demo) rollout(ctx context.Context) error {
	d.printf("\npod-4 replaces pod-1, with %d connections a second on each path:\n\n", rate)
	loadCtx, stop := context.WithCancel(ctx)
	defer stop()
	paths := []struct{ network, ip string }{{"tcp4", loadBalancerIP4}, {"tcp6", clusterIP6}, {"udp4", clusterIP4}}
	reports := make([]lab.Report, len(paths))
	var wait sync.WaitGroup
	for i, path := range paths {
		to := netip.AddrPortFrom(netip.MustParseAddr(path.ip), servicePort)
		load := lab.Load{Rate: rate, Timeout: patient, Ask: func(ctx context.Context) (lab.Answer, error) {
			return d.world.Client.Ask(ctx, path.network, to)
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
	for i, path := range paths {
		r := &reports[i]
		d.asked += r.Sent
		d.wrong += r.Lost()
		d.printf("  %s: %s\n", path.network, strings.ReplaceAll(r.String(), "\n", "\n        "))
		if r.Answered["pod-4"] == 0 {
			d.complain("pod-4 got no connection")
		}
	}
	return nil
}

func (d *demo) replacePod(ctx context.Context) error {
	const moment = 750 * time.Millisecond // to see the load in each state of the world
	if err := lab.Pause(ctx, moment); err != nil {
		return err
	}
	if _, err := d.world.AddPod(ctx, "pod-4"); err != nil {
		return err
	}
	d.printf("  pod-4 is ready and pod-1 terminating in the EndpointSlices\n")
	took, err := d.change(ctx, "ending")
	if err != nil {
		return err
	}
	d.printf("  vmapd, which reads files once a second, has programmed the change after %v\n", took)
	if err := lab.Pause(ctx, moment); err != nil { // for the end of connections to pod-1
		return err
	}
	if _, err := d.change(ctx, "after"); err != nil {
		return err
	}
	if err := lab.Pause(ctx, moment); err != nil {
		return err
	}
	if err := d.world.RemovePod("pod-1"); err != nil {
		return err
	}
	d.printf("  pod-1 is removed\n")
	return lab.Pause(ctx, moment)
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
