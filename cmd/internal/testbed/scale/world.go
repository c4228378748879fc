package main

import (
	"errors"
	"net/netip"

	"github.com/vmapd/vmapd/cmd/internal/testbed/bench"
	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/scale/cluster"
)

// world is a node without a daemon: a network namespace and an API server in it.
type world struct {
	*bench.Rig
	ns      *lab.Namespace
	cluster *cluster.Cluster
}

func newWorld(s cluster.Shape) (w *world, err error) {
	w = &world{cluster: cluster.New(s)}
	if w.ns, err = lab.NewNamespace("node"); err != nil {
		return nil, err
	}
	err = w.ns.AddAddr("lo", netip.PrefixFrom(cluster.NodeAddress, cluster.NodeAddress.BitLen()))
	if err != nil {
		return nil, errors.Join(err, w.ns.Close())
	}
	if w.Rig, err = bench.New(w.ns); err != nil {
		return nil, errors.Join(err, w.close())
	}
	for obj := range w.cluster.Objects() {
		w.API.Set(obj)
	}
	return w, nil
}

func (w *world) close() error { return errors.Join(w.Rig.Close(), w.ns.Close()) }

// write writes a changed slice to the API server.
func (w *world) write(e cluster.Event) {
	if e.Deleted {
		w.API.Delete(e.Slice)
	} else {
		w.API.Set(e.Slice)
	}
}
