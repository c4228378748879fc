package client

import (
	"cmp"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/vmapd/vmapd/sync/kube/slim"
)

// Client makes requests to an API server, with one rate limit for all of them.
type Client struct {
	core, discovery, networking, events rest.Interface

	slimCore, slimDiscovery rest.Interface // they read Services and EndpointSlices as package slim does

	options   runtime.ParameterCodec
	conf      *rest.Config
	transport *http.Client
	skew      *atomic.Pointer[time.Duration] // see Skew
}

// New returns a client. It sends no request yet. The defaults of QPS and Burst are client-go's
// 5 requests per second and 10; a QPS below 0 means no limit.
func New(conf *rest.Config) (*Client, error) {
	conf = rest.CopyConfig(conf)
	conf.UserAgent = cmp.Or(conf.UserAgent, rest.DefaultKubernetesUserAgent())
	conf.QPS = cmp.Or(conf.QPS, rest.DefaultQPS)
	conf.Burst = cmp.Or(conf.Burst, rest.DefaultBurst)
	if conf.QPS > 0 && conf.Burst < 0 {
		const text = "burst of %d requests: must be at least 1 with a limit of %v per second"
		return nil, fmt.Errorf(text, conf.Burst, conf.QPS)
	}
	skew := new(atomic.Pointer[time.Duration])
	conf.Wrap(func(rt http.RoundTripper) http.RoundTripper { return noting{rt, skew} })
	transport, err := rest.HTTPClientFor(conf)
	if err != nil {
		return nil, err
	}
	return (&Client{conf: conf, transport: transport, skew: skew}).Apart()
}

// Apart returns a client with the same connections and a rate limit of its own.
func (c *Client) Apart() (*Client, error) {
	conf := rest.CopyConfig(c.conf)
	if conf.QPS > 0 {
		conf.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(conf.QPS, conf.Burst)
	}
	out := &Client{conf: c.conf, transport: c.transport, skew: c.skew}
	scheme := newScheme()
	// For protobuf, JSON and YAML, and for CBOR if client-go's feature ClientsAllowCBOR is on.
	whole := rest.CodecFactoryForGeneratedClient(scheme, serializer.NewCodecFactory(scheme)).WithoutConversion()
	out.options = runtime.NewParameterCodec(scheme)
	for _, of := range []struct {
		group schema.GroupVersion
		by    runtime.NegotiatedSerializer
		to    *rest.Interface
	}{
		{corev1.SchemeGroupVersion, whole, &out.core},
		{discoveryv1.SchemeGroupVersion, whole, &out.discovery},
		{networkingv1.SchemeGroupVersion, whole, &out.networking},
		{eventsv1.SchemeGroupVersion, whole, &out.events},
		{corev1.SchemeGroupVersion, slim.New(whole), &out.slimCore},
		{discoveryv1.SchemeGroupVersion, slim.New(whole), &out.slimDiscovery},
	} {
		conf.GroupVersion, conf.NegotiatedSerializer = &of.group, of.by
		conf.APIPath = "/apis"
		if of.group.Group == "" {
			conf.APIPath = "/api"
		}
		var err error
		if *of.to, err = rest.RESTClientForConfigAndClient(conf, c.transport); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Address returns the URL of the API server.
func (c *Client) Address() string {
	u := c.core.Get().URL()
	return u.Scheme + "://" + u.Host
}

// newScheme returns the kinds in requests and responses. Each group also has the kinds of all
// groups: options, Status, WatchEvent.
func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for group, kinds := range map[schema.GroupVersion][]runtime.Object{
		corev1.SchemeGroupVersion: {
			&corev1.Service{}, &corev1.ServiceList{}, &corev1.Node{}, &corev1.NodeList{}, &corev1.Pod{}, &corev1.PodList{},
		},
		discoveryv1.SchemeGroupVersion:  {&discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{}},
		networkingv1.SchemeGroupVersion: {&networkingv1.ServiceCIDR{}, &networkingv1.ServiceCIDRList{}},
		eventsv1.SchemeGroupVersion:     {&eventsv1.Event{}},
	} {
		s.AddKnownTypes(group, kinds...)
		metav1.AddToGroupVersion(s, group)
	}
	return s
}

// Skew returns the server's clock minus this node's, as of its last answer of any kind, and false before the first one.
// It is exact to a second and the time of the answer's travel. It may be called at any time.
func (c *Client) Skew() (time.Duration, bool) {
	if skew := c.skew.Load(); skew != nil {
		return *skew, true
	}
	return 0, false
}

// noting is a transport that notes the server's time.
type noting struct {
	http.RoundTripper
	skew *atomic.Pointer[time.Duration]
}

func (n noting) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := n.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		const half = 500 * time.Millisecond // of the second that the header leaves out
		n.skew.Store(new(time.Until(date.Add(half))))
	}
	return resp, nil
}

// WrappedRoundTripper lets client-go close idle connections.
func (n noting) WrappedRoundTripper() http.RoundTripper { return n.RoundTripper }
