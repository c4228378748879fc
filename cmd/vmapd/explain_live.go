package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/informer"
	"github.com/vmapd/vmapd/sync/kube"
	"github.com/vmapd/vmapd/sync/kube/client"
)

// fromCluster reads the objects that the daemon on that node reads, and also Services for other
// proxies: they explain some connections. Pods are read as far as the query names some. conn comes
// from --config; flags override it.
func (x *explainer) fromCluster(ctx context.Context, conn informer.Config, w *known, q names.Query, stderr io.Writer) error {
	if x.kubeconfig != "" || x.master != "" {
		conn.Kubeconfig, conn.Master = x.kubeconfig, x.master
	}
	server, err := informer.Connect(conn)
	if err != nil {
		return fmt.Errorf("connect to the cluster (without one, use --filename PATH): %w", err)
	}
	services, err := server.Services().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list Services: %w", err)
	}
	for i := range services.Items {
		w.Services = append(w.Services, names.NewService(&services.Items[i]))
	}
	slices, err := server.EndpointSlices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list EndpointSlices: %w", err)
	}
	for i := range slices.Items {
		w.Slices = append(w.Slices, names.NewSlice(&slices.Items[i]))
	}
	c := clusterReader{server, w}
	if err := c.nodes(ctx, q.NodeName, stderr); err != nil {
		return err
	}
	if err := c.serviceCIDRs(ctx, stderr); err != nil {
		return err
	}
	w.more = c.podsOf
	return c.named(ctx, q)
}

// clusterReader reads objects of a cluster into what is known.
type clusterReader struct {
	*client.Client
	w *known
}

// nodes reads the Nodes. Without permission, it reads the one that decides, and without that its
// addresses and its zone are not known.
func (c clusterReader) nodes(ctx context.Context, name string, stderr io.Writer) error {
	list, err := c.Nodes().List(ctx, metav1.ListOptions{})
	if err == nil {
		for i := range list.Items {
			c.w.Nodes = append(c.w.Nodes, kube.Node(&list.Items[i]))
		}
		return nil
	}
	if !apierrors.IsForbidden(err) {
		return fmt.Errorf("list Nodes: %w", err)
	}
	if name == "" {
		fmt.Fprintf(stderr, "list Nodes: %v; continuing without them\n", err)
		return nil
	}
	node, err := c.Node(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("--node-name: the cluster has no Node %q", name)
	case apierrors.IsForbidden(err):
		fmt.Fprintf(stderr, "get Node %s: %v; continuing without it\n", name, err)
		return nil
	case err != nil:
		return fmt.Errorf("get Node %s: %w", name, err)
	}
	c.w.Nodes = append(c.w.Nodes, kube.Node(node))
	return nil
}

// serviceCIDRs reads the ranges of cluster IPs, which clusters before 1.33 do not have (KEP-1880).
func (c clusterReader) serviceCIDRs(ctx context.Context, stderr io.Writer) error {
	list, err := c.ServiceCIDRs().List(ctx, metav1.ListOptions{})
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
		c.w.serviceCIDRs = append(c.w.serviceCIDRs, kube.ServiceCIDR(&list.Items[i]))
	}
	return nil
}

// named reads the pods and workloads that a query names.
func (c clusterReader) named(ctx context.Context, q names.Query) error {
	for _, ref := range []names.Ref{q.From, q.To} {
		namespace := ref.Candidates(q.Namespace, q.ClusterDomain)[0].Namespace
		var err error
		switch {
		case ref.Kind == names.Pod:
			err = c.pod(ctx, namespace, ref.Name)
		case ref.Kind.Workload():
			err = c.workload(ctx, ref.Kind, namespace, ref.Name)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", ref, err)
		}
	}
	return nil
}

// needs returns the error of a request that is forbidden, with the right that is missing.
func needs(what, namespace string, err error) error {
	in := "in namespace " + namespace
	if namespace == "" {
		in = "in all namespaces; in one, with -n NAMESPACE"
	}
	return fmt.Errorf("needs the right to list %s %s: %w", what, in, err)
}

// pod reads one pod. Without permission, the names in EndpointSlices have to do.
func (c clusterReader) pod(ctx context.Context, namespace, name string) error {
	list, err := c.Pods().In(namespace).List(ctx, client.Named(name))
	switch {
	case apierrors.IsForbidden(err):
		c.w.NoPods = needs("pods", namespace, err)
		return nil
	case err != nil:
		return fmt.Errorf("list pods: %w", err)
	}
	for i := range list.Items {
		c.w.Add(names.Directory{Pods: []names.PodObject{names.NewPod(&list.Items[i])}})
	}
	return nil
}

// workload reads a workload and its pods.
func (c clusterReader) workload(ctx context.Context, kind names.Kind, namespace, name string) error {
	resource := strings.ToLower(string(kind)) + "s"
	list, err := c.Workloads(ctx, resource, namespace, client.Named(name))
	switch {
	case apierrors.IsForbidden(err):
		return needs(resource, namespace, err)
	case err != nil:
		return fmt.Errorf("list %s: %w", resource, err)
	case len(list) == 0:
		return c.others(ctx, kind, resource, namespace)
	}
	for i := range list {
		w := names.NewWorkload(kind, &list[i])
		c.w.Add(names.Directory{Workloads: []names.WorkloadObject{w}})
		selector, err := metav1.LabelSelectorAsSelector(w.Selector)
		if err != nil {
			continue // Resolve says it
		}
		err = c.pods(ctx, w.Namespace, metav1.ListOptions{LabelSelector: selector.String()})
		if apierrors.IsForbidden(err) {
			return needs("pods", w.Namespace, err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// others reads all workloads of a kind, so that the error has the names that exist.
func (c clusterReader) others(ctx context.Context, kind names.Kind, resource, namespace string) error {
	list, err := c.Workloads(ctx, resource, namespace, metav1.ListOptions{})
	for i := range list {
		c.w.Add(names.Directory{Workloads: []names.WorkloadObject{names.NewWorkload(kind, &list[i])}})
	}
	return err
}

func (c clusterReader) pods(ctx context.Context, namespace string, o metav1.ListOptions) error {
	list, err := c.Pods().In(namespace).List(ctx, o)
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	for i := range list.Items {
		c.w.Add(names.Directory{Pods: []names.PodObject{names.NewPod(&list.Items[i])}})
	}
	return nil
}

// few are as many pods as tell the ports of all.
const few = 20

// podsOf reads some of a Service's pods or, if it has no endpoint in use, all of its namespace. Nothing
// is said about an error: pods only make an explanation better.
func (c clusterReader) podsOf(ctx context.Context, service model.NamespacedName, used bool) {
	s, ok := c.w.Service(service)
	if !ok || len(s.Selector) == 0 {
		return
	}
	if used {
		_ = c.pods(ctx, service.Namespace, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(s.Selector).String(), Limit: few})
		return
	}
	if err := c.pods(ctx, service.Namespace, metav1.ListOptions{}); err == nil {
		c.w.Add(names.Directory{Complete: map[string]bool{service.Namespace: true}})
	}
}
