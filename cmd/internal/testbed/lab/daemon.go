package lab

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/vmapd/vmapd/model/modeltest/testlog"
)

// Daemon is a program that runs in a namespace until it is ended. What it writes is kept.
type Daemon struct {
	*Cmd
	Log  testlog.Log
	done chan struct{}
	err  error // of its end, once done
}

// Start starts a program in the namespace, as Command does.
func (ns *Namespace) Start(ctx context.Context, program string, args ...string) (*Daemon, error) {
	d := &Daemon{Cmd: ns.Command(ctx, program, args...), done: make(chan struct{})}
	d.Stdout, d.Stderr = &d.Log, &d.Log
	if err := d.Cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	go func() {
		defer close(d.done)
		d.err = d.Cmd.Wait()
	}()
	return d, nil
}

// Await waits until it has logged a text once more.
func (d *Daemon) Await(ctx context.Context, text string) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !d.Log.Find(text) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("no %q was logged: %w:\n%s", text, ctx.Err(), &d.Log)
		case <-d.done:
			return fmt.Errorf("the program ended: %v\n%s", d.err, &d.Log) //nolint:errorlint // may be nil
		case <-tick.C:
		}
	}
	return nil
}

// End sends it a signal, and waits until it has ended.
func (d *Daemon) End(s os.Signal) error {
	_ = d.Process.Signal(s) // it may have ended by itself
	<-d.done
	return d.err
}
