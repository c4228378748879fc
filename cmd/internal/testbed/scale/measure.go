package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// measure makes a cluster of a shape and runs the proxy in it.
func measure(ctx context.Context, o *options, s shape, log io.Writer) (r record, err error) {
	// This process holds the cluster's objects. Its garbage collection should take as little
	// processor time from the proxy as possible.
	const percent = 400
	defer debug.SetGCPercent(debug.SetGCPercent(percent))
	r = record{Proxy: "vmapd", Cluster: s.String(), Services: s.services, Endpoints: s.services * s.endpoints}
	if o.kubeProxy != "" {
		r.Proxy = "kube-proxy, mode nftables"
	}
	w, err := newWorld(s)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	debug.FreeOSMemory()
	if err := r.life(ctx, o, w, log); err != nil {
		return r, err
	}
	if o.kubeProxy == "" {
		err = r.again(ctx, o, w)
	}
	return r, err
}

// life measures from the first start of the proxy until it is killed.
func (r *record) life(ctx context.Context, o *options, w *world, log io.Writer) error {
	p, err := w.start(ctx, o)
	if err != nil {
		return err
	}
	defer p.kill()
	r.Ready, r.Peak = rounded(p.ready), p.peak
	fmt.Fprintf(log, "%s: %s is ready after %v\n", r.Cluster, r.Proxy, p.ready.Round(time.Millisecond))
	if err := r.changes(ctx, o, p); err != nil {
		return fmt.Errorf("%w; the log:\n%s", err, &p.Log)
	}
	return nil
}

// changes measures changes, alone and among others.
func (r *record) changes(ctx context.Context, o *options, p *proxy) error {
	observer, err := p.world.observe()
	if err != nil {
		return err
	}
	defer observer.close()
	if err := p.world.oneByOne(ctx, o, observer); err != nil {
		return err
	}
	var missed [2]int
	r.One, r.OneP99, missed[0] = observer.take()
	if o.kubeProxy == "" {
		if err = p.world.manyAtOnce(ctx, o, observer); err == nil {
			err = p.rest(ctx, observer)
		}
		if err != nil {
			return err
		}
		r.Churn, r.ChurnP99, missed[1] = observer.take()
	}
	if missed != [2]int{} {
		r.wrong = fmt.Errorf("%s: %d changes were never seen in the kernel", r.Cluster, missed[0]+missed[1])
	}
	if observer.lost.Load() {
		return errors.New("messages of the kernel were lost")
	}
	return nil
}

// oneByOne changes an endpoint and waits until it is programmed, again and again.
func (w *world) oneByOne(ctx context.Context, o *options, observer *observer) error {
	patience, between, probes := 10*time.Second, 5*time.Millisecond, o.probes
	if o.kubeProxy != "" { // it programs at most once a second: minSyncPeriod
		patience, between, probes = time.Minute, 2*time.Second, min(probes, 10)
	}
	for range probes {
		w.probe(observer)
		select {
		case <-observer.seen:
		case <-time.After(patience): // it is counted as missed
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := lab.Pause(ctx, between); err != nil {
			return err
		}
	}
	return nil
}

// probe replaces one endpoint, which the observer times.
func (w *world) probe(observer *observer) {
	slice, addr := w.objects.replace(true, time.Now())
	// The time to make the object is not part of the proxy's time.
	observer.expect(addr, time.Now())
	w.API.Set(slice)
}

// manyAtOnce makes changes at a fixed rate, whether or not earlier ones are programmed; some of them are timed.
func (w *world) manyAtOnce(ctx context.Context, o *options, observer *observer) error {
	const each = time.Second / 1000
	begin := time.Now()
	// As many as there are changes of other Services, but spread over a short churn.
	probing := min(time.Second/10, o.churn/time.Duration(o.probes))
	end := begin.Add(o.churn)
	for next, nextProbe := begin, begin; next.Before(end) && time.Now().Before(end); next = next.Add(each) {
		if err := lab.Pause(ctx, time.Until(next)); err != nil {
			return err
		}
		if !next.Before(nextProbe) {
			w.probe(observer)
			nextProbe = nextProbe.Add(probing)
			continue
		}
		slice, _ := w.objects.replace(false, time.Now())
		w.API.Set(slice)
	}
	return nil
}

// rest waits until vmapd is idle.
func (p *proxy) rest(ctx context.Context, observer *observer) error {
	const quiet, patience = 2 * time.Second, time.Minute
	last := -1
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		now, err := p.operations(ctx)
		if err != nil || now == last && observer.left() == 0 {
			return err
		}
		last = now
		if err := lab.Pause(ctx, quiet); err != nil {
			return err
		}
	}
	return nil // what is missing is counted
}

// again starts vmapd once more, with nothing changed: it compares all rules of the kernel with what it reads anew.
func (r *record) again(ctx context.Context, o *options, w *world) error {
	p, err := w.start(ctx, o)
	if err != nil {
		return err
	}
	defer p.kill()
	r.Restart, r.RestartPeak = rounded(p.ready), p.peak
	operations, err := p.operations(ctx)
	if operations > 0 {
		r.wrong = errors.Join(r.wrong, fmt.Errorf("%s: the restart wrote %d operations", r.Cluster, operations))
	}
	return err
}
