package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/scale/cluster"
)

// daemonFlags are the flags of the daemon that decide about its rules.
func daemonFlags() []string {
	return []string{
		"--backend", "nftables", "--hostname-override", cluster.NodeName,
		"--cluster-cidr", strings.Join(cluster.PodCIDRs, ","),
	}
}

// args are all flags of the daemon. They change no setting of the host; with -v 4, the daemon logs
// each batch.
func (w *world) args() []string {
	return append(daemonFlags(), "--kubeconfig", w.kubeconfig, "--conntrack-max-per-core", "0", "-v", "4",
		"--socket", filepath.Join(w.folder, "vmapd.sock"))
}

// metricsAddress is the daemon's default.
const metricsAddress = "127.0.0.1:10249"

// daemon is vmapd, running in the namespace.
type daemon struct {
	world   *world
	cmd     *lab.Cmd
	started time.Time
	ready   chan struct{} // closed once it says so
	ended   chan struct{} // closed when its log has ended

	mu        sync.Mutex
	readyTook time.Duration   // since it was started
	listed    time.Duration   // of it, until it had all objects
	batches   []time.Duration // how long each took
	errors    []string        // what it warned of, the first few
	count     int             // of all warnings
}

func (w *world) start(ctx context.Context, o *options) (*daemon, error) {
	d := &daemon{
		world: w, cmd: w.ns.Command(ctx, o.vmapd, w.args()...),
		ready: make(chan struct{}), ended: make(chan struct{}),
	}
	stderr, err := d.cmd.StderrPipe()
	if err != nil {
		return nil, fmt.Errorf("start the daemon: %w", err)
	}
	d.started = time.Now()
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the daemon: %w", err)
	}
	go d.read(stderr)
	return d, nil
}

// read follows the daemon's log.
func (d *daemon) read(log io.Reader) {
	defer close(d.ended)
	for lines := bufio.NewScanner(log); lines.Scan(); {
		d.line(lines.Text(), time.Since(d.started))
	}
}

func (d *daemon) line(line string, at time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case strings.Contains(line, "msg=applied "):
		d.batches = append(d.batches, duration(line, "took"))
	case strings.Contains(line, "msg=ready "):
		d.readyTook = at
		close(d.ready)
	case strings.Contains(line, "initial lists read"):
		d.listed = at
	case strings.Contains(line, "level=ERROR"), strings.Contains(line, "level=WARN"), !strings.Contains(line, "level="):
		const few = 10
		if d.count++; d.count <= few {
			d.errors = append(d.errors, line)
		}
	}
}

// duration reads key=1.5ms from a line of the log; 0 if it is not there.
func duration(line, key string) time.Duration {
	_, value, _ := strings.Cut(line, " "+key+"=")
	value, _, _ = strings.Cut(value, " ")
	took, _ := time.ParseDuration(value)
	return took
}

// waitReady waits until the daemon has programmed everything.
func (d *daemon) waitReady(ctx context.Context) error {
	const patience = 10 * time.Minute
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-d.ready:
		return nil
	case <-d.ended:
		return fmt.Errorf("the daemon ended before it was ready: %s", d.complaints())
	case <-timeout.C:
		return fmt.Errorf("the daemon is not ready after %v: %s", patience, d.complaints())
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *daemon) complaints() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count == 0 {
		return "no complaints"
	}
	return fmt.Sprintf("%d complaints, the first:\n\t%s", d.count, strings.Join(d.errors, "\n\t"))
}

// longestBatch returns the longest of the batches from a number on, and the number of the next
// batch.
func (d *daemon) longestBatch(since int) (longest time.Duration, next int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, took := range d.batches[since:] {
		longest = max(longest, took)
	}
	return longest, len(d.batches)
}

// kill ends the daemon as if it had crashed, and waits.
func (d *daemon) kill() error {
	if err := d.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill the daemon: %w; %s", err, d.complaints())
	}
	<-d.ended
	if err := d.cmd.Wait(); err == nil {
		return errors.New("the daemon ended before it was killed")
	}
	return nil
}
