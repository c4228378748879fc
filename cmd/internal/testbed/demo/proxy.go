package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// proxy is vmapd, running in the node.
type proxy struct {
	cmd        *lab.Cmd
	cancel     context.CancelFunc
	lines      chan string // of its log, as they come; closed at its end
	readyAfter time.Duration

	mu   sync.Mutex
	text strings.Builder
}

const startTimeout = 20 * time.Second

func (d *demo) startProxy(ctx context.Context) (*proxy, error) {
	start := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	p := &proxy{
		cmd: d.world.Node.Command(ctx, d.vmapd, "--from", d.folder, "--hostname-override", lab.NodeName,
			"--socket=", // no file beside its own
			"--cluster-cidr", lab.PodRange4+","+lab.PodRange6, "-v", "4"),
		cancel: cancel,
		lines:  make(chan string, 1000),
	}
	stderr, err := p.cmd.StderrPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("start vmapd in the node: %w", err)
	}
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(stderr); s.Scan(); {
			p.mu.Lock()
			fmt.Fprintln(&p.text, s.Text())
			p.mu.Unlock()
			select {
			case p.lines <- s.Text():
			default: // waitFor reads the first lines only
			}
		}
	}()
	if err := p.waitFor(ctx, "msg=ready"); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	p.readyAfter = time.Since(start)
	return p, nil
}

// waitFor waits until a further line of the log has a text.
func (p *proxy) waitFor(ctx context.Context, text string) error {
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timeout.C:
			return fmt.Errorf("vmapd did not log %q within %v:\n%s", text, startTimeout, p.log())
		case line, ok := <-p.lines:
			if !ok {
				return fmt.Errorf("vmapd ended:\n%s", p.log())
			}
			if strings.Contains(line, text) {
				return nil
			}
		}
	}
}

func (p *proxy) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// stop ends vmapd with SIGTERM, and waits.
func (p *proxy) stop() error {
	p.cancel()
	for range p.lines { // until its end
	}
	if err := p.cmd.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("vmapd: %w\n%s", err, p.log())
	}
	return nil
}
