package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"
)

// oneByOne changes an endpoint and waits until it is programmed, again and again.
func (w *world) oneByOne(ctx context.Context, o *options, observer *observer) error {
	const patience, between = 10 * time.Second, 5 * time.Millisecond
	for range o.probes {
		w.probe(observer)
		select {
		case <-observer.seen:
		case <-time.After(patience): // it is counted as missed
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := pause(ctx, between); err != nil {
			return err
		}
	}
	return nil
}

// probe replaces one endpoint, which the observer times.
func (w *world) probe(observer *observer) {
	now := time.Now()
	e, addr := w.cluster.Replace(now)
	// The time to make the object is not part of the daemon's time.
	observer.expect(addr, time.Now())
	w.write(e)
}

// churn is many changes at a fixed rate, whether or not earlier ones are programmed. Some of
// them are timed.
type churn struct {
	options  *options
	daemon   *daemon
	observer *observer
	log      io.Writer

	all []time.Duration // latencies that were taken
}

// run makes changes for the time in the options. It returns the number of slices that were
// written, and the duration.
func (c *churn) run(ctx context.Context) (writes int, took time.Duration, err error) {
	o := c.options
	w := c.daemon.world
	begin := time.Now()
	end := begin.Add(o.churn)
	// As many as there are changes of other Services, but spread over a short churn.
	probing := min(time.Second/10, o.churn/time.Duration(o.probes))
	nextProbe, nextMinute := begin.Add(probing), begin.Add(time.Minute)
	for {
		due := begin.Add(time.Duration(writes) * time.Second / time.Duration(o.rate))
		next := due
		if nextProbe.Before(due) {
			next = nextProbe
		}
		if !next.Before(end) {
			return writes, time.Since(begin), nil
		}
		if d := time.Until(next); d > 0 {
			if err := pause(ctx, d); err != nil {
				return 0, 0, err
			}
		}
		if next.Equal(nextProbe) {
			w.probe(c.observer)
			nextProbe = nextProbe.Add(probing)
		} else {
			events := w.cluster.Churn(time.Now())
			for _, e := range events {
				w.write(e)
			}
			writes += max(1, len(events))
		}
		if now := time.Now(); now.After(end) {
			return writes, now.Sub(begin), nil // it can't keep up
		} else if o.soak > 0 && now.After(nextMinute) {
			nextMinute = nextMinute.Add(time.Minute)
			if err := c.minute(ctx, now.Sub(begin), writes); err != nil {
				return 0, 0, err
			}
		}
	}
}

// minute logs the state once a minute.
func (c *churn) minute(ctx context.Context, elapsed time.Duration, writes int) error {
	took := c.observer.take()
	c.all = append(c.all, took...)
	l := newLatency(took)
	u, err := c.daemon.usage()
	if err != nil {
		return err
	}
	t, err := c.daemon.traffic(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.log, "%6s  %d written  memory %s  processor %v  operations %d  latency p50 %s p99 %s worst %s  open %d\n",
		elapsed.Round(time.Second), writes, megabytes(u.rss), (u.user + u.system).Round(tick), t.operations,
		milliseconds(l.p50), milliseconds(l.p99), milliseconds(l.worst), c.observer.left())
	return nil
}

// latencies returns all measured latencies, sorted.
func (c *churn) latencies() []time.Duration {
	c.all = append(c.all, c.observer.take()...)
	slices.Sort(c.all)
	return c.all
}
