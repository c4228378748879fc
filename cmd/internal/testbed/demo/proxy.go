package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// proxy is vmapd, running in the node.
type proxy struct {
	cancel     context.CancelFunc
	log        lab.Log
	ended      context.Context // whose cause is how vmapd ended
	readyAfter time.Duration
}

const startTimeout = 20 * time.Second

func (d *demo) startProxy(ctx context.Context) (*proxy, error) {
	start := time.Now()
	running, cancel := context.WithCancel(ctx)
	p := &proxy{cancel: cancel}
	cmd := d.world.Node.Command(running, d.vmapd, "--from", d.folder, "--hostname-override", lab.NodeName,
		"--socket=", // no file beside its own
		"--cluster-cidr", lab.PodRange4+","+lab.PodRange6, "-v", "4")
	cmd.Stderr = &p.log
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("start vmapd in the node: %w", err)
	}
	var end context.CancelCauseFunc
	p.ended, end = context.WithCancelCause(context.WithoutCancel(ctx))
	go func() { end(errors.Join(errors.New("vmapd ended"), cmd.Wait())) }()
	if err := p.waitFor("msg=ready"); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	p.readyAfter = time.Since(start)
	return p, nil
}

// waitFor waits until vmapd has logged a text once more.
func (p *proxy) waitFor(text string) error {
	ctx, cancel := context.WithTimeout(p.ended, startTimeout)
	defer cancel()
	return p.log.Await(ctx, text)
}

// stop ends vmapd with SIGTERM, and waits.
func (p *proxy) stop() error {
	p.cancel()
	<-p.ended.Done()
	if err := context.Cause(p.ended); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w\n%s", err, &p.log)
	}
	return nil
}
