// Package daemon programs a node, and answers for what it does.
//
//	sources: a cluster or files, this host ──> reconcile.State ──> reconcile.Loop ──> dataplane: a backend
//	observers: metrics, health, events, connection tracking, leftovers <──┘
//	answers, doctor's reports: vmapd's commands at the socket; two ports: probes and Prometheus
package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/buildinfo"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/doctor"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/leftovers"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/metrics"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/metricsport"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/nodesetup"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/status"
	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/legacy/userspace"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/conntrack"
	"github.com/vmapd/vmapd/sync/events"
	"github.com/vmapd/vmapd/sync/health"
	"github.com/vmapd/vmapd/sync/hostaddr"
	"github.com/vmapd/vmapd/sync/httpserver"
	"github.com/vmapd/vmapd/sync/informer"
	"github.com/vmapd/vmapd/sync/kube/client"
	"github.com/vmapd/vmapd/sync/manifest"
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
	Options
	nodeName  string
	client    *client.Client // nil with files
	events    *events.Recorder
	dataplane *dataplane
	sweeper   *leftovers.Sweeper

	state    *reconcile.State
	cluster  *informer.Source           // nil with files
	describe func(model.Problem) string // nil, or adds the place to a problem

	metrics   *metrics.Metrics
	tracker   *health.Tracker
	view      status.Recorder
	observers []reconcile.Observer          // these, and more
	tasks     []func(context.Context) error // what runs beside the loop

	healthzPort, metricsPort *httpserver.Server

	tracked   conntrack.Table
	places    *cache.LRUExpireCache // of slices, by Service
	refused   atomic.Pointer[error] // why the configuration's files are invalid now; nil: they are valid
	examining sync.Mutex            // held during an examination
	read      reading               // of the last one
	examined  atomic.Pointer[doctor.Report]
	asked     atomic.Bool // for a report, since the last examination
}

// run adds tasks that can't fail.
func (d *Daemon) run(tasks ...func(context.Context)) {
	for _, run := range tasks {
		d.tasks = append(d.tasks, func(ctx context.Context) error {
			run(ctx)
			return nil
		})
	}
}

// New opens what a daemon needs: the backend, the sources of objects, and its ports. Nothing is programmed yet.
func New(o Options) (*Daemon, error) {
	d := &Daemon{Options: o, places: cache.NewLRUExpireCache(mostPlaces)}
	if err := d.connect(); err != nil {
		return nil, err
	}
	var err error
	if d.dataplane, err = d.openBackend(); err != nil {
		return nil, err
	}
	if err := d.openSources(); err != nil {
		return nil, err
	}
	d.observe()
	d.openPorts()
	return d, nil
}

func (d *Daemon) connect() (err error) {
	if d.nodeName = d.Config.Model().NodeName; d.nodeName == "" {
		if d.nodeName, err = config.HostNodeName(); err != nil {
			return err
		}
	}
	o := events.Options{NodeName: d.nodeName, Log: d.Log}
	if len(d.Config.From) == 0 {
		if d.client, err = informer.Connect(d.Config.Client()); err == nil {
			o.Client, err = d.client.Apart() // so that events do not delay lists
		}
		if err != nil {
			return fmt.Errorf("connect to the cluster (without one, use --from PATH): %w", err)
		}
	}
	d.events = events.New(o)
	d.run(d.events.Run)
	return nil
}

// openSources opens a cluster or files, and the addresses of this host that are no Service's.
func (d *Daemon) openSources() error {
	traffic := d.traffic()
	d.state = reconcile.NewState(model.NewBuilder(traffic), 2) // of two sources
	d.events.ServiceUID = d.state.ServiceUID
	if len(d.Config.From) > 0 {
		s, err := manifest.Open(d.Config.From, d.Log)
		if err != nil {
			return err
		}
		d.run(func(ctx context.Context) { s.Run(ctx, d.state) })
		d.describe = s.Located
	} else {
		d.cluster = &informer.Source{
			Client: d.client, NodeName: traffic.NodeName, Log: d.Log, Plain: d.Config.PlainLists(),
		}
		d.tasks = append(d.tasks, func(ctx context.Context) error { return d.cluster.Run(ctx, d.state) })
	}
	ignored := []string{ipvs.Device, host.KubeProxyDevice, userspace.DeviceName}
	addresses := &hostaddr.Source{Log: d.Log, Ignore: ignored}
	d.run(func(ctx context.Context) { addresses.Run(ctx, d.state) })
	return nil
}

// traffic returns the settings that decide about traffic, adapted to this host and the backend.
func (d *Daemon) traffic() model.Config {
	traffic := d.Config.Model()
	traffic.Budgets, traffic.NodeName = config.Budgets(config.Backend(d.dataplane.name)), d.nodeName
	off, missing := nodesetup.Sysctl("net/ipv6/conf/lo/disable_ipv6")
	if traffic.NodePortAddresses.Localhost[model.IPv6] && (missing != nil || off == "1") {
		traffic.NodePortAddresses.Localhost[model.IPv6] = false
		d.Log.Info("node ports on localhost: IPv4 only; this host has no ::1")
	}
	return traffic
}

