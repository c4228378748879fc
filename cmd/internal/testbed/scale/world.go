package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

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
	listeners  []net.Listener
}

// history is the number of events that the API server keeps: some seconds of churn. More would
// fill this process's memory in a long run.
const history = 8192

func newWorld(ctx context.Context, s cluster.Shape) (w *world, err error) {
	w = &world{}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.ns, err = lab.NewNamespace("node"); err != nil {
		return w, err
	}
	for _, a := range cluster.NodeAddresses {
		if err := w.ns.AddAddr("lo", netip.PrefixFrom(a, a.BitLen())); err != nil {
			return w, err
		}
	}
	if w.folder, err = os.MkdirTemp("", "vmapd-scale-"); err != nil {
		return w, fmt.Errorf("make a folder for the kubeconfig: %w", err)
	}
	err = w.ns.Do(func() error {
		w.server, err = apitest.NewServer(apitest.Options{History: history})
		return err
	})
	if err != nil {
		return w, err
	}
	if w.kubeconfig, err = w.server.Kubeconfig(w.folder, apitest.Form{}); err != nil {
		return w, err
	}
	w.cluster = cluster.New(s, 1)
	for obj := range w.cluster.Objects() {
		w.server.Set(obj)
	}
	return w, w.encode(ctx)
}

func (w *world) close() error {
	if w.server != nil {
		w.server.Close()
	}
	var errs []error
	for _, l := range w.listeners {
		errs = append(errs, l.Close())
	}
	if w.folder != "" {
		errs = append(errs, os.RemoveAll(w.folder))
	}
	if w.ns != nil {
		errs = append(errs, w.ns.Close())
	}
	return errors.Join(errs...)
}

// encode has the server encode all objects, which it does once, at the first watch. A real server
// has already done that for another node.
func (w *world) encode(ctx context.Context) error {
	conf := w.server.Config()
	conf.Dial = w.dial
	client, err := rest.HTTPClientFor(conf)
	if err != nil {
		return fmt.Errorf("make a client of the API server: %w", err)
	}
	defer client.CloseIdleConnections()
	for _, path := range []string{"/api/v1/services", "/apis/" + discoveryv1.SchemeGroupVersion.String() + "/endpointslices"} {
		const query = "?watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1"
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.server.URL()+path+query, nil)
		if err != nil {
			return err
		}
		r.Header.Set("Accept", runtime.ContentTypeProtobuf)
		answer, err := client.Do(r)
		if err != nil {
			return fmt.Errorf("read the API server once: %w", err)
		}
		_, err = io.Copy(io.Discard, answer.Body)
		if err := errors.Join(err, answer.Body.Close()); err != nil {
			return fmt.Errorf("read the API server once: %w", err)
		}
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("read the API server once: %s", answer.Status)
		}
	}
	return nil
}

// dial connects to a port in the namespace.
func (w *world) dial(ctx context.Context, network, addr string) (conn net.Conn, err error) {
	doErr := w.ns.Do(func() error {
		conn, err = new(net.Dialer).DialContext(ctx, network, addr)
		return err
	})
	return conn, doErr
}

// write writes changed objects to the API server.
func (w *world) write(e cluster.Event) {
	if e.Deleted {
		w.server.Delete(e.Object)
	} else {
		w.server.Set(e.Object)
	}
}
