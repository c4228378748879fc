package slim

// Addresses: pods 10.0.0.0/8, cluster IPs 172.30.0.0/16.

import (
	"bytes"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/vmapd/vmapd/model"
)

var (
	standard = scheme.Codecs.WithoutConversion()
	ours     = New(standard)
	formats  = []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON}
)

func serializer(tb testing.TB, of runtime.NegotiatedSerializer, mediaType string) runtime.Serializer {
	tb.Helper()
	out, ok := runtime.SerializerInfoForMediaType(of.SupportedMediaTypes(), mediaType)
	if !ok {
		tb.Fatalf("no serializer for %s", mediaType)
	}
	return out.Serializer
}

// encode writes an object as an API server does.
func encode(tb testing.TB, o runtime.Object, mediaType string) []byte {
	tb.Helper()
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	if err != nil {
		tb.Fatal(err)
	}
	o = o.DeepCopyObject()
	o.GetObjectKind().SetGroupVersionKind(kinds[0])
	var b bytes.Buffer
	if err := serializer(tb, standard, mediaType).Encode(o, &b); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// metadata has each field.
func metadata(name string) metav1.ObjectMeta {
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	return metav1.ObjectMeta{
		Namespace: "team-1", Name: name, GenerateName: "a-", UID: "5e000001", ResourceVersion: "12345678", Generation: 3,
		CreationTimestamp: at, DeletionTimestamp: &at, DeletionGracePeriodSeconds: new(int64(7)), Finalizers: []string{"a/b"},
		Labels: map[string]string{
			model.LabelServiceName: "a", model.LabelHeadless: "", model.LabelServiceProxyName: "other", "a": `"{[\ü<`,
		},
		Annotations: map[string]string{
			model.AnnotationAlgorithm: "maglev", model.AnnotationConnectionGrace: "30s", "b": "{}",
			corev1.EndpointsLastChangeTriggerTime: "2026-01-02T03:04:05.678Z", metav1.InitialEventsAnnotationKey: "true",
		},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: "a", UID: "5e", Controller: new(true)}},
		ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "m", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`)}},
	}
}

func service() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metadata("service-41"),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "172.30.0.41", ClusterIPs: []string{"172.30.0.41", "fd00:172:30::29"},
			ExternalIPs: []string{"192.0.2.1"}, LoadBalancerSourceRanges: []string{"198.51.100.0/24"}, HealthCheckNodePort: 30000,
			Ports:                 []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: 30001}, {Port: 81}},
			Selector:              map[string]string{"a": "b"},
			SessionAffinity:       corev1.ServiceAffinityClientIP,
			SessionAffinityConfig: &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(60))}},
			InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyLocal),
			ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal,
		},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{
			{IP: "192.0.2.2", IPMode: new(corev1.LoadBalancerIPModeProxy)}, {Hostname: "b.example"},
		}}},
	}
}

func slice(endpoints int) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metadata("service-41-bcdfg"), AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{
			{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080)), AppProtocol: new("h2c")}, {Name: new("")}, {},
		},
	}
	for i := range endpoints {
		e := discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.128.0.%d", i+1)},
			Conditions: discoveryv1.EndpointConditions{Ready: new(i%2 == 0), Serving: new(true), Terminating: new(i%3 == 0)},
			NodeName:   new(fmt.Sprint("node-", i)), Zone: new("zone-1"), Hostname: new("h"),
			TargetRef:          &corev1.ObjectReference{Kind: "Pod", Namespace: "team-1", Name: "service-41-7d4b9c6f8-00001", UID: "b0"},
			DeprecatedTopology: map[string]string{"a": "b"},
		}
		switch i % 4 {
		case 1:
			e.Hints = &discoveryv1.EndpointHints{
				ForZones: []discoveryv1.ForZone{{Name: "zone-1"}, {Name: "zone-2"}}, ForNodes: []discoveryv1.ForNode{{Name: "node-1"}},
			}
		case 2:
			e = discoveryv1.Endpoint{Hints: &discoveryv1.EndpointHints{}}
		case 3:
			e.Addresses, e.Conditions = append(e.Addresses, "10.0.0.1"), discoveryv1.EndpointConditions{}
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

// plain is a slice as most are.
func plain(endpoints int) *discoveryv1.EndpointSlice {
	s := slice(0)
	for i := range endpoints {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.128.0.%d", i+1)},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
			NodeName:   new(fmt.Sprint("node-", i)), Zone: new("zone-1"),
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "team-1", Name: "service-41-7d4b9c6f8-00001", UID: "b0000001-0000-4000-8000-000000000001"},
		})
	}
	return s
}

func objectsToRead() []runtime.Object {
	m := metav1.ListMeta{ResourceVersion: "12345679", Continue: "more", RemainingItemCount: new(int64(7))}
	return []runtime.Object{
		service(), &corev1.Service{}, slice(0), slice(1), slice(9), &discoveryv1.EndpointSlice{},
		&corev1.ServiceList{ListMeta: m}, &corev1.ServiceList{Items: []corev1.Service{*service(), {}, *service()}},
		&discoveryv1.EndpointSliceList{ListMeta: m, Items: []discoveryv1.EndpointSlice{*slice(7), {}, *slice(2)}},
		&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}},
	}
}

// content compares objects without their sums, which are those of different bytes.
var content = cmp.Options{
	cmp.AllowUnexported(Meta{}), cmpopts.IgnoreFields(Meta{}, "sum", "Object"), cmpopts.IgnoreUnexported(EndpointSlice{}),
	cmpopts.EquateEmpty(),
}

// wanted converts an object that the standard decoder has read, without the labels that no proxy reads.
func wanted(o runtime.Object) runtime.Object {
	o = From(o)
	switch o := o.(type) {
	case *Service:
		maps.DeleteFunc(o.Model.Labels, func(k, _ string) bool { return !forProxies(k) })
	case *EndpointSlice:
		maps.DeleteFunc(o.Model.Labels, func(k, _ string) bool { return k != model.LabelServiceName && k != model.LabelHeadless })
	case *ServiceList:
		for _, o := range o.Items {
			maps.DeleteFunc(o.Model.Labels, func(k, _ string) bool { return !forProxies(k) })
		}
	case *EndpointSliceList:
		for _, o := range o.Items {
			maps.DeleteFunc(o.Model.Labels, func(k, _ string) bool { return k != model.LabelServiceName && k != model.LabelHeadless })
		}
	}
	return o
}

// Of both formats, the wanted fields are those that the standard decoder reads.
func TestObjects(t *testing.T) {
	for _, o := range objectsToRead() {
		for _, format := range formats {
			data := encode(t, o, format)
			full, wantKind, err := serializer(t, standard, format).Decode(data, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, ok := serializer(t, ours, format).(objects).read(data); !ok {
				t.Errorf("%s: %T is left to the standard decoder: %q", format, o, data)
			}
			got, kind, err := serializer(t, ours, format).Decode(data, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(wanted(full), got, content); diff != "" {
				t.Errorf("%s (-standard +ours):\n%s", format, diff)
			}
			if *kind != *wantKind {
				t.Errorf("%s: kind %v, want %v", format, kind, wantKind)
			}
		}
	}
}

func TestListsAreReadInto(t *testing.T) {
	for _, format := range formats {
		data := encode(t, &discoveryv1.EndpointSliceList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []discoveryv1.EndpointSlice{*slice(1)}}, format)
		into := &EndpointSliceList{Items: make([]*EndpointSlice, 3)}
		out, _, err := serializer(t, ours, format).Decode(data, nil, into)
		if err != nil || out != into || len(into.Items) != 1 || into.ResourceVersion != "7" {
			t.Errorf("%s: got %+v, %v", format, out, err)
		}
		failure := encode(t, &metav1.Status{Status: metav1.StatusFailure, Code: 410}, format)
		out, _, err = serializer(t, ours, format).Decode(failure, nil, &ServiceList{})
		if s, ok := out.(*metav1.Status); err != nil || !ok || s.Code != 410 {
			t.Errorf("%s: got %+v, %v, want the Status", format, out, err)
		}
	}
}

// Nobody else knows invalid bytes as well.
func TestOddBytesAreLeftToTheStandardDecoder(t *testing.T) {
	for _, text := range []string{
		"", "{", "null", "7", `{"kind":"EndpointSlice"}`, `{"kind":"Node","apiVersion":"v1"}`,
		`{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","addressType":7}`,
		`{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","endpoints":{}}`,
		`{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","ports":[{"port":80.5}]}`,
		`{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","ports":[{"port":4294967376}]}`,
		`{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","ports":[{"port":1}{"port":2}]}`,
		`{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","endpoints":[{"conditions":{"ready":"yes"}}]}`,
		`{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","endpoints":[{"addresses":["10.0.0.1"`,
		`{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{"name":"a"},"metadata":{"name":"b"}}`,
		`{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1"} {}`,
	} {
		its, _, itsErr := serializer(t, standard, runtime.ContentTypeJSON).Decode([]byte(text), nil, nil)
		if _, _, ok := serializer(t, ours, runtime.ContentTypeJSON).(objects).read([]byte(text)); ok {
			t.Errorf("%s is read here", text)
		}
		got, _, err := serializer(t, ours, runtime.ContentTypeJSON).Decode([]byte(text), nil, nil)
		if fmt.Sprint(err) != fmt.Sprint(itsErr) {
			t.Errorf("%s: error %v, want %v", text, err, itsErr)
		}
		if err == nil && !cmp.Equal(wanted(its), got, content) {
			t.Errorf("%s: got %+v", text, got)
		}
	}
}

