// Package objects reads the objects that explain and preflight are about: from files, or from a cluster.
package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/report"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/kube"
	"github.com/vmapd/vmapd/sync/kube/client"
	"github.com/vmapd/vmapd/sync/manifest"
)

// Load reads files and folders, and prints what it can't read. It is complete if that is nothing.
func Load(paths []string, stderr io.Writer) (o *manifest.Objects, complete bool, err error) {
	o, errs, err := manifest.Load(paths)
	if err != nil {
		return nil, false, err
	}
	if text := o.Unread(); text != "" { // a kind of ours may be misspelt
		report.Complain(stderr, "warning: "+text)
	}
	for _, e := range errs {
		report.Complain(stderr, e.Error())
	}
	return o, len(errs) == 0, nil
}

// Of returns the objects of files.
func Of(o *manifest.Objects) *names.Directory {
	d := &names.Directory{
		Nodes: manifest.Of[model.Node](o), ServiceCIDRs: manifest.Of[model.ServiceCIDR](o), Pods: manifest.Of[*corev1.Pod](o),
	}
	for _, s := range manifest.Of[*corev1.Service](o) {
		d.Services = append(d.Services, names.ServiceObject{Service: kube.Service(s), Spec: s.Spec})
	}
	for _, s := range manifest.Of[*discoveryv1.EndpointSlice](o) {
		d.Slices = append(d.Slices, names.NewSlice(s))
	}
	return d
}

// Reader reads objects of a cluster.
type Reader struct {
	*client.Client
	// Query is what they are about; nil: all are read, but no pods.
	Query *names.Query
	// Nodes are the names of Nodes to read; none: all are.
	Nodes []string
	// NoPods is the reason why pods are not read; nil: they are.
	NoPods error
	// Unread are the errors of permissions that are missing, after Read.
	Unread []error

	d names.Directory
}

// Read reads the objects. Nodes, ServiceCIDRs and pods may be missing, without a permission.
func (r *Reader) Read(ctx context.Context) (*names.Directory, error) {
	r.d = names.Directory{NoPods: r.NoPods}
	if err := errors.Join(r.readNodes(ctx), r.readCIDRs(ctx), r.readServices(ctx)); err != nil {
		return nil, err
	}
	if err := r.readSlices(ctx); err != nil || r.NoPods != nil || r.Query == nil {
		return &r.d, err
	}
	err := r.readPods(ctx)
	if apierrors.IsForbidden(err) {
		r.d.NoPods, err = err, nil
	}
	return &r.d, err
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

func (r *Reader) readNodes(ctx context.Context) (err error) {
	add := func(n *corev1.Node) { r.d.Nodes = append(r.d.Nodes, kube.Node(n)) }
	if r.Nodes == nil {
		err = each(ctx, r.Client.Nodes(), metav1.ListOptions{}, add)
	}
	for _, name := range r.Nodes { // with the right to list, and not that to get one
		err = errors.Join(err, each(ctx, r.Client.Nodes(), client.Named(name), add))
	}
	return r.unread(err)
}

func (r *Reader) readCIDRs(ctx context.Context) error {
	err := each(ctx, r.ServiceCIDRs(), metav1.ListOptions{}, func(c *networkingv1.ServiceCIDR) {
		r.d.ServiceCIDRs = append(r.d.ServiceCIDRs, kube.ServiceCIDR(c))
	})
	if apierrors.IsNotFound(err) { // clusters before 1.33 have none (KEP-1880)
		return nil
	}
	return r.unread(err)
}

// unread keeps the error of a permission that is missing.
func (r *Reader) unread(err error) error {
	if apierrors.IsForbidden(err) {
		r.Unread = append(r.Unread, err)
		return nil
	}
	return err
}

// readServices reads the Service that is named, those with the destination's address or node port, or all.
func (r *Reader) readServices(ctx context.Context) error {
	q, isNamed := r.Query, r.Query != nil && r.Query.To.Kind == names.Service
	list := r.Services()
	add := func(s *corev1.Service) {
		o := names.ServiceObject{Service: kube.Service(s), Spec: s.Spec}
		if q == nil || isNamed || o.Concerns(q.To) {
			r.d.Services = append(r.d.Services, o)
		}
	}
	if isNamed {
		list = list.In(q.NamespaceOf(q.To))
		if err := each(ctx, list, client.Named(q.To.Name), add); err != nil || len(r.d.Services) > 0 {
			return err
		} // an error about a name has the names that are like it
	}
	return each(ctx, list, metav1.ListOptions{}, add)
}

// readSlices reads the slices of the Services, those in their namespaces that belong to none, and those that have the
// ends of the connection.
func (r *Reader) readSlices(ctx context.Context) (err error) {
	has := map[model.NamespacedName]bool{} // several lists may have one
	read := func(namespace, selector string, wanted func(names.Endpoint) bool) {
		if err != nil {
			return
		}
		list, o := r.EndpointSlices().In(namespace), metav1.ListOptions{LabelSelector: selector}
		err = each(ctx, list, o, func(s *discoveryv1.EndpointSlice) {
			o := names.NewSlice(s)
			if !has[o.NamespacedName] && (wanted == nil || slices.ContainsFunc(o.List(), wanted)) {
				has[o.NamespacedName], r.d.Slices = true, append(r.d.Slices, o)
			}
		})
	}
	q, found := r.Query, false
	if q == nil {
		read("", "", nil)
		return err
	}
	for _, s := range r.d.Services {
		if q.To.Kind == names.Service && s.Name != q.To.Name {
			continue // it is for the error about a name
		}
		found = true
		read(s.Namespace, model.LabelServiceName+"="+s.Name, nil)
		read(s.Namespace, "!"+model.LabelServiceName, nil) // has somebody forgotten the label?
	}
	for _, ref := range []names.Ref{q.From, q.To} {
		switch {
		case ref.Kind == names.Pod:
			read(q.NamespaceOf(ref), "", func(e names.Endpoint) bool { return e.Pod.Name == ref.Name })
		case ref.Kind == names.Address && !found: // it may be a pod's own
			read("", "", func(e names.Endpoint) bool { return e.IsAt(ref.Addr) })
		}
	}
	return err
}

func (r *Reader) readPods(ctx context.Context) (err error) {
	add := func(p *corev1.Pod) { r.d.Pods = append(r.d.Pods, p) }
	for _, ref := range []names.Ref{r.Query.From, r.Query.To} {
		if ref.Kind == names.Pod {
			from := r.Pods().In(r.Query.NamespaceOf(ref))
			err = errors.Join(err, each(ctx, from, client.Named(ref.Name), add))
		}
	}
	return err
}
