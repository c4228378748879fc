package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/explain"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/informer"
	"github.com/vmapd/vmapd/sync/kube"
	"github.com/vmapd/vmapd/sync/kube/client"
	"github.com/vmapd/vmapd/sync/manifest"
)

// known has the objects that explain a connection, and the configuration of the proxy.
type known struct {
	names.Directory
	serviceCIDRs []model.ServiceCIDR
	config       model.Config
	cluster      *client.Client // of which pods may be read; nil: none
}

// input resolves the names of a query, and checks the node.
func (k *known) input(r asked, q names.Query) (explain.Input, error) {
	answer, err := k.Resolve(q)
	if err != nil {
		return explain.Input{}, errors.New(model.OneLine(err.Error())) // nothing has checked names in manifests
	}
	if err := k.CheckNode(answer.NodeName); err != nil {
		return explain.Input{}, fmt.Errorf("--node-name: %w", err)
	}
	k.config.NodeName = answer.NodeName
	in := explain.Input{
		Config: k.config, Objects: k.objects(), Names: &k.Directory, All: r.All,
		Client: answer.Client, Server: answer.Server, Notes: answer.Notes,
		Connection: model.Connection{
			Source: answer.Source, Node: answer.Process, Interface: r.Interface, Dest: answer.Dest, Protocol: answer.Protocol,
		},
	}
	in.Builder = in.Objects.Builder(in.Config)
	if in.Node && !in.Source.IsValid() {
		if in.Source, err = in.NodeAddress(); err != nil {
			return in, fmt.Errorf("--from: %w", err)
		}
	}
	return in, nil
}

// objects are the objects for the model.
func (k *known) objects() explain.Objects {
	out := explain.Objects{Nodes: k.Nodes, ServiceCIDRs: k.serviceCIDRs}
	for _, s := range k.Services {
		out.Services = append(out.Services, s.Service)
	}
	for _, s := range k.Slices {
		out.EndpointSlices = append(out.EndpointSlices, s.EndpointSlice)
	}
	return out
}

// explain explains a connection. If pods would explain more, it reads them first: some of those that the Service
// selects or, if it has no endpoint in use, all of its namespace. Their absence is no error.
func (k *known) explain(ctx context.Context, in explain.Input) explain.Explanation {
	const few = 20 // as many as have the ports of all
	e := explain.Explain(in)
	i := -1
	for j, s := range k.Services {
		if s.String() == e.Service && len(s.Selector) > 0 {
			i = j
		}
	}
	if k.cluster == nil || i < 0 {
		return e
	}
	s := k.Services[i]
	if len(e.Used) > 0 {
		o := metav1.ListOptions{LabelSelector: labels.SelectorFromSet(s.Selector).String(), Limit: few}
		_ = k.readPods(ctx, s.Namespace, o)
	} else if k.readPods(ctx, s.Namespace, metav1.ListOptions{}) == nil {
		k.Add(names.Directory{Complete: map[string]bool{s.Namespace: true}})
	}
	return explain.Explain(in)
}

// readManifests reads files and folders.
func (k *known) readManifests(paths []string, stderr io.Writer) error {
	objects, errs, err := manifest.LoadAll(paths)
	if err != nil {
		return err
	}
	warnUnread(stderr, objects)
	for _, e := range errs {
		fmt.Fprintln(stderr, e)
	}
	if len(errs) > 0 && objects.Len() == 0 {
		return exitError(1) // nothing could be read, and the errors were printed
	}
	k.addManifests(objects)
	return nil
}

// addManifests adds the objects of files. The pods of a namespace are known if some are there.
func (k *known) addManifests(o *manifest.Objects) {
	d := names.Directory{Nodes: manifest.Of[model.Node](o), Complete: map[string]bool{}}
	for _, s := range manifest.Raw[corev1.Service](o) {
		d.Services = append(d.Services, names.NewService(s))
	}
	for _, s := range manifest.Raw[discoveryv1.EndpointSlice](o) {
		d.Slices = append(d.Slices, names.NewSlice(s))
	}
	for _, p := range manifest.Raw[corev1.Pod](o) {
		d.Pods = append(d.Pods, names.NewPod(p))
		d.Complete[p.Namespace] = true
	}
	k.Add(d)
	k.serviceCIDRs = append(k.serviceCIDRs, manifest.Of[model.ServiceCIDR](o)...)
}

// readCluster reads what a query is about, with the credentials of a file. Without the right to read Nodes or pods, it
// does without them.
func (k *known) readCluster(ctx context.Context, kubeconfig string, q names.Query, stderr io.Writer) error {
	server, err := informer.Connect(informer.Config{Kubeconfig: kubeconfig})
	if err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	k.cluster = server
	nodes, err := server.Nodes().List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsForbidden(err):
		fmt.Fprintf(stderr, "list Nodes: %v; continuing without them\n", err)
	case err != nil:
		return fmt.Errorf("list Nodes: %w", err)
	default:
		for i := range nodes.Items {
			k.Nodes = append(k.Nodes, kube.Node(&nodes.Items[i]))
		}
	}
	for _, ref := range []names.Ref{q.From, q.To} {
		if ref.Kind != names.Pod {
			continue
		}
		err := k.readPods(ctx, cmp.Or(ref.Namespace, q.Namespace), client.Named(ref.Name))
		if apierrors.IsForbidden(err) {
			k.NoPods = err
		} else if err != nil {
			return err
		}
	}
	return reader{server, k}.read(ctx, q)
}

