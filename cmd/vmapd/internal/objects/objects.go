// Package objects reads the objects that explain and preflight are about: from files, or from a cluster.
package objects

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/pager"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/sync/kube"
	"github.com/vmapd/vmapd/sync/kube/client"
	"github.com/vmapd/vmapd/sync/manifest"
)

// Of returns the objects of files.
func Of(o *manifest.Objects) *names.Directory {
	d := &names.Directory{Pods: manifest.Of[*corev1.Pod](o)}
	for _, n := range manifest.Of[*corev1.Node](o) {
		d.Nodes = append(d.Nodes, kube.Node(n))
	}
	for _, c := range manifest.Of[*networkingv1.ServiceCIDR](o) {
		d.ServiceCIDRs = append(d.ServiceCIDRs, kube.ServiceCIDR(c))
	}
	for _, s := range manifest.Of[*corev1.Service](o) {
		d.Services = append(d.Services, names.ServiceObject{Service: kube.Service(s), Spec: s.Spec})
	}
	for _, s := range manifest.Of[*discoveryv1.EndpointSlice](o) {
		d.Slices = append(d.Slices, names.NewSlice(s))
	}
	return d
}

// Read reads the objects of a cluster that a query is about: its Services, the slices in their namespaces, those with
// its ends, and its pods; of Nodes those with the given names, or all. A query of nil is about all objects but pods.
// Nodes, ServiceCIDRs and pods are missing without a permission; refused has the errors about the first two. With
// noPods, the reason for it, pods are not asked for.
func Read(
	ctx context.Context, c *client.Client, q *names.Query, noPods error, nodes ...string,
) (d *names.Directory, refused []error, err error) {
	d = &names.Directory{NoPods: noPods}
	named := []metav1.ListOptions{{}}
	for i, name := range nodes { // with the right to list, and not that to get one
		named = append(named[:i], client.Named(name))
	}
	var ofNodes error
	for _, o := range named {
		add := func(n *corev1.Node) { d.Nodes = append(d.Nodes, kube.Node(n)) }
		ofNodes = errors.Join(ofNodes, each(ctx, c.Nodes(), o, add))
	}
	ofCIDRs := each(ctx, c.ServiceCIDRs(), metav1.ListOptions{}, func(r *networkingv1.ServiceCIDR) {
		d.ServiceCIDRs = append(d.ServiceCIDRs, kube.ServiceCIDR(r))
	})
	if apierrors.IsNotFound(ofCIDRs) { // clusters before 1.33 have none (KEP-1880)
		ofCIDRs = nil
	}
	for _, err := range []error{ofNodes, ofCIDRs} {
		switch {
		case apierrors.IsForbidden(err):
			refused = append(refused, err)
		case err != nil:
			return nil, nil, err
		}
	}
	if err := readServices(ctx, c, d, q); err != nil {
		return nil, nil, err
	}
	return d, refused, readEndpoints(ctx, c, d, q)
}

// each lists objects page by page.
func each[L runtime.Object, T any](
	ctx context.Context, from client.Resource[L], o metav1.ListOptions, add func(T),
) error {
	page := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return from.List(ctx, o) }
	err := pager.New(page).EachListItem(ctx, o, func(item runtime.Object) error {
		if object, ok := item.(T); ok {
			add(object)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("list %s: %w", from.Name, err)
	}
	return nil
}

func readServices(ctx context.Context, c *client.Client, d *names.Directory, q *names.Query) error {
	list, o := c.Services(), metav1.ListOptions{}
	if q != nil && q.To.Kind == names.Service {
		list, o = list.In(q.NamespaceOf(q.To)), client.Named(q.To.Name)
	}
	return each(ctx, list, o, func(s *corev1.Service) {
		o := names.ServiceObject{Service: kube.Service(s), Spec: s.Spec}
		if q == nil || q.Concerns(&o) {
			d.Services = append(d.Services, o)
		}
	})
}

func readEndpoints(ctx context.Context, c *client.Client, d *names.Directory, q *names.Query) (err error) {
	of := sets.New[string]() // namespaces
	for _, s := range d.Services {
		of.Insert(s.Namespace)
	}
	in := of.Clone()
	for _, pod := range q.Named(names.Pod) {
		namespace := q.NamespaceOf(pod)
		if in.Insert(namespace); d.NoPods != nil {
			continue
		}
		add := func(p *corev1.Pod) { d.Pods = append(d.Pods, p) }
		err := each(ctx, c.Pods().In(namespace), client.Named(pod.Name), add)
		if apierrors.IsForbidden(err) {
			d.NoPods, err = err, nil
		}
		if err != nil {
			return err
		}
	}
	if q == nil || len(in) == 0 || in.Has("") {
		in = sets.New("")
	}
	for _, namespace := range sets.List(in) {
		list := c.EndpointSlices().In(namespace)
		err = errors.Join(err, each(ctx, list, metav1.ListOptions{}, func(s *discoveryv1.EndpointSlice) {
			o := names.NewSlice(s)
			if q == nil || of.Has(o.Namespace) || slices.ContainsFunc(o.List(), q.HasEnd) {
				d.Slices = append(d.Slices, o)
			}
		}))
	}
	return err
}
