package slim

// Addresses: pods 10.0.0.0/8, cluster IPs 172.30.0.0/16.

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/vmapd/vmapd/model"
)

var (
	standard = scheme.Codecs.WithoutConversion()
	ours     = New(standard)
)

func serializer(tb testing.TB, of runtime.NegotiatedSerializer) runtime.Serializer {
	tb.Helper()
	out, ok := runtime.SerializerInfoForMediaType(of.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		tb.Fatal("no serializer")
	}
	return out.Serializer
}

// encode writes an object as an API server does.
func encode(tb testing.TB, o runtime.Object) []byte {
	tb.Helper()
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	if err != nil {
		tb.Fatal(err)
	}
	o = o.DeepCopyObject()
	o.GetObjectKind().SetGroupVersionKind(kinds[0])
	var b bytes.Buffer
	if err := serializer(tb, standard).Encode(o, &b); err != nil {
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
			Selector:              map[string]string{"a": "b", "c": "d"},
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

func objectsToRead() []runtime.Object {
	m := metav1.ListMeta{ResourceVersion: "12345679", Continue: "more", RemainingItemCount: new(int64(7))}
	return []runtime.Object{
		service(), &corev1.Service{}, slice(0), slice(1), slice(9), &discoveryv1.EndpointSlice{},
		&corev1.ServiceList{ListMeta: m}, &corev1.ServiceList{Items: []corev1.Service{*service(), {}, *service()}},
		&discoveryv1.EndpointSliceList{ListMeta: m, Items: []discoveryv1.EndpointSlice{*slice(7), {}, *slice(2)}},
		&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}},
	}
}

// wanted returns what the standard decoder has read, without what no proxy reads, and without the kind, which client-go
// clears.
func wanted(o runtime.Object) runtime.Object {
	o = o.DeepCopyObject()
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	switch o := o.(type) {
	case *corev1.Service:
		cutService(o)
	case *corev1.ServiceList:
		for i := range o.Items {
			cutService(&o.Items[i])
		}
	case *discoveryv1.EndpointSlice:
		cut(o)
	case *discoveryv1.EndpointSliceList:
		for i := range o.Items {
			cut(&o.Items[i])
		}
	}
	return o
}

func cutMeta(m *metav1.ObjectMeta) {
	*m = metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion,
		CreationTimestamp: m.CreationTimestamp, Labels: m.Labels, Annotations: m.Annotations,
	}
	maps.DeleteFunc(m.Labels, func(k, _ string) bool {
		return k != model.LabelServiceName && k != model.LabelHeadless && k != model.LabelServiceProxyName
	})
	maps.DeleteFunc(m.Annotations, func(k, _ string) bool {
		return k != corev1.EndpointsLastChangeTriggerTime && k != metav1.InitialEventsAnnotationKey &&
			!slices.ContainsFunc(model.Annotations[:], func(a model.Annotation) bool { return a.Name == k })
	})
}

func cutService(s *corev1.Service) {
	cutMeta(&s.ObjectMeta)
	s.Spec.Selector = nil
}

func cut(s *discoveryv1.EndpointSlice) {
	cutMeta(&s.ObjectMeta)
	for i, e := range s.Endpoints {
		s.Endpoints[i] = discoveryv1.Endpoint{Addresses: e.Addresses, Conditions: e.Conditions, NodeName: e.NodeName, Hints: e.Hints}
	}
}

// Nothing of an object is in the data: the buffer of a watch holds the next event soon.
func TestObjects(t *testing.T) {
	for _, o := range objectsToRead() {
		data := encode(t, o)
		full, wantKind, err := serializer(t, standard).Decode(data, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := newReader().read(data); err != nil {
			t.Errorf("%T is left to the standard decoder: %v: %q", o, err, data)
		}
		got, kind, err := serializer(t, ours).Decode(data, nil, nil)
		for i := range data {
			data[i] = 0xff
		}
		if diff := cmp.Diff(wanted(full), got, cmpopts.EquateEmpty()); diff != "" || err != nil {
			t.Errorf("%v (-standard +ours):\n%s", err, diff)
		}
		if *kind != *wantKind {
			t.Errorf("kind %v, want %v", kind, wantKind)
		}
	}
}

// Nobody else knows invalid bytes as well.
func TestOddBytesAreLeftToTheStandardDecoder(t *testing.T) {
	odd := [][]byte{nil, []byte("k8s\x00"), []byte("k8s\x00\xff"), []byte("{}"), encode(t, &corev1.Node{})}
	whole := encode(t, slice(2))
	for n := range whole {
		odd = append(odd, whole[:n])
	}
	d := serializer(t, ours)
	for _, data := range odd {
		its, _, itsErr := serializer(t, standard).Decode(data, nil, nil)
		got, _, err := d.Decode(data, nil, nil)
		if fmt.Sprint(err) != fmt.Sprint(itsErr) {
			t.Errorf("%q: error %v, want %v", data, err, itsErr)
		}
		if err == nil && !cmp.Equal(wanted(its), wanted(got), cmpopts.EquateEmpty()) {
			t.Errorf("%q: got %+v", data, got)
		}
	}
}

// The events of a watch are those that the standard decoder reads.
func TestEvents(t *testing.T) {
	its, own := stream(t, standard), stream(t, ours)
	raw := encode(t, slice(2))
	event, err := (&metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Raw: raw}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(event) + 1 {
		var want, got metav1.WatchEvent
		_, _, itsErr := its.Decode(event[:n], nil, &want)
		_, _, err := own.Decode(event[:n], nil, &got)
		if fmt.Sprint(err) != fmt.Sprint(itsErr) {
			t.Errorf("%d bytes: error %v, want %v", n, err, itsErr)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err == nil && diff != "" {
			t.Errorf("%d bytes (-standard +ours):\n%s", n, diff)
		}
	}
}

func stream(t *testing.T, of runtime.NegotiatedSerializer) runtime.Serializer {
	t.Helper()
	info, _ := runtime.SerializerInfoForMediaType(of.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	return info.StreamSerializer.Serializer
}
