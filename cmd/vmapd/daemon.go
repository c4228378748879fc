package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/nft/localhost"
	"github.com/vmapd/vmapd/sync/hostaddr"
	"github.com/vmapd/vmapd/sync/informer"
	"github.com/vmapd/vmapd/sync/manifest"
	"github.com/vmapd/vmapd/sync/reconcile"
)

const defaultSyncPeriod = 30 * time.Second // as kube-proxy

// daemon is what "vmapd" without a subcommand does.
type daemon struct {
	trafficFlags
	from           []string
	kubeconfig     string
	master         string
	minSync        time.Duration
	syncPeriod     time.Duration
	ipvsSyncPeriod time.Duration
	metrics        string // address
	verbosity      int
}

func (d *daemon) addFlags(f *pflag.FlagSet) {
	d.trafficFlags.addFlags(f)
	f.StringArrayVar(&d.from, "from", nil, "files or folders of manifests in place of a cluster; followed as they change (repeatable)")
	f.StringVar(&d.kubeconfig, "kubeconfig", "", "file with the address and credentials of the cluster (default: those of the pod)")
	f.StringVar(&d.master, "master", "", "address of the API server, in place of the kubeconfig's")
	f.DurationVar(&d.minSync, "min-sync-period", 0, "least time between two changes to the rules")
	f.DurationVar(&d.syncPeriod, "iptables-sync-period", defaultSyncPeriod, "how often the rules of iptables are compared with what should be there")
	f.DurationVar(&d.ipvsSyncPeriod, "ipvs-sync-period", defaultSyncPeriod, "how often IPVS and its companions are compared with what should be there")
	f.StringVar(&d.metrics, "metrics-bind-address", defaultMetricsAddress, "where to serve metrics; empty for nowhere")
	f.IntVarP(&d.verbosity, "v", "v", 0, "how much to log; from 4 on also each batch")
}

func (d *daemon) logger(w io.Writer) *slog.Logger {
	level := slog.LevelInfo
	const debugFrom = 4 // as kube-proxy: what developers want to know
	if d.verbosity >= debugFrom {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// source is where objects come from.
type source interface {
	Run(ctx context.Context, state *reconcile.State) error
}

func (d *daemon) run(ctx context.Context, stderr io.Writer) error {
	log := d.logger(stderr)
	config, err := d.config()
	if err != nil {
		return err
	}
	if config.NodeName == "" {
		if config.NodeName, err = hostNodeName(); err != nil {
			return err
		}
	}
	for _, f := range config.NodePortAddresses.Surprises() {
		log.LogAttrs(ctx, slog.LevelWarn, "--nodeport-addresses has no range of this family: its node ports answer on all addresses",
			slog.String("family", f.String()))
	}
	if config.NodePortAddresses.Localhost[model.IPv6] && !hasIPv6Loopback() {
		config.NodePortAddresses.Localhost[model.IPv6] = false
		log.LogAttrs(ctx, slog.LevelInfo, "node ports on localhost: IPv4 only, as this host has no ::1")
	}
	objects, describe, err := d.source(config.NodeName, log)
	if err != nil {
		return err
	}
	backend, err := d.openBackend(ctx, log)
	if err != nil {
		return err
	}
	defer func() { _ = backend.close() }()
	log.LogAttrs(ctx, slog.LevelInfo, "started", slog.String("version", version()),
		slog.String("node", config.NodeName), slog.String("backend", backend.name), slog.String("with", backend.with), slog.String("because", backend.why))

	serveMetrics(ctx, d.metrics, newRegistry(backend), log)

	sources := []source{objects, &hostaddr.Source{Log: log, Ignore: []string{ipvs.DefaultDevice, host.KubeProxyDevice}}}
	loop := &reconcile.Loop{
		State: reconcile.NewState(model.NewBuilder(config), len(sources)), Backend: backend, Log: log,
		MinInterval: d.minSync, ResyncInterval: backend.resync, Describe: describe,
	}
	if backend.nft != nil {
		defer watch(ctx, backend, loop)()
	}
	if config.NodePortAddresses.Localhost != [len(model.Families)]bool{} {
		forwarder := localhost.New(localhost.Options{Log: log})
		defer func() { _ = forwarder.Close() }()
		loop.Backend = withForwarder{loop.Backend, forwarder}
	}
	err = runAll(ctx, loop, sources)
	log.LogAttrs(ctx, slog.LevelInfo, "stopped; the rules stay")
	return err
}

// source returns where objects come from, and how their problems are described.
func (d *daemon) source(nodeName string, log *slog.Logger) (source, func(model.Problem) string, error) {
	if len(d.from) > 0 {
		if d.kubeconfig != "" || d.master != "" {
			return nil, nil, errors.New("--from reads files, --kubeconfig and --master a cluster: give one of them")
		}
		s := &manifest.Source{Paths: d.from, Log: log}
		return s, func(p model.Problem) string { return located(s.Locate(p), p) }, nil
	}
	client, err := informer.Connect(informer.Config{Kubeconfig: d.kubeconfig, Master: d.master})
	if err != nil {
		return nil, nil, fmt.Errorf("connect to the cluster (without one, use --from PATH): %w", err)
	}
	return &informer.Source{Client: client, NodeName: nodeName, Log: log}, nil, nil
}

// located puts the place before a problem, if it is known.
func located(place string, p model.Problem) string {
	if place == "" {
		return p.Error()
	}
	return place + ": " + p.Error()
}

// runAll runs the loop and its sources until ctx ends or a source fails.
func runAll(ctx context.Context, loop *reconcile.Loop, sources []source) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wait sync.WaitGroup
	errs := make([]error, len(sources))
	for i, s := range sources {
		wait.Go(func() {
			if errs[i] = s.Run(ctx, loop.State); errs[i] != nil {
				cancel()
			}
		})
	}
	loop.Run(ctx)
	wait.Wait()
	return errors.Join(errs...)
}

// watch lets the loop repair at once what others do to our tables, where the kernel does
// not keep them from it: before Linux 6.9, and with tables that nft made. If it fails,
// what remains is the comparison once an hour.
func watch(ctx context.Context, backend *dataplane, loop *reconcile.Loop) (stop func()) {
	watched, err := backend.nft.Watch()
	if err != nil {
		loop.Log.LogAttrs(ctx, slog.LevelError, "what others do to our tables is not noticed", slog.Any("err", err))
		return func() {}
	}
	backend.Backend, loop.Disturbed = watched, watched.Changed()
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	wait.Go(func() {
		if err := watched.Run(ctx); err != nil {
			loop.Log.LogAttrs(ctx, slog.LevelError, "what others do to our tables is no longer noticed", slog.Any("err", err))
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

// withForwarder is a Backend that serves node ports on loopback besides.
type withForwarder struct {
	reconcile.Backend
	forwarder *localhost.Forwarder
}

func (b withForwarder) Apply(ctx context.Context, s *model.Snapshot) error {
	return errors.Join(b.Backend.Apply(ctx, s), b.forwarder.Apply(ctx, s))
}
