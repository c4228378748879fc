package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/leftovers"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/devices"
	"github.com/vmapd/vmapd/sync/events"
	"github.com/vmapd/vmapd/sync/informer"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// start is the command without a subcommand.
type start struct {
	config.Flags
	log *slog.Logger // nil before the configuration is read
}

func (s *start) run(ctx context.Context, stderr io.Writer) error {
	started := time.Now()
	c, err := config.Load(&s.Flags)
	if err != nil {
		return err
	}
	level := new(slog.LevelVar)
	level.Set(levelOf(c.Verbosity))
	s.log = newLogger(stderr, c.LogFormat, level)
	// client-go logs here where it has no other log.
	klog.SetLogger(informer.Debug(s.log))
	if !s.InitOnly { // the daemon says them, with the same configuration
		for _, n := range c.Notes {
			s.log.LogAttrs(ctx, n.Level, "configuration", slog.String("note", n.Text))
		}
	}
	switch {
	case s.WriteConfigTo != "":
		return c.WriteFile(s.WriteConfigTo)
	case s.CleanUp:
		return leftovers.Remove(c.IPVS())
	case s.InitOnly:
		return initOnly(ctx, c, s.log)
	}
	limitMemory(ctx, s.log)
	d, err := newDaemon(c, s.log, level, started)
	if err != nil {
		return err
	}
	if err := d.serve(ctx); err != nil {
		return err
	}
	s.log.LogAttrs(ctx, slog.LevelInfo, "stopped; the rules stay")
	return nil
}

// daemon programs a node.
type daemon struct {
	config   *config.Config
	log      *slog.Logger
	level    *slog.LevelVar // of log
	started  time.Time
	nodeName string
	events   *events.Recorder
	refused  atomic.Pointer[string] // why the configuration's files are invalid now; nil: they are valid
}

func newDaemon(c *config.Config, log *slog.Logger, level *slog.LevelVar, started time.Time) (*daemon, error) {
	nodeName := c.Model().NodeName
	if nodeName == "" {
		var err error
		if nodeName, err = config.HostNodeName(); err != nil {
			return nil, err
		}
	}
	recorder, err := newRecorder(c, nodeName, log)
	if err != nil {
		return nil, err
	}
	return &daemon{config: c, log: log, level: level, started: started, nodeName: nodeName, events: recorder}, nil
}

// serve programs the node until ctx ends, or a part fails so that a new start is needed.
func (d *daemon) serve(ctx context.Context) error {
	plane, err := d.openBackend(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = plane.close() }()
	in, err := d.openInputs(d.traffic(config.Backend(plane.name)))
	if err != nil {
		return err
	}
	o := d.observe(plane, in)
	asked := &answers{daemon: d, plane: plane, observers: o, in: in}
	ports, err := asked.openPorts()
	if err != nil {
		return err
	}
	o.doctor.ports = ports
	// Nothing fails from here on, and connection tracking is loaded, by the backend.
	d.setUpNode(ctx)
	d.announce(ctx, plane)
	foreign, watching := watch(plane, d.log)
	loop := d.newLoop(plane, in, o, foreign)
	tasks := append(append(o.tasks(), in.tasks()...), watching...)
	tasks = append(tasks, quiet(d.events.Run), quiet(loop.Run), ports.metrics.Run, ports.healthz.Run, quiet(asked.serve),
		func(ctx context.Context) error { return d.follow(ctx, o.metrics) })
	portSigns := ports.signs(plane.signs, d.config.MetricsBindAddress)
	tasks = append(tasks, quiet(func(ctx context.Context) { plane.sweep.Watch(ctx, func() { portSigns(ctx) }) }),
		quiet(func(ctx context.Context) { in.repeat(ctx, plane.sweep.Again()) }))
	if plane.nft != nil {
		tasks = append(tasks, quiet(plane.nft.RunPurges))
	}
	if plane.nft != nil && d.config.FastPath.On() {
		tasks = append(tasks, d.followDevices(plane, in.state))
	}
	return runAll(ctx, tasks)
}

// newLoop returns the loop that applies the state of the inputs to the dataplane, also when another program has
// changed that.
func (d *daemon) newLoop(p *dataplane, in inputs, o *observers, foreign <-chan struct{}) *reconcile.Loop {
	backend := config.Backend(p.name)
	told := o.all()
	if t := newStartThrift(); t != nil {
		told = append(told, t)
	}
	return &reconcile.Loop{
		State: in.state, Backend: p, Log: d.log, Describe: in.describe, Observers: told, ForeignChange: foreign,
		MinInterval:    d.config.MinSyncPeriod(backend),
		ResyncInterval: resyncInterval(d.config, backend),
	}
}

// traffic returns the settings that decide about traffic, adapted to this host and a backend.
func (d *daemon) traffic(backend config.Backend) model.Config {
	traffic := d.config.Model()
	traffic.Budgets, traffic.NodeName = config.Budgets(backend), d.nodeName
	if traffic.NodePortAddresses.Localhost[model.IPv6] && !hasIPv6Loopback() {
		traffic.NodePortAddresses.Localhost[model.IPv6] = false
		d.log.LogAttrs(context.Background(), slog.LevelInfo, "node ports on localhost: IPv4 only; this host has no ::1")
	}
	return traffic
}

// followDevices returns a task that keeps the devices of the fast path.
func (d *daemon) followDevices(p *dataplane, state *reconcile.State) task {
	source := devices.Source{Log: d.log, Choice: d.config.FastPath, Changed: func(names []string) {
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
