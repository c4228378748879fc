package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// result is what clients saw of a fault.
type result struct {
	counts
	recovered time.Duration // from the fault's end
}

func (r *result) bad() bool { return r.lost+r.broken+r.wrong > 0 }

// play makes a world, and one fault in it.
func play(ctx context.Context, o *options, f fault, backend string) (r result, err error) {
	w, err := newWorld(ctx, o, backend)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if err := w.start(ctx); err != nil {
		return r, err
	}
	before, err := w.rules(ctx)
	if err != nil {
		return r, err
	}
	clients := w.newClients()
	clients.Start(ctx, w.paths())
	time.Sleep(o.settles)
	err = f.do(ctx, w)
	ended := time.Now()
	if err == nil {
		err = w.recover(ctx, o.patience, before)
	}
	r.recovered = time.Since(ended)
	time.Sleep(o.settles)
	r.counts = count(clients.Stop())
	if late := r.last.Sub(ended); late > r.recovered {
		r.recovered = late
	}
	if err != nil {
		err = fmt.Errorf("%w; %s", err, w.Log())
	}
	return r, err
}

// recover changes the endpoint of the Service probe and changes it back; it waits until clients have seen both, and the
// rules are as before.
func (w *world) recover(ctx context.Context, patience time.Duration, before string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, pod := range []int{probeElsewhere, probeAtFirst} {
		w.setProbe(pod)
		if err := w.answers(ctx, probeVIP, w.Pods()[pod].Name()); err != nil {
			return fmt.Errorf("does not recover: %w", err)
		}
	}
	for {
		now, err := w.rules(ctx)
		if err == nil && now == before {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("does not recover: the rules differ (%w)\n%s\n-- before:\n%s", err, now, before)
		}
		time.Sleep(pollPause)
	}
}