// observe makes the observers of the loop: they serve metrics and probes, send events, delete stale flows from
// connection tracking, listen for node ports on loopback, and remove leftovers.
func (d *Daemon) observe() {
	p := d.dataplane
	localhost := p.userspace // it serves loopback, too
	if localhost == nil {
		// It follows failed rounds, too: its listeners need no rules, so a family that can't be programmed is no reason
		// to send clients to removed endpoints or to refuse those of a new Service.
		localhost = userspace.New(userspace.Options{Loopback: true, Log: d.Log, Failed: d.listenerFailed})
		d.observers = append(d.observers, observer(func(r reconcile.Round) {
			_ = localhost.Apply(context.Background(), r.Snapshot) // an error is about addresses, and it sets none
		}))
	}
	d.metrics = d.newMetrics(localhost)
	d.tracker = d.newTracker()
	services := health.NewServices(health.ServicesOptions{
		Healthy: d.tracker.Healthy, Restricted: !d.Config.Model().NodePortAddresses.All, Log: d.Log,
		Failed: func(service model.NamespacedName, err error) {
			d.events.Service(service, events.ReasonServiceHealthFailed, err.Error())
		},
	})
	problems := &events.Problems{Recorder: d.events}
	d.sweeper = d.newSweeper()
	d.observers = append(d.observers, d.tracker, d.metrics, services, &d.view, problems, newStartThrift())
	d.run(services.Run, problems.Run, localhost.Run, d.notice)
	if p.userspace == nil && p.ipvs == nil { // which has a connection table of its own
		flows := conntrack.New(d.Log, new(conntrack.Table), d.metrics.Conntrack)
		d.observers = append(d.observers, flows)
		d.run(flows.Run)
	}
	if doctor.HasNetAdmin() { // without, nothing can be looked for or removed
		d.observers = append(d.observers, d.sweeper)
	}
}

// observer follows the rounds.
type observer func(reconcile.Round)

// Done implements [reconcile.Observer].
func (o observer) Done(r reconcile.Round) { o(r) }

// openPorts makes the two HTTP ports, on which nothing listens yet.
func (d *Daemon) openPorts() {
	c := d.Config
	server := func(name, address string, handler http.Handler, reason string) *httpserver.Server {
		s := &httpserver.Server{
			Name: name, Address: address, Handler: handler, HardFail: c.KubeProxy.BindAddressHardFail, Log: d.Log,
			Failed: func(err error) { d.events.Node(reason, err.Error()) }, Listen: new(net.ListenConfig).Listen,
		}
		d.tasks = append(d.tasks, s.Run)
		return s
	}
	pages := metricsport.Pages{
		Metrics: d.metrics.Handler, SLIs: d.metrics.SLIs, ProxyMode: d.dataplane.name,
		KubeProxy: c.KubeProxy, Own: c.Own, Flags: c.FlagValues(),
		Started: d.Started, Version: buildinfo.Current().String(),
		Profiling: c.KubeProxy.EnableProfiling, SetVerbosity: d.SetVerbosity,
	}
	d.healthzPort = server("healthz", c.KubeProxy.HealthzBindAddress, d.tracker.Handler(), events.ReasonHealthzFailed)
	d.metricsPort = server("metrics", c.KubeProxy.MetricsBindAddress, pages.Handler(), events.ReasonMetricsFailed)
}

// Run programs the node until ctx ends, or a part fails so that a new start is needed.
func (d *Daemon) Run(ctx context.Context) error {
	d.setUpNode() // connection tracking is loaded, by the backend
	d.announce(ctx)
	p := d.dataplane
	loop := &reconcile.Loop{
		State: d.state, Backend: p.backend, Log: d.Log, Describe: d.describe, Observers: d.observers,
		ForeignChange: p.foreign, MinInterval: d.Config.MinSyncPeriod,
	}
	if p.userspace != nil || p.ipvs != nil {
		loop.ResyncInterval = d.Config.SyncPeriod // a comparison costs little, or nothing else notices a change
	}
	d.run(loop.Run)
	if p.watch != nil {
		d.run(p.watch)
	}
	if p.nft != nil && d.Config.FastPath.On() {
		d.run(d.followDevices)
	}
	err := runAll(ctx, append(d.tasks, socket.NewServer(*d.Config.Own.Socket, d.routes(), d.Log).Run, d.follow))
	if err == nil {
		d.Log.Info("stopped", slog.Bool("rules_stay", p.userspace == nil && d.view.View().Snapshot != nil))
	}
	return err
}

// runAll runs tasks until ctx ends or one of them fails, and waits for all.
func runAll(ctx context.Context, tasks []func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range tasks {
		group.Go(func() error { return run(ctx) })
	}
	return group.Wait()
}
