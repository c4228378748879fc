package main

import (
	"context"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/explain"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/informer"
	"github.com/vmapd/vmapd/sync/kube"
	"github.com/vmapd/vmapd/sync/kube/client"
)

// fromCluster reads the objects that the daemon on that node reads, and also Services for other
// proxies: they explain some connections. conn comes from --config; flags override it.
func (x *explainer) fromCluster(ctx context.Context, conn informer.Config, c *model.Config, stderr io.Writer) (explain.Objects, error) {
	var out explain.Objects
	var err error
	if c.NodeName == "" {
		if c.NodeName, err = config.HostNodeName(); err != nil {
			return out, err
		}
	}
	if x.kubeconfig != "" || x.master != "" {
		conn.Kubeconfig, conn.Master = x.kubeconfig, x.master
	}
	server, err := informer.Connect(conn)
	if err != nil {
		return out, fmt.Errorf("connect to the cluster (without one, use --filename PATH): %w", err)
	}
	services, err := server.Services().List(ctx, metav1.ListOptions{})
	if err != nil {
		return out, fmt.Errorf("list Services: %w", err)
	}
	for i := range services.Items {
		out.Services = append(out.Services, kube.Service(&services.Items[i]))
	}
	slices, err := server.EndpointSlices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return out, fmt.Errorf("list EndpointSlices: %w", err)
	}
	for i := range slices.Items {
		out.EndpointSlices = append(out.EndpointSlices, kube.EndpointSlice(&slices.Items[i]))
	}
	if err := readNode(ctx, server, c.NodeName, &out, stderr); err != nil {
		return out, err
	}
	return out, readServiceCIDRs(ctx, server, &out, stderr)
}

// readNode reads the Node. Without permission, its addresses and its zone are not known.
func readNode(ctx context.Context, server *client.Client, name string, out *explain.Objects, stderr io.Writer) error {
	node, err := server.Node(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("--node-name: the cluster has no Node %q", name)
	case apierrors.IsForbidden(err):
		fmt.Fprintf(stderr, "get Node %s: %v; continuing without it\n", name, err)
		return nil
	case err != nil:
		return fmt.Errorf("get Node %s: %w", name, err)
	}
	out.Nodes = append(out.Nodes, kube.Node(node))
	return nil
}

// readServiceCIDRs reads the ranges of cluster IPs, which clusters before 1.33 do not
// have (KEP-1880).
func readServiceCIDRs(ctx context.Context, server *client.Client, out *explain.Objects, stderr io.Writer) error {
	list, err := server.ServiceCIDRs().List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsForbidden(err):
		fmt.Fprintf(stderr, "list ServiceCIDRs: %v; continuing without them\n", err)
		return nil
	case err != nil:
		return fmt.Errorf("list ServiceCIDRs: %w", err)
	}
	for i := range list.Items {
		out.ServiceCIDRs = append(out.ServiceCIDRs, kube.ServiceCIDR(&list.Items[i]))
	}
	return nil
}
