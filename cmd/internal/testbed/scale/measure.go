package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/scale/cluster"
)

// result has the measurements of one shape.
type result struct {
	shape cluster.Shape
	size  cluster.Size
	load  string // of the machine, before and after

	cold          start
	peak, settled int64 // memory, in bytes
	longestGap    time.Duration
	idle          latency
	churn         latency
	churned       load
	restart       start
	differences   traffic // to what was compiled afresh
	complaints    string  // of the daemon
}

// start is the cost of starting the daemon.
type start struct {
	listed, ready time.Duration // since the start
	user, system  time.Duration
	peak          int64 // memory, in bytes
	traffic       traffic
	longestBatch  time.Duration
}

// latency is the time until changes of one endpoint were programmed.
type latency struct {
	p50, p99, worst time.Duration
	changes, missed int
}

func newLatency(sorted []time.Duration) latency {
	l := latency{changes: len(sorted)}
	if len(sorted) > 0 {
		at := func(percent int) time.Duration { return sorted[(len(sorted)*percent+99)/100-1] }
		l.p50, l.p99, l.worst = at(50), at(99), sorted[len(sorted)-1]
	}
	return l
}

// load is the other load during the measurement.
type load struct {
	writes       int
	took         time.Duration
	processor    time.Duration // of the daemon
	peak, rss    int64
	traffic      traffic
	longestBatch time.Duration
}

// wrong returns an error if a result is wrong; time does not matter.
func (r *result) wrong() error {
	var errs []error
	if n := r.idle.missed + r.churn.missed; n > 0 {
		errs = append(errs, fmt.Errorf("%d changes were never seen in the kernel", n))
	}
	if n := r.restart.traffic.operations; n > 0 {
		errs = append(errs, fmt.Errorf("the restart wrote %d operations", n))
	}
	if n := r.differences.operations; n > 0 {
		errs = append(errs, fmt.Errorf("the kernel differed from the last objects by %d operations", n))
	}
	return errors.Join(errs...)
}

// measure makes a cluster of a shape and runs the daemon in it.
func measure(ctx context.Context, o *options, s cluster.Shape, log io.Writer) (r *result, err error) {
	// This process holds the cluster's objects. Its garbage collection should take as little
	// processor time from the daemon as possible.
	const percent = 400
	defer debug.SetGCPercent(debug.SetGCPercent(percent))
	r = &result{shape: s, load: machineLoad()}
	w, err := newWorld(ctx, s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	debug.FreeOSMemory()
	r.size = w.cluster.Size()
	fmt.Fprintf(log, "%v: %d Services, %d EndpointSlices, %d endpoints\n", s, r.size.Services, r.size.Slices, r.size.Endpoints)
	if err := r.life(ctx, o, w, log); err != nil {
		return nil, err
	}
	if r.differences, err = w.compare(ctx); err != nil {
		return nil, err
	}
	if err := r.again(ctx, o, w); err != nil {
		return nil, err
	}
	r.load += " to " + machineLoad()
	return r, nil
}

func machineLoad() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	var minute string
	_, _ = fmt.Sscan(string(text), &minute)
	return minute
}

// life measures from the first start of the daemon until it is killed.
func (r *result) life(ctx context.Context, o *options, w *world, log io.Writer) error {
	generations, err := w.followGenerations(ctx)
	if err != nil {
		return err
	}
	d, err := w.start(ctx, o)
	if err != nil {
		_, stopErr := generations.stop()
		return errors.Join(err, stopErr)
	}
	if err = r.begin(ctx, o, d, generations, log); err == nil {
		err = w.connections(ctx, o, fmt.Sprintf("%v: vmapd", r.shape), log)
	}
	if err == nil {
		err = r.change(ctx, o, d, log)
	}
	r.complaints = d.complaints()
	if err != nil {
		err = fmt.Errorf("%w; the daemon: %s", err, r.complaints)
	}
	return errors.Join(err, d.kill())
}

