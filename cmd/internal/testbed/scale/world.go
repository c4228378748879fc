package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/vmapd/vmapd/cmd/internal/testbed/lab"
	"github.com/vmapd/vmapd/cmd/internal/testbed/scale/cluster"
	"github.com/vmapd/vmapd/sync/informer/apitest"
)

// world is a node without a daemon: a network namespace and an API server in it.
type world struct {
	ns         *lab.Namespace
	server     *apitest.Server
	folder     string
	kubeconfig string
	cluster    *cluster.Cluster
}

func newWorld(s cluster.Shape) (w *world, err error) {
	w = &world{}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.ns, err = lab.NewNamespace("node"); err != nil {
		return w, err
	}
	if err := w.ns.AddAddr("lo", netip.PrefixFrom(cluster.NodeAddress, cluster.NodeAddress.BitLen())); err != nil {
		return w, err
	}
	if w.folder, err = os.MkdirTemp("", "vmapd-scale-"); err != nil {
		return w, fmt.Errorf("make a folder for the kubeconfig: %w", err)
	}
	err = w.ns.Do(func() error {
		w.server, err = apitest.NewServer(apitest.Options{})
		return err
	})
	if err != nil {
		return w, err
	}
	if w.kubeconfig, err = w.server.Kubeconfig(w.folder); err != nil {
		return w, err
	}
	w.cluster = cluster.New(s)
	for obj := range w.cluster.Objects() {
		w.server.Set(obj)
	}
	return w, nil
}

func (w *world) close() error {
	if w.server != nil {
		w.server.Close()
	}
	var errs []error
	if w.folder != "" {
		errs = append(errs, os.RemoveAll(w.folder))
	}
	if w.ns != nil {
		errs = append(errs, w.ns.Close())
	}
	return errors.Join(errs...)
}

// write writes a changed slice to the API server.
func (w *world) write(e cluster.Event) {
	if e.Deleted {
		w.server.Delete(e.Slice)
	} else {
		w.server.Set(e.Slice)
	}
}
