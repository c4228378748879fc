// Package daemon programs a node, and answers for what it does.
//
//	inputs: a cluster or files, this host ──> reconcile.State ──> reconcile.Loop ──> dataplane: a backend
//	observers: metrics, health, events, connection tracking <──────────┘
//	answers, doctor's reports: vmapd's commands at the socket; ports: probes and Prometheus
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/devices"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/doctor"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/conntrack"
	"github.com/vmapd/vmapd/sync/events"
	"github.com/vmapd/vmapd/sync/informer"
	"github.com/vmapd/vmapd/sync/kube/client"
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
	*observers
	dataplane *dataplane
	in        inputs
	ports     *ports
	started   time.Time
	tracked   conntrack.Table
	places    places

	examining sync.Mutex // held during an examination
	read      reading    // of the last one
	examined  atomic.Pointer[doctor.Report]
}

// base is what all parts of a daemon know.
type base struct {
	config   *config.Config
	log      *slog.Logger
	nodeName string
	client   *client.Client // nil with files
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
	b := &base{config: c, log: log, nodeName: nodeName}
	o := events.Options{NodeName: nodeName, Log: log}
	if len(c.From) == 0 {
		var err error
		if b.client, err = informer.Connect(c.Client()); err == nil {
			o.Client, err = b.client.Apart() // so that events do not delay lists
		}
		if err != nil {
			return nil, fmt.Errorf("connect to the cluster (without one, use --from PATH): %w", err)
		}
	}
	b.events = events.New(o)
	return b, nil
}

// New opens what a daemon needs: the backend, the sources of objects, and its ports. Nothing is programmed yet.
func New(o Options) (*Daemon, error) {
	b, err := newBase(o.Config, o.Log)
	if err != nil {
		return nil, err
	}
	var d *Daemon // is made before anybody asks
	backend, err := b.openBackend()
	if err != nil {
		return nil, err
	}
	in, err := b.openInputs(b.traffic(config.Backend(backend.name)))
	if err != nil {
		return nil, errors.Join(err, backend.close())
	}
	examined := func() []report.Line { return d.report(readEvery).Lines }
	about := b.observe(backend, in, o.Started, examined)
	ports := b.newPorts(backend, about, o)
	d = &Daemon{base: b, observers: about, dataplane: backend, in: in, ports: ports, started: o.Started}
	return d, nil
}

// Run programs the node until ctx ends, or a part fails so that a new start is needed.
func (d *Daemon) Run(ctx context.Context) error {
	defer func() { _ = d.dataplane.close() }()
	d.setUpNode() // connection tracking is loaded, by the backend
	d.announce(ctx)
	api := &socket.Server{Path: d.config.Socket, Routes: d.routes(), Log: d.log}
	tasks := slices.Concat(d.beside, d.in.tasks, d.dataplane.tasks, []task{
		noError(d.events.Run), noError(d.newLoop().Run), d.ports.metrics.Run, d.ports.healthz.Run, noError(api.Run),
		d.follow, noError(d.watchOthers),
	})
	if d.dataplane.nft != nil {
		tasks = append(tasks, noError(d.dataplane.nft.RunPurges))
		if d.config.FastPath.On() {
			tasks = append(tasks, noError(d.followDevices))
		}
	}
	return runAll(ctx, tasks)
}

// LeavesRules reports whether rules stay in the kernel when the daemon ends.
func (d *Daemon) LeavesRules() bool {
	return d.view.View().Snapshot != nil && d.dataplane.userspace == nil
}

// newLoop returns the loop that applies the state of the inputs to the dataplane, also when another program has
// changed that.
func (d *Daemon) newLoop() *reconcile.Loop {
	backend, observers := config.Backend(d.dataplane.name), d.all
	if t := newStartThrift(); t != nil {
		observers = append(observers, t)
	}
	return &reconcile.Loop{
		State: d.in.state, Backend: d.dataplane, Log: d.log, Describe: d.in.describe, Observers: observers,
		ForeignChange:  d.dataplane.foreign,
		MinInterval:    d.config.MinSyncPeriod(),
		ResyncInterval: resyncInterval(d.config, backend),
	}
}

// followDevices keeps the devices of the fast path until ctx ends.
func (d *Daemon) followDevices(ctx context.Context) {
	source := devices.Source{Log: d.log, Choice: d.config.FastPath, Changed: func(names []string) {
		d.dataplane.nft.SetDevices(names)
		d.in.again()
	}}
	source.Run(ctx)
}

// traffic returns the settings that decide about traffic, adapted to this host and a backend.
func (d *base) traffic(backend config.Backend) model.Config {
	traffic := d.config.Model()
	traffic.Budgets, traffic.NodeName = config.Budgets(backend), d.nodeName
	if traffic.NodePortAddresses.Localhost[model.IPv6] && !hasIPv6Loopback() {
		traffic.NodePortAddresses.Localhost[model.IPv6] = false
		d.log.Info("node ports on localhost: IPv4 only; this host has no ::1")
	}
	return traffic
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

// noError makes a task of a function that can't fail.
func noError(run func(context.Context)) task {
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
