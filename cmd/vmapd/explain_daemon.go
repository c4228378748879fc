package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/config"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/explain"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/socket"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/informer"
	"github.com/vmapd/vmapd/sync/kube"
	"github.com/vmapd/vmapd/sync/kube/client"
	"github.com/vmapd/vmapd/sync/manifest"
)

// explain answers /v1/explain: an explanation by the snapshot of the last round. Names and the reasons
// for unused endpoints are not in a snapshot, so the objects are read again, and only for this answer.
func (a *answers) explain(ctx context.Context, query url.Values) (any, error) {
	request := newExplainRequest(query)
	q, err := request.query()
	if err != nil {
		return nil, socket.BadRequest(err.Error())
	}
	snapshot := a.observers.view.View().Snapshot
	if snapshot == nil {
		return nil, a.in.unprogrammed()
	}
	k := known{locate: func(model.Problem) string { return "" }, config: a.traffic(config.Backend(a.plane.name))}
	q.NodeName = a.nodeName
	if a.in.cluster != nil {
		// A client of its own has a limit of requests of its own: the daemon's lists do not wait.
		own, connectErr := informer.Connect(a.config.Client())
		if connectErr != nil {
			return nil, connectErr
		}
		err = answerReader{clusterReader{own, &k}}.readAll(ctx, q)
	} else {
		objects, _, loadErr := manifest.LoadAll(a.config.From) // the daemon has logged the errors in manifests
		if loadErr != nil {
			return nil, loadErr
		}
		k.addManifests(objects)
	}
	if err != nil {
		return nil, err
	}
	in, err := request.input(&k, q)
	if err != nil {
		return nil, socket.NotFound(err.Error())
	}
	in.Snapshot, in.ByListeners = snapshot, a.plane.userspace != nil
	var own []netip.Addr
	for _, f := range model.Families {
		own = append(own, snapshot.Family(f).NodeAddrs...)
	}
	in.Builder.SetHostAddresses(own)
	e := k.explain(ctx, in)
	in.Node = e.Client.Kind == "node"
	decided := model.Decide(snapshot, in.Connection)
	d := a.compareWithKernel(ctx, snapshot, decided)
	if now := model.Decide(in.Builder.Snapshot(), in.Connection); !explain.OutcomeOf(now).Equal(explain.OutcomeOf(decided)) {
		d.Objects = explain.OutcomeOf(now).String()
	}
	services, slices := a.in.state.Pending()
	d.Pending, d.Error = services+slices, a.observers.tracker.Status().Families[model.FamilyOf(in.Dest.Addr())].LastError
	e.Compare(d)
	return e, nil
}

// answerReader reads the objects for one explanation by the daemon, with the daemon's permissions: those for
// Services, EndpointSlices and Nodes. It reads pages, and keeps what the connection is about.
type answerReader struct{ clusterReader }

// pageSize is the size of a page of a list: EndpointSlices of 100 endpoints take some 10 MB.
const pageSize = 250

// readAll reads all that a query is about.
func (a answerReader) readAll(ctx context.Context, q names.Query) error {
	err := a.read(ctx, q)
	if err == nil && q.Via != "" && q.Via != names.ViaClusterIP {
		err = a.readRivals(ctx, q)
	}
	return err
}

func (a answerReader) read(ctx context.Context, q names.Query) error {
	a.w.NoPods = errors.New("the daemon has no permission to read pods; --live, with credentials that have it, does")
	for _, ref := range []names.Ref{q.From, q.To} {
		if ref.Kind.Workload() {
			return socket.BadRequest(fmt.Sprintf("%s: the daemon has no permission to read workloads and pods; use --live with credentials that have it", ref))
		}
	}
	if err := a.readNodes(ctx, q); err != nil {
		return err
	}
	if list, err := a.ServiceCIDRs().List(ctx, metav1.ListOptions{}); err == nil { // old servers have none
		for i := range list.Items {
			a.w.serviceCIDRs = append(a.w.serviceCIDRs, kube.ServiceCIDR(&list.Items[i]))
		}
	}
	if err := a.readServices(ctx, q); err != nil {
		return err
	}
	if err := a.readSlicesOf(ctx, a.w.Services); err != nil {
		return err
	}
	if len(a.w.Services) == 1 && len(a.w.Slices) == 0 { // has somebody forgotten the label?
		o := metav1.ListOptions{LabelSelector: "!" + model.LabelServiceName}
		if err := a.readSlices(ctx, a.w.Services[0].Namespace, o, func(names.SliceObject) bool { return true }); err != nil {
			return err
		}
	}
	return a.readEnds(ctx, q)
}

