package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmapd/vmapd/sync/informer/apitest"
)

// fault is something that breaks.
type fault struct {
	name     string
	does     string   // what it does, in a sentence
	backends []string // nil for both
	quick    bool     // make test has it
	loses    string   // the reason why something may be lost; empty if nothing may
	// do begins the fault, and returns when it has ended.
	do func(ctx context.Context, w *world) error
}

// on returns the backends that the fault is played with.
func (f *fault) on() []string {
	if f.backends == nil {
		return []string{"nftables", "iptables"}
	}
	return f.backends
}

// faults returns all, in the order of the table.
func faults() []fault {
	return slices.Concat(daemonFaults(), ruleFaults(), serverFaults())
}

func daemonFaults() []fault {
	return []fault{{
		name: "kill", quick: true,
		does: "vmapd is killed by SIGKILL, and started again",
		do: func(ctx context.Context, w *world) error {
			_ = w.Proxy.End(unix.SIGKILL) // the signal is its result
			return w.start(ctx)
		},
	}, {
		name: "stop", quick: true,
		does: "vmapd is stopped by SIGSTOP for a while, and goes on",
		do: func(_ context.Context, w *world) error {
			if err := w.Proxy.Process.Signal(unix.SIGSTOP); err != nil {
				return err
			}
			time.Sleep(w.o.lasts)
			return w.Proxy.Process.Signal(unix.SIGCONT)
		},
	}, {
		name: "no file descriptors",
		does: "vmapd can't open files or sockets for a while (RLIMIT_NOFILE), and its connections to the API server end",
		do: func(_ context.Context, w *world) error {
			var before unix.Rlimit
			if err := unix.Prlimit(w.Proxy.Process.Pid, unix.RLIMIT_NOFILE, nil, &before); err != nil {
				return err
			}
			none := unix.Rlimit{Cur: 3, Max: before.Max}
			if err := unix.Prlimit(w.Proxy.Process.Pid, unix.RLIMIT_NOFILE, &none, nil); err != nil {
				return err
			}
			away := w.API.Outage(apitest.Unavailable)
			time.Sleep(w.o.lasts)
			again := w.API.Outage(apitest.Up)
			return errors.Join(away, again, unix.Prlimit(w.Proxy.Process.Pid, unix.RLIMIT_NOFILE, &before, nil))
		},
	}, {
		name: "second vmapd",
		does: "another vmapd runs in the same node for a while",
		do: func(ctx context.Context, w *world) error {
			ctx, cancel := context.WithTimeout(ctx, w.o.lasts)
			defer cancel()
			flags := append(w.flags(), "--socket", w.Kubeconfig+".sock", "--metrics-bind-address=", "--healthz-bind-address=")
			other := w.Node.Command(ctx, w.o.vmapd, flags...)
			if err := other.Start(); err != nil {
				return err
			}
			_ = other.Wait() // the context's end is its result
			if ctx.Err() == nil {
				return fmt.Errorf("the other vmapd ended by itself")
			}
			return nil
		},
	}}
}