// begin measures the start, until the daemon is idle.
func (r *result) begin(ctx context.Context, o *options, d *daemon, generations *generations, log io.Writer) error {
	var err, stopErr error
	r.cold, err = d.begun(ctx)
	r.longestGap, stopErr = generations.stop()
	if err := errors.Join(err, stopErr); err != nil {
		return err
	}
	fmt.Fprintf(log, "%v: ready after %v\n", r.shape, r.cold.ready.Round(time.Millisecond))
	if err := pause(ctx, o.settle); err != nil {
		return err
	}
	u, err := d.usage()
	if err != nil {
		return err
	}
	r.peak, r.settled = u.peak, u.rss
	return nil
}

// begun waits until the daemon is ready, and returns the cost.
func (d *daemon) begun(ctx context.Context) (start, error) {
	if err := d.waitReady(ctx); err != nil {
		return start{}, err
	}
	u, err := d.usage()
	if err != nil {
		return start{}, err
	}
	t, err := d.traffic(ctx)
	if err != nil {
		return start{}, err
	}
	longest, _ := d.longestBatch(0)
	d.mu.Lock()
	defer d.mu.Unlock()
	return start{
		listed: d.listed, ready: d.readyTook, user: u.user, system: u.system, peak: u.peak, traffic: t, longestBatch: longest,
	}, nil
}

// change measures changes, alone and among others.
func (r *result) change(ctx context.Context, o *options, d *daemon, log io.Writer) error {
	observer, err := d.world.observe()
	if err != nil {
		return err
	}
	defer observer.close()
	if err := d.world.oneByOne(ctx, o, observer); err != nil {
		return err
	}
	r.idle = newLatency(observer.take())
	r.idle.missed = observer.giveUp()
	fmt.Fprintf(log, "%v: a change takes %v (median)\n", r.shape, r.idle.p50.Round(time.Microsecond))
	if err := r.churning(ctx, o, d, observer); err != nil {
		return err
	}
	if observer.overrun() {
		return errors.New("the kernel told more than could be read in time")
	}
	return nil
}

func (r *result) churning(ctx context.Context, o *options, d *daemon, observer *observer) error {
	before, err := d.usage()
	if err != nil {
		return err
	}
	traffic, err := d.traffic(ctx)
	if err != nil {
		return err
	}
	if err := d.resetPeak(); err != nil {
		return err
	}
	_, batches := d.longestBatch(0)
	if r.churned.writes, r.churned.took, err = d.world.manyAtOnce(ctx, o, observer); err != nil {
		return err
	}
	if err := d.rest(ctx, observer); err != nil {
		return err
	}
	r.churn = newLatency(observer.take())
	r.churn.missed = observer.giveUp()
	after, err := d.usage()
	if err != nil {
		return err
	}
	end, err := d.traffic(ctx)
	if err != nil {
		return err
	}
	r.churned.processor = after.user + after.system - before.user - before.system
	r.churned.peak, r.churned.rss = after.peak, after.rss
	r.churned.traffic = end.minus(traffic)
	r.churned.longestBatch, _ = d.longestBatch(batches)
	return nil
}

// rest waits until the daemon is idle.
func (d *daemon) rest(ctx context.Context, observer *observer) error {
	const quiet, patience = 2 * time.Second, time.Minute
	var last traffic
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		now, err := d.traffic(ctx)
		if err != nil {
			return err
		}
		if now == last && observer.left() == 0 {
			return nil
		}
		last = now
		if err := pause(ctx, quiet); err != nil {
			return err
		}
	}
	return nil // what is missing is counted
}

// again starts the daemon once more, with nothing changed.
func (r *result) again(ctx context.Context, o *options, w *world) error {
	d, err := w.start(ctx, o)
	if err != nil {
		return err
	}
	r.restart, err = d.begun(ctx)
	return errors.Join(err, d.kill())
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