func (k *known) readPods(ctx context.Context, namespace string, o metav1.ListOptions) error {
	list, err := k.cluster.Pods().In(namespace).List(ctx, o)
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	for i := range list.Items {
		k.Add(names.Directory{Pods: []names.PodObject{names.NewPod(&list.Items[i])}})
	}
	return nil
}

// reader reads the objects for one explanation, with permissions for Services and EndpointSlices. It reads pages, and
// keeps what the connection is about.
type reader struct {
	*client.Client
	k *known
}

// pageSize is the size of a page of a list: EndpointSlices of 100 endpoints take some 10 MB.
const pageSize = 250

func (r reader) read(ctx context.Context, q names.Query) error {
	// Clusters before 1.33 have no ServiceCIDRs.
	if list, err := r.ServiceCIDRs().List(ctx, metav1.ListOptions{}); err == nil {
		for i := range list.Items {
			r.k.serviceCIDRs = append(r.k.serviceCIDRs, kube.ServiceCIDR(&list.Items[i]))
		}
	}
	if err := r.readServices(ctx, q); err != nil {
		return err
	}
	all := func(names.SliceObject) bool { return true }
	for _, s := range r.k.Services {
		o := metav1.ListOptions{LabelSelector: model.LabelServiceName + "=" + s.Name}
		if err := r.readSlices(ctx, s.Namespace, o, all); err != nil {
			return err
		}
	}
	if len(r.k.Services) == 1 && len(r.k.Slices) == 0 { // has somebody forgotten the label?
		o := metav1.ListOptions{LabelSelector: "!" + model.LabelServiceName}
		if err := r.readSlices(ctx, r.k.Services[0].Namespace, o, all); err != nil {
			return err
		}
	}
	return r.readEnds(ctx, q)
}

// readServices reads the Service that is named, or those that have the destination's address.
func (r reader) readServices(ctx context.Context, q names.Query) error {
	o, wanted := metav1.ListOptions{Limit: pageSize}, func(s model.Service) bool { return concerns(s, q.To.Addr, q.To.Port) }
	if q.To.Kind != names.Service {
		return r.eachService(ctx, "", o, wanted)
	}
	namespace := cmp.Or(q.To.Namespace, q.Namespace)
	all := func(model.Service) bool { return true }
	// A short error about a name has the names that exist.
	if err := r.eachService(ctx, namespace, client.Named(q.To.Name), all); err != nil || len(r.k.Services) > 0 {
		return err
	}
	return r.eachService(ctx, namespace, o, all)
}

// concerns reports whether a Service has an address, or a node port of a number.
func concerns(s model.Service, addr netip.Addr, port string) bool {
	if addr.IsValid() && explain.HasAddress(s, addr) {
		return true
	}
	for _, p := range s.Ports {
		if p.NodePort != 0 && strconv.Itoa(int(p.NodePort)) == port {
			return true
		}
	}
	return false
}

func (r reader) eachService(ctx context.Context, namespace string, o metav1.ListOptions, wanted func(model.Service) bool) error {
	for {
		list, err := r.Services().In(namespace).List(ctx, o)
		if err != nil {
			return fmt.Errorf("list Services: %w", err)
		}
		for i := range list.Items {
			if s := names.NewService(&list.Items[i]); wanted(s.Service) {
				r.k.Services = append(r.k.Services, s)
			}
		}
		if o.Continue = list.Continue; o.Continue == "" {
			return nil
		}
	}
}

func (r reader) readSlices(ctx context.Context, namespace string, o metav1.ListOptions, wanted func(names.SliceObject) bool) error {
	o.Limit = pageSize
	var found names.Directory
	for {
		list, err := r.EndpointSlices().In(namespace).List(ctx, o)
		if err != nil {
			return fmt.Errorf("list EndpointSlices: %w", err)
		}
		for i := range list.Items {
			if s := names.NewSlice(&list.Items[i]); wanted(s) && !r.k.HasSlice(s.NamespacedName) {
				found.Slices = append(found.Slices, s)
			}
		}
		if o.Continue = list.Continue; o.Continue == "" {
			r.k.Add(found)
			return nil
		}
	}
}

// readEnds reads the slices that have the pods at the ends, by name or by address.
func (r reader) readEnds(ctx context.Context, q names.Query) error {
	for _, ref := range []names.Ref{q.From, q.To} {
		var wanted func(names.SliceObject) bool
		namespace := ""
		switch {
		case ref.Kind == names.Pod:
			namespace = cmp.Or(ref.Namespace, q.Namespace)
			wanted = func(s names.SliceObject) bool { return s.HasPod(ref.Name) }
		case ref.Kind == names.Address && len(r.k.Services) == 0: // the destination may be a pod's own address
			wanted = func(s names.SliceObject) bool { return s.HasAddr(ref.Addr) }
		default:
			continue
		}
		if err := r.readSlices(ctx, namespace, metav1.ListOptions{}, wanted); err != nil {
			return err
		}
	}
	return nil
}
