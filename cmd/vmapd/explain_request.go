package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vmapd/vmapd/cmd/vmapd/internal/explain"
	"github.com/vmapd/vmapd/cmd/vmapd/internal/names"
	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/kube"
	"github.com/vmapd/vmapd/sync/manifest"
)

// explainRequest describes a connection as given: on a command line, or in a request to the daemon.
type explainRequest struct {
	From, To      string
	Namespace     string
	ClusterDomain string
	Family        string
	Via           string
	Interface     string
	All           bool
}

// values are the query of a request to the daemon.
func (r *explainRequest) values() url.Values {
	v := url.Values{}
	for key, text := range r.texts() {
		if *text != "" {
			v.Set(key, *text)
		}
	}
	if r.All {
		v.Set("all", "true")
	}
	return v
}

// newExplainRequest reads the query of a request.
func newExplainRequest(v url.Values) *explainRequest {
	r := &explainRequest{All: v.Get("all") == "true"}
	for key, text := range r.texts() {
		*text = v.Get(key)
	}
	return r
}

func (r *explainRequest) texts() map[string]*string {
	return map[string]*string{
		"from": &r.From, "to": &r.To, "namespace": &r.Namespace, "clusterDomain": &r.ClusterDomain,
		"family": &r.Family, "via": &r.Via, "interface": &r.Interface,
	}
}

// query reads the names of both ends, and checks the rest.
func (r *explainRequest) query() (q names.Query, err error) {
	q = names.Query{Namespace: r.Namespace, ClusterDomain: r.ClusterDomain}
	if q.To, err = names.ParseDestination(r.To); err != nil {
		return q, err
	}
	if q.From, err = names.ParseSource(r.From); err != nil {
		return q, fmt.Errorf("--from: %w", err)
	}
	if q.From.Kind == names.Process && r.Interface != "" {
		return q, errors.New("--interface: a connection from this node does not arrive by an interface")
	}
	for _, f := range model.Families {
		if strings.EqualFold(r.Family, f.String()) {
			q.Family = &f
		}
	}
	if r.Family != "" && q.Family == nil {
		return q, fmt.Errorf("--family: %q is neither IPv4 nor IPv6", r.Family)
	}
	for _, via := range []string{"", names.ViaClusterIP, names.ViaNodePort, names.ViaLoadBalancer, names.ViaExternalIP} {
		if strings.EqualFold(r.Via, via) {
			q.Via = via
			return q, nil
		}
	}
	return q, fmt.Errorf("--via: %q is none of clusterIP, nodePort, loadBalancer and externalIP", r.Via)
}

// known has the objects that explain a connection, and the configuration of the proxy.
type known struct {
	names.Directory
	serviceCIDRs []model.ServiceCIDR
	config       model.Config
	locate       func(model.Problem) string
	// more reads pods of a Service that an explanation is about; nil: there are no more.
	more func(ctx context.Context, service model.NamespacedName, used bool)
}

// objects are the objects for the model.
func (w *known) objects() explain.Objects {
	out := explain.Objects{Nodes: w.Nodes, ServiceCIDRs: w.serviceCIDRs}
	for _, s := range w.Services {
		out.Services = append(out.Services, s.Service)
	}
	for _, s := range w.Slices {
		out.EndpointSlices = append(out.EndpointSlices, s.EndpointSlice)
	}
	return out
}

// explain explains a connection. If pods would tell more, it reads them first.
func (w *known) explain(ctx context.Context, in explain.Input) explain.Explanation {
	e := explain.Explain(in)
	if s := e.Destination.Service; w.more != nil && s != nil && e.Endpoints != nil {
		w.more(ctx, model.NamespacedName{Namespace: s.Namespace, Name: s.Name}, len(e.Endpoints.Used) > 0)
		e = explain.Explain(in)
	}
	return e
}

// addManifests adds the objects of files. The pods of a namespace are known if some are there.
func (w *known) addManifests(o *manifest.Objects) {
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
	for kind, l := range manifest.Raw[kube.Workload](o) {
		d.Workloads = append(d.Workloads, names.NewWorkload(names.Kind(kind), l))
		d.Complete[l.Namespace] = true
	}
	w.Add(d)
	w.serviceCIDRs = append(w.serviceCIDRs, manifest.Of[model.ServiceCIDR](o)...)
}