// readRivals reads the Services that share the address to which a query leads.
func (a answerReader) readRivals(ctx context.Context, q names.Query) error {
	answer, err := a.w.Resolve(q)
	if err != nil {
		return nil //nolint:nilerr // the caller resolves again, and returns the error
	}
	before := len(a.w.Services)
	wanted := func(s model.Service) bool {
		_, ok := a.w.Service(s.NamespacedName)
		return !ok && concerns(s, answer.Dest.Addr(), strconv.Itoa(int(answer.Dest.Port())))
	}
	if err := a.eachService(ctx, "", metav1.ListOptions{Limit: pageSize}, wanted); err != nil {
		return err
	}
	return a.readSlicesOf(ctx, a.w.Services[before:])
}

// readSlicesOf reads the slices of Services.
func (a answerReader) readSlicesOf(ctx context.Context, services []names.ServiceObject) error {
	for _, s := range services {
		o := metav1.ListOptions{LabelSelector: model.LabelServiceName + "=" + s.Name}
		if err := a.readSlices(ctx, s.Namespace, o, func(names.SliceObject) bool { return true }); err != nil {
			return err
		}
	}
	return nil
}

// readNodes reads the Node that decides, and those that are named.
func (a answerReader) readNodes(ctx context.Context, q names.Query) error {
	var read []string
	for _, ref := range []names.Ref{{Name: q.NodeName}, q.From, q.To} {
		if ref.Name == "" || ref.Kind != "" && ref.Kind != names.Node {
			continue
		}
		n, err := a.Node(ctx, ref.Name)
		switch {
		case apierrors.IsNotFound(err), err == nil && len(read) > 0 && read[0] == n.Name:
			continue
		case err != nil:
			return fmt.Errorf("get Node %s: %w", ref.Name, err)
		}
		read = append(read, n.Name)
		a.w.Nodes = append(a.w.Nodes, kube.Node(n))
	}
	return nil
}

// readServices reads the Service that is named, or those that have the destination's address.
func (a answerReader) readServices(ctx context.Context, q names.Query) error {
	o, wanted := metav1.ListOptions{Limit: pageSize}, func(s model.Service) bool { return concerns(s, q.To.Addr, q.To.Port) }
	namespace := ""
	if q.To.Kind == names.Service || q.To.Kind == names.Host {
		name := q.To.Candidates(q.Namespace, q.ClusterDomain)[0]
		o, namespace, wanted = client.Named(name.Name), name.Namespace, func(model.Service) bool { return true }
	}
	// A short error about a name has the names that exist.
	if err := a.eachService(ctx, namespace, o, wanted); err != nil || len(a.w.Services) > 0 || q.To.Kind == names.Address {
		return err
	}
	if q.To.Kind != names.Service && q.To.Kind != names.Host {
		return nil
	}
	return a.eachService(ctx, namespace, metav1.ListOptions{Limit: pageSize}, func(model.Service) bool { return true })
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

func (a answerReader) eachService(ctx context.Context, namespace string, o metav1.ListOptions, wanted func(model.Service) bool) error {
	for {
		list, err := a.Services().In(namespace).List(ctx, o)
		if err != nil {
			return fmt.Errorf("list Services: %w", err)
		}
		for i := range list.Items {
			if s := names.NewService(&list.Items[i]); wanted(s.Service) {
				a.w.Services = append(a.w.Services, s)
			}
		}
		if o.Continue = list.Continue; o.Continue == "" {
			return nil
		}
	}
}

func (a answerReader) readSlices(ctx context.Context, namespace string, o metav1.ListOptions, wanted func(names.SliceObject) bool) error {
	o.Limit = pageSize
	var found names.Directory
	for {
		list, err := a.EndpointSlices().In(namespace).List(ctx, o)
		if err != nil {
			return fmt.Errorf("list EndpointSlices: %w", err)
		}
		for i := range list.Items {
			s := names.NewSlice(&list.Items[i])
			if a.w.HasSlice(s.NamespacedName) || !wanted(s) {
				continue
			}
			found.Slices = append(found.Slices, s)
		}
		if o.Continue = list.Continue; o.Continue == "" {
			a.w.Add(found)
			return nil
		}
	}
}

// readEnds reads the slices that have the pods at the ends, by name or by address.
func (a answerReader) readEnds(ctx context.Context, q names.Query) error {
	for _, ref := range []names.Ref{q.From, q.To} {
		var wanted func(names.SliceObject) bool
		namespace := ""
		switch {
		case ref.Kind == names.Pod:
			namespace = ref.Candidates(q.Namespace, "")[0].Namespace
			wanted = func(s names.SliceObject) bool { return s.HasPod(ref.Name) }
		case ref.Kind == names.Address && len(a.w.Services) == 0: // the destination may be a pod's own address
			wanted = func(s names.SliceObject) bool { return s.HasAddr(ref.Addr) }
		default:
			continue
		}
		if err := a.readSlices(ctx, namespace, metav1.ListOptions{}, wanted); err != nil {
			return err
		}
	}
	return nil
}
