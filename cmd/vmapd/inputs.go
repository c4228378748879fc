package main

import (
	"context"
	"fmt"

	"github.com/vmapd/vmapd/legacy/host"
	"github.com/vmapd/vmapd/legacy/ipvs"
	"github.com/vmapd/vmapd/legacy/userspace"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/hostaddr"
	"github.com/vmapd/vmapd/sync/informer"
	"github.com/vmapd/vmapd/sync/manifest"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// source fills a state with objects.
type source interface {
	Run(ctx context.Context, state *reconcile.State) error
}

// inputs are the sources, and the state that they fill.
type inputs struct {
	state    *reconcile.State
	sources  []source
	describe func(model.Problem) string // nil, or adds the place to a problem
	cluster  *informer.Source           // nil with files
	host     *hostaddr.Source
}

// openInputs returns a cluster or files, and the addresses of this host.
func (d *daemon) openInputs(traffic model.Config) (in inputs, err error) {
	c := d.current.Load()
	if len(c.From) > 0 {
		s := &manifest.Source{Paths: c.From, Log: d.log}
		if err := s.Open(); err != nil {
			return in, err
		}
		in.sources = append(in.sources, s)
		in.describe = func(p model.Problem) string { return located(s.Locate(p), p) }
	} else {
		client, err := informer.Connect(c.Client())
		if err != nil {
			return in, fmt.Errorf("connect to the cluster (without one, use --from PATH): %w", err)
		}
		in.cluster = &informer.Source{
			Client: client, NodeName: traffic.NodeName, Log: d.log, Plain: func() bool { return d.current.Load().PlainLists() },
		}
		in.sources = append(in.sources, in.cluster)
	}
	in.host = &hostaddr.Source{Log: d.log, Ignore: []string{ipvs.DefaultDevice, host.KubeProxyDevice, userspace.DeviceName}}
	in.sources = append(in.sources, in.host)
	in.state = reconcile.NewState(model.NewBuilder(traffic), len(in.sources))
	return in, nil
}

func (in inputs) tasks() (list []task) {
	for _, s := range in.sources {
		list = append(list, func(ctx context.Context) error { return s.Run(ctx, in.state) })
	}
	return list
}

// located puts the place before a problem, if it is known.
func located(place string, p model.Problem) string {
	if place == "" {
		return p.Error()
	}
	return place + ": " + p.Error()
}
