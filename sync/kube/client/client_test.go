package client

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/vmapd/vmapd/sync/informer/apitest"
)

var (
	event = &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns1", Name: "web.1"}, Reason: "Conflict", Type: corev1.EventTypeWarning,
		Regarding: corev1.ObjectReference{Kind: "Service", Namespace: "ns1", Name: "web"},
	}
	patch = []byte(`{"series":{"count":2,"lastObservedTime":null}}`)
	page  = metav1.ListOptions{
		LabelSelector: "!a,kubernetes.io/service-name=c", FieldSelector: "metadata.name!=d", Limit: 500, ResourceVersion: "0", TimeoutSeconds: new(int64(7)),
	}
	stream = metav1.ListOptions{
		SendInitialEvents: new(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}
)

// either makes one request by our client and by client-go's.
type either struct {
	name   string
	ours   func(context.Context, *Client) (any, error)
	theirs func(context.Context, kubernetes.Interface) (any, error)
}

func requests() []either {
	all := []either{
		{
			"list one Node",
			func(ctx context.Context, c *Client) (any, error) { return c.Nodes().List(ctx, Named("node1")) },
			func(ctx context.Context, c kubernetes.Interface) (any, error) {
				return c.CoreV1().Nodes().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=node1"})
			},
		},
		{
			"create an event",
			func(ctx context.Context, c *Client) (any, error) { return nil, c.CreateEvent(ctx, event) },
			func(ctx context.Context, c kubernetes.Interface) (any, error) {
				_, err := c.EventsV1().Events("ns1").Create(ctx, event, metav1.CreateOptions{})
				return nil, err
			},
		},
		{
			"patch an event",
			func(ctx context.Context, c *Client) (any, error) {
				return nil, c.PatchEvent(ctx, "ns1", "web.1", patch)
			},
			func(ctx context.Context, c kubernetes.Interface) (any, error) {
				_, err := c.EventsV1().Events("ns1").Patch(ctx, "web.1", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
				return nil, err
			},
		},
	}
	all = append(all, reads((*Client).Services, func(c kubernetes.Interface) lister[*corev1.ServiceList] { return c.CoreV1().Services("") })...)
	all = append(all, reads((*Client).EndpointSlices, func(c kubernetes.Interface) lister[*discoveryv1.EndpointSliceList] {
		return c.DiscoveryV1().EndpointSlices("")
	})...)
	all = append(all, reads((*Client).Nodes, func(c kubernetes.Interface) lister[*corev1.NodeList] { return c.CoreV1().Nodes() })...)
	return append(all, reads((*Client).ServiceCIDRs, func(c kubernetes.Interface) lister[*networkingv1.ServiceCIDRList] {
		return c.NetworkingV1().ServiceCIDRs()
	})...)
}

type lister[L any] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// reads are the requests for lists and watches of one kind.
func reads[L runtime.Object](ours func(*Client) Resource[L], theirs func(kubernetes.Interface) lister[L]) []either {
	name := ours(new(Client)).Name
	list := func(o metav1.ListOptions) either {
		return either{
			"list " + name,
			func(ctx context.Context, c *Client) (any, error) { return ours(c).List(ctx, o) },
			func(ctx context.Context, c kubernetes.Interface) (any, error) { return theirs(c).List(ctx, o) },
		}
	}
	watch := func(o metav1.ListOptions) either {
		return either{
			"watch " + name,
			func(ctx context.Context, c *Client) (any, error) { return first(ours(c).Watch(ctx, o)) },
			func(ctx context.Context, c kubernetes.Interface) (any, error) { return first(theirs(c).Watch(ctx, o)) },
		}
	}
	return []either{list(metav1.ListOptions{}), list(page), watch(page), watch(stream)}
}

// first returns the first two events of a watch.
func first(w watch.Interface, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	defer w.Stop()
	return []watch.Event{<-w.ResultChan(), <-w.ResultChan()}, nil
}

// recorder keeps what is sent, and refuses it.
type recorder struct{ sent []string }

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	var text strings.Builder
	if err := req.Write(&text); err != nil { // in the form of HTTP/1.1
		return nil, err
	}
	r.sent = append(r.sent, req.URL.Scheme+" "+text.String())
	return &http.Response{
		StatusCode: http.StatusForbidden, Status: "403 Forbidden", Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: req,
	}, nil
}

