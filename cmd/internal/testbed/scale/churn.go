package main

import (
	"context"
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

// manyAtOnce makes changes at a fixed rate, whether or not earlier ones are programmed; some of them are timed. It returns
// the number of slices that were written, and the duration.
func (w *world) manyAtOnce(ctx context.Context, o *options, observer *observer) (writes int, took time.Duration, err error) {
	begin := time.Now()
	end := begin.Add(o.churn)
	// As many as there are changes of other Services, but spread over a short churn.
	probing := min(time.Second/10, o.churn/time.Duration(o.probes))
	nextProbe := begin.Add(probing)
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
			w.probe(observer)
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
		}
	}
}
