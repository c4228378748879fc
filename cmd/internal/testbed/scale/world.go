package main

import (
	"errors"
	"net/netip"

	"github.com/vmapd/vmapd/cmd/internal/testbed/bench"
	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
)

// world is a node without a daemon: a network namespace and an API server in it.
type world struct {
	*bench.Rig
	ns      *lab.Namespace
	objects *objects
}

func newWorld(s shape) (w *world, err error) {
	w = &world{objects: newObjects(s)}
	if w.ns, err = lab.NewNamespace("node"); err != nil {
		return nil, err
	}
	if err := w.ns.AddAddr("lo", netip.MustParsePrefix(nodeAddress+"/32")); err != nil {
		return nil, errors.Join(err, w.ns.Close())
	}
	if w.Rig, err = bench.New(w.ns); err != nil {
		return nil, errors.Join(err, w.close())
	}
	for obj := range w.objects.all() {
		w.API.Set(obj)
	}
	return w, nil
}

func (w *world) close() error { return errors.Join(w.Rig.Close(), w.ns.Close()) }
