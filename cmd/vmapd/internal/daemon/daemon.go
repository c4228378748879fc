// Package daemon programs a node, and answers for what it does.
//
//	inputs: a cluster or files, this host ──> reconcile.State ──> reconcile.Loop ──> dataplane: a backend
//	observers: metrics, health, events, connection tracking <──────────┘
//	answers, examiner: vmapd's commands at the socket; ports: probes and Prometheus
package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/metrics"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/kernel"
	"github.com/vmapd/vmapd/sync/devices"
	"github.com/vmapd/vmapd/sync/events"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// Options of a Daemon. All are required.
type Options struct {
	Config       *config.Config
	Log          *slog.Logger
	SetVerbosity func(int) // of Log
	Started      time.Time
}

// Daemon programs a node.
type Daemon struct {
	*base
	plane     *dataplane
	in        inputs
	observers *observers
	ports     *ports
	answers   *answers
}

// base is what all parts of a daemon know.
type base struct {
	config   *config.Config
	log      *slog.Logger
	nodeName string
	events   *events.Recorder
	refused  atomic.Pointer[string] // why the configuration's files are invalid now; nil: they are valid
}

func newBase(c *config.Config, log *slog.Logger) (*base, error) {
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
	return &base{config: c, log: log, nodeName: nodeName, events: recorder}, nil
}

// New opens what a daemon needs: the backend, the sources of objects, and its ports. Nothing is programmed yet.
func New(ctx context.Context, o Options) (*Daemon, error) {
	d, err := newBase(o.Config, o.Log)
	if err != nil {
		return nil, err
	}
	var m *metrics.Metrics // of the observers, which are made before the first batch
	plane, err := d.openBackend(ctx, func(c kernel.Commit) { m.Batch(c) })
	if err != nil {
		return nil, err
	}
	in, err := d.openInputs(d.traffic(config.Backend(plane.name)))
	if err != nil {
		return nil, errors.Join(err, plane.close())
	}
	var examined *examiner // is made before anybody asks
	about := d.observe(plane, in, o.Started, func(age time.Duration) []report.Line { return examined.report(age).Lines })
	m = about.metrics
	ports, err := d.openPorts(plane, about, o)
	if err != nil {
		return nil, errors.Join(err, plane.close())
	}
	examined = &examiner{base: d, started: o.Started, plane: plane, observers: about, in: in, ports: ports}
	asked := &answers{base: d, started: o.Started, plane: plane, observers: about, in: in, examiner: examined}
	return &Daemon{base: d, plane: plane, in: in, observers: about, ports: ports, answers: asked}, nil
}

// Run programs the node until ctx ends, or a part fails so that a new start is needed.
func (d *Daemon) Run(ctx context.Context) error {
	defer func() { _ = d.plane.close() }()
	d.setUpNode(ctx) // connection tracking is loaded, by the backend
	d.announce(ctx, d.plane)
	loop := d.newLoop(d.plane, d.in, d.observers)
	signs := d.ports.signs(d.plane.signs, d.config.MetricsBindAddress)
	tasks := slices.Concat(d.observers.tasks(), d.in.tasks(), d.plane.tasks, []task{
		quiet(d.events.Run), quiet(loop.Run), d.ports.metrics.Run, d.ports.healthz.Run, quiet(d.answers.serve),
		func(ctx context.Context) error { return d.follow(ctx, d.observers.metrics) },
		quiet(func(ctx context.Context) { d.plane.sweep.Watch(ctx, func() { signs(ctx) }) }),
		quiet(func(ctx context.Context) { d.in.repeat(ctx, d.plane.sweep.Again()) }),
	})
	if d.plane.nft != nil {
		tasks = append(tasks, quiet(d.plane.nft.RunPurges))
	}
	if d.plane.nft != nil && d.config.FastPath.On() {
		tasks = append(tasks, d.followDevices(d.plane, d.in.state))
	}
	return runAll(ctx, tasks)
}

// newLoop returns the loop that applies the state of the inputs to the dataplane, also when another program has
// changed that.
func (d *base) newLoop(p *dataplane, in inputs, o *observers) *reconcile.Loop {
	backend := config.Backend(p.name)
	told := o.all()
	if t := newStartThrift(); t != nil {
		told = append(told, t)
	}
	return &reconcile.Loop{
		State: in.state, Backend: p, Log: d.log, Describe: in.describe, Observers: told, ForeignChange: p.foreign,
		MinInterval:    d.config.MinSyncPeriod(backend),
		ResyncInterval: resyncInterval(d.config, backend),
	}
}

// traffic returns the settings that decide about traffic, adapted to this host and a backend.
func (d *base) traffic(backend config.Backend) model.Config {
	traffic := d.config.Model()
	traffic.Budgets, traffic.NodeName = config.Budgets(backend), d.nodeName
	if traffic.NodePortAddresses.Localhost[model.IPv6] && !hasIPv6Loopback() {
		traffic.NodePortAddresses.Localhost[model.IPv6] = false
		d.log.LogAttrs(context.Background(), slog.LevelInfo, "node ports on localhost: IPv4 only; this host has no ::1")
	}
	return traffic
}

// followDevices returns a task that keeps the devices of the fast path.
func (d *base) followDevices(p *dataplane, state *reconcile.State) task {
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
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range tasks {
		group.Go(func() error { return run(ctx) })
	}
	return group.Wait()
}
