package client

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Resource is a kind of objects; L is the type of a list of them.
type Resource[L runtime.Object] struct {
	Name string // plural, as in URLs

	group     rest.Interface
	namespace string // "": all
	options   runtime.ParameterCodec
}

// In returns the objects of one namespace; "" is all.
func (r Resource[L]) In(namespace string) Resource[L] {
	r.namespace = namespace
	return r
}

// Services of all namespaces.
func (c *Client) Services() Resource[*corev1.ServiceList] {
	return resource[*corev1.ServiceList](c, c.core, "services")
}

// SlimServices are the Services of all namespaces, without the parts that no proxy reads.
func (c *Client) SlimServices() Resource[*corev1.ServiceList] {
	return resource[*corev1.ServiceList](c, c.slimCore, "services")
}

// EndpointSlices of all namespaces.
func (c *Client) EndpointSlices() Resource[*discoveryv1.EndpointSliceList] {
	return resource[*discoveryv1.EndpointSliceList](c, c.discovery, "endpointslices")
}

// SlimEndpointSlices are the EndpointSlices of all namespaces, without the parts that no proxy reads.
func (c *Client) SlimEndpointSlices() Resource[*discoveryv1.EndpointSliceList] {
	return resource[*discoveryv1.EndpointSliceList](c, c.slimDiscovery, "endpointslices")
}

// Nodes of the cluster.
func (c *Client) Nodes() Resource[*corev1.NodeList] {
	return resource[*corev1.NodeList](c, c.core, "nodes")
}

// ServiceCIDRs of the cluster. Servers before 1.33 do not have them (KEP-1880).
func (c *Client) ServiceCIDRs() Resource[*networkingv1.ServiceCIDRList] {
	return resource[*networkingv1.ServiceCIDRList](c, c.networking, "servicecidrs")
}

// Pods of all namespaces. The daemon has no right to read them, and needs none.
func (c *Client) Pods() Resource[*corev1.PodList] {
	return resource[*corev1.PodList](c, c.core, "pods")
}

func resource[L runtime.Object](c *Client, group rest.Interface, name string) Resource[L] {
	return Resource[L]{Name: name, group: group, options: c.options}
}

func (r Resource[L]) get(o metav1.ListOptions) *rest.Request {
	req := r.group.Get().NamespaceIfScoped(r.namespace, r.namespace != "").Resource(r.Name).VersionedParams(&o, r.options)
	if o.TimeoutSeconds != nil {
		req.Timeout(time.Duration(*o.TimeoutSeconds) * time.Second)
	}
	return req
}

// List reads objects, or one page of them.
func (r Resource[L]) List(ctx context.Context, o metav1.ListOptions) (list L, err error) {
	out, err := r.get(o).Do(ctx).Get()
	if err != nil {
		return list, err
	}
	list, ok := out.(L)
	if !ok {
		return list, fmt.Errorf("the API server's list of %s is a %T", r.Name, out)
	}
	return list, nil
}

// Watch reads the changes of objects until it is stopped or ctx ends.
func (r Resource[L]) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	return r.get(o).Watch(ctx)
}

// Named selects objects by their name.
func Named(name string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()}
}

// readJSON makes a request for an object of a type that the client need not know.
func readJSON(ctx context.Context, req *rest.Request, into any) error {
	answer := req.SetHeader("Accept", runtime.ContentTypeJSON).Do(ctx)
	if err := answer.Error(); err != nil { // Raw's error lacks the server's message
		return err
	}
	body, err := answer.Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

// ConfigMap returns the data of a ConfigMap. It is read as JSON, as workloads are.
func (c *Client) ConfigMap(ctx context.Context, namespace, name string) (map[string]string, error) {
	var m struct {
		Data map[string]string `json:"data"`
	}
	err := readJSON(ctx, c.core.Get().AbsPath("/api/v1/namespaces", namespace, "configmaps", name), &m)
	return m.Data, err
}

// Version returns the version of the API server, such as v1.36.2. Everybody may read it
// (ClusterRole system:public-info-viewer).
func (c *Client) Version(ctx context.Context) (string, error) {
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	err := readJSON(ctx, c.core.Get().AbsPath("/version"), &v)
	return v.GitVersion, err
}

// CreateEvent writes a new event into the namespace that it names.
func (c *Client) CreateEvent(ctx context.Context, e *eventsv1.Event) error {
	return c.events.Post().Namespace(e.Namespace).Resource("events").Body(e).Do(ctx).Into(new(eventsv1.Event))
}

// PatchEvent changes an event by a strategic merge patch.
func (c *Client) PatchEvent(ctx context.Context, namespace, name string, patch []byte) error {
	r := c.events.Patch(types.StrategicMergePatchType).Namespace(namespace).Resource("events").Name(name).Body(patch)
	return r.Do(ctx).Into(new(eventsv1.Event))
}