// both returns our client and client-go's.
func both(t *testing.T, conf *rest.Config) (*Client, kubernetes.Interface) {
	t.Helper()
	ours, err := New(conf)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := kubernetes.NewForConfig(conf)
	if err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

var contents = map[string]rest.ContentConfig{
	"protobuf":         {ContentType: runtime.ContentTypeProtobuf, AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON},
	"JSON":             {ContentType: runtime.ContentTypeJSON},
	"protobuf or JSON": {ContentType: runtime.ContentTypeJSON, AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON},
}

// To the byte, requests are those of client-go's clientset.
func TestRequestsAreTheClientsets(t *testing.T) {
	for name, content := range contents {
		t.Run(name, func(t *testing.T) {
			sent := new(recorder)
			ours, theirs := both(t, &rest.Config{Host: "https://192.0.2.1/prefix", QPS: -1, UserAgent: "me", ContentConfig: content, Transport: sent})
			for _, r := range requests() {
				sent.sent = nil
				if _, err := r.ours(t.Context(), ours); !apierrors.IsForbidden(err) {
					t.Errorf("%s: want that it is forbidden, got %v", r.name, err)
				}
				if _, err := r.theirs(t.Context(), theirs); !apierrors.IsForbidden(err) {
					t.Errorf("%s by client-go: want that it is forbidden, got %v", r.name, err)
				}
				if len(sent.sent) != 2 {
					t.Fatalf("%s: %d requests, want 2", r.name, len(sent.sent))
				}
				if diff := cmp.Diff(sent.sent[1], sent.sent[0]); diff != "" {
					t.Errorf("%s (-client-go +ours):\n%s", r.name, diff)
				}
			}
		})
	}
}

// Answers are read as client-go's clientset reads them.
func TestAnswersAreTheClientsets(t *testing.T) {
	s, err := apitest.NewServer(apitest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	for _, name := range []string{"a", "b"} {
		meta := metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/service-name": "c"}}
		s.Set(&corev1.Node{ObjectMeta: meta, Spec: corev1.NodeSpec{PodCIDR: "10.0.0.0/24"}})
		s.Set(&networkingv1.ServiceCIDR{ObjectMeta: meta, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"172.30.0.0/16"}}})
		meta.Namespace = "ns1"
		s.Set(&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: "172.30.0.41"}})
		s.Set(&discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4})
	}
	s.Set(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}})
	for name, content := range contents {
		t.Run(name, func(t *testing.T) {
			conf := s.Config()
			conf.QPS, conf.ContentConfig = -1, content
			ours, theirs := both(t, conf)
			for _, r := range requests() {
				got, err := r.ours(t.Context(), ours)
				want, wantErr := r.theirs(t.Context(), theirs)
				if (err == nil) != (wantErr == nil) || apierrors.ReasonForError(err) != apierrors.ReasonForError(wantErr) {
					t.Errorf("%s: client-go's error is %v, ours %v", r.name, wantErr, err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-client-go +ours):\n%s", r.name, diff)
				}
			}
		})
	}
}

func TestOneRateLimitForAllGroups(t *testing.T) {
	c, err := New(&rest.Config{QPS: 7, Burst: 3})
	if err != nil {
		t.Fatal(err)
	}
	one := c.core.GetRateLimiter()
	if one.QPS() != 7 {
		t.Errorf("limit is %v, want 7", one.QPS())
	}
	for _, group := range []rest.Interface{c.discovery, c.networking, c.events} {
		if group.GetRateLimiter() != one {
			t.Errorf("%s has a limit of its own", group.APIVersion())
		}
	}
	if _, err := New(&rest.Config{QPS: 7, Burst: -1}); err == nil || !strings.Contains(err.Error(), "burst of -1 requests") {
		t.Errorf("nothing would pass: %v", err)
	}
}