func TestNullsAndEscapes(t *testing.T) {
	text := `{ "kind" : "EndpointSlice", "apiVersion":"discovery.k8s.io\/v1", "metadata":{"name":"a\u00fc\n","labels":null,"annotations":{"a":null}},
		"endpoints":[null,{"addresses":null,"conditions":null,"hints":null,"nodeName":null},
		{"addresses":["\u0031","2",null],"conditions":{"ready":null,"serving":true},"hints":{"forZones":[null,{"name":"z"}],"forNodes":null}}],
		"ports":[{"name":null,"port":null,"protocol":null},{"appProtocol":"]}\"["}],"addressType":"IPv4","more":[[],{},-1.5e9,"\\",false]}`
	full, _, err := serializer(t, standard, runtime.ContentTypeJSON).Decode([]byte(text), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, _, ok := serializer(t, ours, runtime.ContentTypeJSON).(objects).read([]byte(text))
	if diff := cmp.Diff(wanted(full), got, content); diff != "" || !ok {
		t.Errorf("%v (-standard +ours):\n%s", ok, diff)
	}
}

// An object has one sum in a list and in an event. With another version or content, it has another.
func TestSums(t *testing.T) {
	for _, format := range formats {
		sum := func(o runtime.Object) uint64 {
			out, _, ok := serializer(t, ours, format).(objects).read(encode(t, o, format))
			if !ok {
				t.Fatalf("%T is not read", o)
			}
			switch out := out.(type) {
			case *ServiceList:
				return out.Items[0].Sum()
			case *EndpointSliceList:
				return out.Items[0].Sum()
			}
			return out.(interface{ Sum() uint64 }).Sum()
		}
		if a, b := sum(service()), sum(&corev1.ServiceList{Items: []corev1.Service{*service()}}); a != b {
			t.Errorf("%s: a Service has the sum %x, in a list %x", format, a, b)
		}
		if a, b := sum(slice(3)), sum(&discoveryv1.EndpointSliceList{Items: []discoveryv1.EndpointSlice{*slice(3)}}); a != b {
			t.Errorf("%s: a slice has the sum %x, in a list %x", format, a, b)
		}
		seen := map[uint64]string{sum(slice(3)): "the original"}
		for name, change := range map[string]func(*discoveryv1.EndpointSlice){
			"version":          func(o *discoveryv1.EndpointSlice) { o.ResourceVersion = "2" },
			"a label":          func(o *discoveryv1.EndpointSlice) { o.Labels["z"] = "" },
			"a port":           func(o *discoveryv1.EndpointSlice) { o.Ports[0].Port = new(int32(81)) },
			"order of ports":   func(o *discoveryv1.EndpointSlice) { o.Ports[0], o.Ports[1] = o.Ports[1], o.Ports[0] },
			"order":            func(o *discoveryv1.EndpointSlice) { o.Endpoints[0], o.Endpoints[1] = o.Endpoints[1], o.Endpoints[0] },
			"a condition":      func(o *discoveryv1.EndpointSlice) { o.Endpoints[0].Conditions.Ready = new(false) },
			"an endpoint less": func(o *discoveryv1.EndpointSlice) { o.Endpoints = o.Endpoints[:2] },
		} {
			o := slice(3)
			change(o)
			got := sum(o)
			if other, ok := seen[got]; ok {
				t.Errorf("%s, %s: the sum is that of %s", format, name, other)
			}
			seen[got] = name
		}
	}
}

// The memory of a slice is used again, but nothing of what it held.
func TestReleasedMemory(t *testing.T) {
	for _, format := range formats {
		d := serializer(t, ours, format).(objects)
		for _, o := range []*discoveryv1.EndpointSlice{slice(9), slice(2), {}, slice(5)} {
			data := encode(t, o, format)
			full, _, err := serializer(t, standard, format).Decode(data, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			out, _, ok := d.read(data)
			for i := range data {
				data[i] = 0xff // the buffer of a watch holds the next event soon
			}
			if diff := cmp.Diff(wanted(full), out, content); diff != "" || !ok {
				t.Errorf("%s (-standard +ours):\n%s", format, diff)
			}
			out.(*EndpointSlice).Release()
		}
	}
}

func TestCopiesShareNothingThatIsReleased(t *testing.T) {
	d := serializer(t, ours, runtime.ContentTypeProtobuf).(objects)
	first, _, _ := d.read(encode(t, slice(5), runtime.ContentTypeProtobuf))
	want := wanted(slice(5))
	out := first.DeepCopyObject()
	first.(*EndpointSlice).Release()
	for range 3 {
		if _, _, ok := d.read(encode(t, slice(1), runtime.ContentTypeProtobuf)); !ok {
			t.Fatal("not read")
		}
	}
	if diff := cmp.Diff(want, out, content); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Everything that the model reads of a Service's labels and annotations has one of two prefixes.
func TestWhatIsReadOfMetadata(t *testing.T) {
	keys := []string{model.LabelServiceProxyName, model.LabelHeadless}
	for _, a := range model.Annotations {
		keys = append(keys, a.Name)
	}
	for _, key := range keys {
		if !forProxies(key) {
			t.Errorf("%s is not read", key)
		}
	}
	if forProxies(corev1.LastAppliedConfigAnnotation) {
		t.Error("the last applied configuration is read")
	}
}
