package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/events"
	"github.com/vmapd/vmapd/sync/hostaddr"
	"github.com/vmapd/vmapd/sync/informer"
	"github.com/vmapd/vmapd/sync/manifest"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// source delivers objects.
type source interface {
	Run(ctx context.Context, state *reconcile.State) error
}

// daemon is vmapd without a subcommand.
type daemon struct {
	config.Flags

	started time.Time
	log     *slog.Logger
	level   slog.LevelVar
	current atomic.Pointer[config.Config] // in force
	events  *events.Recorder
}

// levelOf returns the level to log at for a verbosity.
func levelOf(v int) slog.Level {
	const debugFrom = 4 // as in kube-proxy: for developers
	if v >= debugFrom {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

func (d *daemon) newLogger(w io.Writer) *slog.Logger {
	c := d.current.Load()
	d.level.Set(levelOf(c.Verbosity))
	o := &slog.HandlerOptions{Level: &d.level}
	if c.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// say logs the notes on a configuration that the one before did not have; nil: it is the first.
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
	d.log = d.newLogger(stderr)
	d.say(ctx, c, nil)
	switch {
	case d.WriteConfigTo != "":
		return c.WriteFile(d.WriteConfigTo)
	case d.CleanUp:
		return cleanUp(ctx, c)
	case d.InitOnly:
		return d.initOnly(ctx, c)
	}
	err = d.serve(ctx)
	d.log.LogAttrs(ctx, slog.LevelInfo, "stopped; the rules stay")
	return err
}

// serve programs the node until ctx ends, or until an error that only a restart can repair.
func (d *daemon) serve(ctx context.Context) error {
	traffic, err := d.traffic(d.current.Load())
	if err != nil {
		return err
	}
	objects, describe, err := d.source(traffic.NodeName)
	if err != nil {
		return err
	}
	if d.events, err = d.newRecorder(traffic.NodeName); err != nil {
		return err
	}
	plane, err := d.openBackend(ctx, d.log)
	if err != nil {
		return err
	}
	defer func() { _ = plane.close() }()
	d.setUpNode(ctx, d.current.Load()) // now that the kernel has loaded connection tracking
	started := []slog.Attr{slog.String("version", version()), slog.String("node", traffic.NodeName), slog.String("backend", plane.name)}
	if plane.with != "" {
		started = append(started, slog.String("with", plane.with))
	}
	d.log.LogAttrs(ctx, slog.LevelInfo, "started", append(started, slog.String("reason", plane.why))...)
	d.announce(plane)

	sources := []source{objects, &hostaddr.Source{Log: d.log, Ignore: []string{ipvs.DefaultDevice, host.KubeProxyDevice}}}
	state := reconcile.NewState(model.NewBuilder(traffic), len(sources))
	plane.again = func() { state.Update(reconcile.Change{}, func(*model.Builder) {}) }
	observers := d.observe(plane, state)
	ports, err := d.openPorts(plane, observers, traffic.NodeName)
	if err != nil {
		return err
	}
	backend := config.Backend(plane.name)
	loop := &reconcile.Loop{
		State: state, Backend: plane, Log: d.log, Describe: describe, Observers: observers.all(),
		MinInterval:    d.current.Load().MinSyncPeriod(backend),
		ResyncInterval: resyncInterval(d.current.Load(), backend),
	}
	if plane.nft != nil {
		loop.Again = plane.nft.Again()
		defer watch(ctx, plane, loop)()
	}
	r := &running{daemon: d, plane: plane, observers: observers, ports: ports, loop: loop}
	tasks := append(observers.tasks(), quiet(d.events.Run), quiet(loop.Run), ports.metrics.Run, ports.healthz.Run, r.follow)
	for _, s := range sources {
		tasks = append(tasks, func(ctx context.Context) error { return s.Run(ctx, state) })
	}
	return runAll(ctx, tasks)
}

// traffic returns the configuration of the model for this host.
func (d *daemon) traffic(c *config.Config) (model.Config, error) {
	traffic := c.Model()
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

// source returns the source of objects, and a function that describes their problems.
func (d *daemon) source(nodeName string) (source, func(model.Problem) string, error) {
	c := d.current.Load()
	if len(c.From) > 0 {
		s := &manifest.Source{Paths: c.From, Log: d.log}
		return s, func(p model.Problem) string { return located(s.Locate(p), p) }, nil
	}
	client, err := informer.Connect(c.Client())
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the cluster (without one, use --from PATH): %w", err)
	}
	return &informer.Source{Client: client, NodeName: nodeName, Log: d.log}, nil, nil
}

// located prefixes a problem with its place in the files, if that is known.
func located(place string, p model.Problem) string {
	if place == "" {
		return p.Error()
	}
	return place + ": " + p.Error()
}

// task runs until its context ends, or fails.
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

// watch has the loop repair foreign changes to our tables at once, where the kernel does not
// prevent them: before Linux 6.9, and with tables that nft made. If the watch fails, the
// comparison once an hour remains.
func watch(ctx context.Context, backend *dataplane, loop *reconcile.Loop) (stop func()) {
	watched, err := backend.nft.Watch()
	if err != nil {
		loop.Log.LogAttrs(ctx, slog.LevelError, "cannot watch our tables; comparing them at each resync", slog.Any("err", err))
		return func() {}
	}
	backend.Backend, loop.ForeignChange = watched, watched.Changed()
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	wait.Go(func() {
		if err := watched.Run(ctx); err != nil {
			loop.Log.LogAttrs(ctx, slog.LevelError, "no longer watching our tables; comparing them at each resync", slog.Any("err", err))
		}
	})
	return func() {
		cancel()
		wait.Wait()
	}
}

func hasIPv6Loopback() bool {
	l, err := net.ListenUDP("udp6", &net.UDPAddr{IP: net.IPv6loopback})
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}
