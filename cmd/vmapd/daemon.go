package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/devices"
	"github.com/vmapd/vmapd/sync/events"
	"github.com/vmapd/vmapd/sync/informer"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// daemon is the command without a subcommand.
type daemon struct {
	config.Flags

	started time.Time
	log     *slog.Logger
	level   slog.LevelVar
	current atomic.Pointer[config.Config] // the configuration in force
	events  *events.Recorder
	refused atomic.Pointer[string] // why the last change of the configuration is not in force; nil: it is
}

// say logs the notes of a configuration that the previous one, which may be nil, did not have.
func (d *daemon) say(ctx context.Context, c, before *config.Config) {
	for _, n := range c.Notes {
		if before == nil || !slices.Contains(before.Notes, n) {
			d.log.LogAttrs(ctx, n.Level, "configuration", slog.String("note", n.Text))
		}
	}
}

func (d *daemon) run(ctx context.Context, stderr io.Writer) error {
	d.started = time.Now()
	c, err := config.Load(&d.Flags)
	if err != nil {
		return err
	}
	d.current.Store(c)
	d.level.Set(levelOf(c.Verbosity))
	d.log = newLogger(stderr, c.LogFormat, &d.level)
	// client-go logs here where it has no other log.
	klog.SetLogger(informer.Debug(d.log))
	if !d.InitOnly { // the daemon says them, with the same configuration
		d.say(ctx, c, nil)
	}
	switch {
	case d.WriteConfigTo != "":
		return c.WriteFile(d.WriteConfigTo)
	case d.CleanUp:
		return cleanUp(c)
	case d.InitOnly:
		return d.initOnly(ctx, c)
	}
	limitMemory(ctx, d.log)
	err = d.serve(ctx)
	d.log.LogAttrs(ctx, slog.LevelInfo, "stopped; the rules stay")
	return err
}

// serve programs the node until ctx ends, or a part fails so that a new start is needed.
func (d *daemon) serve(ctx context.Context) error {
	c := d.current.Load()
	traffic, err := d.traffic(c, c.Backend)
	if err != nil {
		return err
	}
	in, err := d.openInputs(traffic)
	if err != nil {
		return err
	}
	if d.events, err = d.newRecorder(traffic.NodeName); err != nil {
		return err
	}
	plane, err := d.openBackend(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = plane.close() }()
	in.host.IgnoreAddr = plane.isService
	if traffic.Budgets = config.Budgets(config.Backend(plane.name)); traffic.Budgets != c.Model().Budgets {
		in.state.Update(reconcile.Change{}, func(b *model.Builder) { b.SetConfig(traffic) })
	}
	plane.sweep.again = func() { in.state.Update(reconcile.Change{}, func(*model.Builder) {}) }
	r := &running{daemon: d, plane: plane, observers: d.observe(plane, in)}
	asked := &answers{daemon: d, plane: plane, observers: r.observers, in: in, nodeName: traffic.NodeName}
	if r.ports, err = asked.openPorts(); err != nil {
		return err
	}
	r.observers.doctor.ports, r.observers.doctor.nodeName = r.ports, traffic.NodeName
	// Nothing fails from here on, and connection tracking is loaded, by the backend.
	d.setUpNode(ctx, c)
	d.announce(ctx, plane, traffic.NodeName)
	r.loop = d.newLoop(plane, in, r.observers)
	tasks := append(r.tasks(), in.tasks()...)
	tasks = append(tasks, quiet(asked.serve))
	portSigns := r.ports.signs(plane.rivals, d.current.Load)
	tasks = append(tasks, quiet(func(ctx context.Context) { plane.sweep.watch(ctx, func() { portSigns(ctx) }) }))
	tasks = append(tasks, watch(plane, r.loop)...)
	if plane.nft != nil {
		tasks = append(tasks, quiet(plane.nft.RunPurges))
	}
	if plane.nft != nil && c.FastPath.On() {
		tasks = append(tasks, d.followDevices(plane, in.state))
	}
	return runAll(ctx, tasks)
}

// newLoop returns the loop that applies the state of the inputs to the dataplane.
func (d *daemon) newLoop(p *dataplane, in inputs, o *observers) *reconcile.Loop {
	c, backend := d.current.Load(), config.Backend(p.name)
	loop := &reconcile.Loop{
		State: in.state, Backend: p, Log: d.log, Describe: in.describe, Observers: o.all(),
		MinInterval:    c.MinSyncPeriod(backend),
		ResyncInterval: resyncInterval(c, backend),
	}
	return loop
}

// traffic returns the settings that decide about traffic, adapted to this host and a backend.
func (d *daemon) traffic(c *config.Config, backend config.Backend) (model.Config, error) {
	traffic := c.Model()
	traffic.Budgets = config.Budgets(backend)
	if traffic.NodeName == "" {
		var err error
		if traffic.NodeName, err = config.HostNodeName(); err != nil {
			return traffic, err
		}
	}
	if traffic.NodePortAddresses.Localhost[model.IPv6] && !hasIPv6Loopback() {
		traffic.NodePortAddresses.Localhost[model.IPv6] = false
		d.log.LogAttrs(context.Background(), slog.LevelInfo, "node ports on localhost: IPv4 only; this host has no ::1")
	}
	return traffic, nil
}

// followDevices returns a task that keeps the devices of the fast path.
func (d *daemon) followDevices(p *dataplane, state *reconcile.State) task {
	source := devices.Source{Log: d.log, Choice: d.current.Load().FastPath, Changed: func(names []string) {
		p.nft.SetDevices(names)
		state.Update(reconcile.Change{}, func(*model.Builder) {}) // another round
	}}
	return quiet(source.Run)
}

func hasIPv6Loopback() bool {
	l, err := net.ListenUDP("udp6", &net.UDPAddr{IP: net.IPv6loopback})
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}

// task runs until its context ends, or until it fails.
type task func(context.Context) error

// quiet makes a task of a function that can't fail.
func quiet(run func(context.Context)) task {
	return func(ctx context.Context) error {
		run(ctx)
		return nil
	}
}

// runAll runs tasks until ctx ends or one of them fails, and waits for all.
func runAll(ctx context.Context, tasks []task) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wait sync.WaitGroup
	errs := make([]error, len(tasks))
	for i, run := range tasks {
		wait.Go(func() {
			if errs[i] = run(ctx); errs[i] != nil {
				cancel()
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}
