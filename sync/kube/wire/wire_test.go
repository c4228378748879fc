package wire

// Addresses: pods 10.0.0.0/8, cluster IPs 172.30.0.0/16.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	restwatch "k8s.io/client-go/rest/watch"
)

var (
	standard = scheme.Codecs.WithoutConversion()
	ours     = New(scheme.Scheme, standard)
)

// format returns one of the formats of a serializer.
func format(tb testing.TB, of runtime.NegotiatedSerializer, mediaType string) runtime.SerializerInfo {
	tb.Helper()
	out, ok := runtime.SerializerInfoForMediaType(of.SupportedMediaTypes(), mediaType)
	if !ok {
		tb.Fatalf("no serializer for %s", mediaType)
	}
	return out
}

func protobuf(tb testing.TB, of runtime.NegotiatedSerializer) runtime.Serializer {
	tb.Helper()
	return format(tb, of, runtime.ContentTypeProtobuf).Serializer
}

// encode writes an object as an API server does.
func encode(tb testing.TB, o runtime.Object) []byte {
	tb.Helper()
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	if err != nil {
		tb.Fatal(err)
	}
	return encodeAs(tb, o, kinds[0])
}

func encodeAs(tb testing.TB, o runtime.Object, kind schema.GroupVersionKind) []byte {
	tb.Helper()
	o = o.DeepCopyObject()
	o.GetObjectKind().SetGroupVersionKind(kind)
	var b bytes.Buffer
	if err := protobuf(tb, standard).Encode(o, &b); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

const fieldsOfLabels = `{"f:metadata":{"f:annotations":{".":{},"f:kubectl.kubernetes.io/last-applied-configuration":{}},` +
	`"f:labels":{".":{},"f:app.kubernetes.io/instance":{},"f:app.kubernetes.io/managed-by":{},"f:app.kubernetes.io/name":{},` +
	`"f:app.kubernetes.io/version":{},"f:helm.sh/chart":{}}},`

// metadataOf is what an object has that was installed with Helm, but for its name.
func metadataOf(name, fields string) metav1.ObjectMeta {
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	return metav1.ObjectMeta{
		Namespace: "team-1", Name: name, UID: "5e000001-0000-4000-8000-000000000001", ResourceVersion: "12345678", Generation: 3, CreationTimestamp: at,
		Labels: map[string]string{
			"app.kubernetes.io/name": "service-41", "app.kubernetes.io/instance": "team-1", "app.kubernetes.io/managed-by": "Helm",
			"app.kubernetes.io/version": "1.17.3", "helm.sh/chart": "service-41-4.2.1",
		},
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &at,
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fieldsOfLabels + fields + "}"),
		}},
	}
}

func service() *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metadataOf("service-41", `"f:spec":{"f:internalTrafficPolicy":{},"f:ports":{".":{},"k:{\"port\":80,\"protocol\":\"TCP\"}":`+
			`{".":{},"f:name":{},"f:port":{},"f:protocol":{},"f:targetPort":{}}},"f:selector":{},"f:sessionAffinity":{},"f:type":{}}`),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "172.30.0.41", ClusterIPs: []string{"172.30.0.41"},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: new(corev1.IPFamilyPolicySingleStack),
			Ports:                 []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(8080)}},
			Selector:              map[string]string{"app.kubernetes.io/name": "service-41", "app.kubernetes.io/instance": "team-1"},
			SessionAffinity:       corev1.ServiceAffinityNone,
			InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster),
		},
	}
	s.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: `{"apiVersion":"v1","kind":"Service","metadata":{"annotations":{},"labels":{` +
		`"app.kubernetes.io/instance":"team-1","app.kubernetes.io/managed-by":"Helm","app.kubernetes.io/name":"service-41"},"name":"service-41",` +
		`"namespace":"team-1"},"spec":{"ports":[{"name":"http","port":80,"protocol":"TCP","targetPort":8080}],"type":"ClusterIP"}}`}
	return s
}

func slice(endpoints int) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metadataOf("service-41-bcdfg", `"f:addressType":{},"f:endpoints":{},"f:ports":{}`),
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))}},
	}
	s.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: "2026-01-02T03:04:05Z"}
	s.Labels[discoveryv1.LabelServiceName] = "service-41"
	s.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "Service", Name: "service-41", UID: s.UID, Controller: new(true), BlockOwnerDeletion: new(true),
	}}
	for i := range endpoints {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.128.0.%d", i+1)},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
			NodeName:   new("node-1"), Zone: new("zone-1"),
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "team-1", Name: "service-41-7d4b9c6f8-00001", UID: s.UID},
		})
	}
	return s
}

// lists are both what a server sends that knows no streaming lists.
func lists() []runtime.Object {
	m := metav1.ListMeta{ResourceVersion: "12345679", Continue: "more", RemainingItemCount: new(int64(7))}
	return []runtime.Object{
		&corev1.ServiceList{ListMeta: m},
		&corev1.ServiceList{ListMeta: m, Items: []corev1.Service{*service(), {}, *service()}},
		&discoveryv1.EndpointSliceList{ListMeta: m, Items: []discoveryv1.EndpointSlice{*slice(1), *slice(0)}},
	}
}

// unmanage removes the managed fields of an object, or of those in a list.
func unmanage(tb testing.TB, o runtime.Object) {
	tb.Helper()
	unmanageOne := func(o runtime.Object) error {
		m, err := meta.Accessor(o)
		if err == nil {
			m.SetManagedFields(nil)
		}
		return err
	}
	var err error
	if meta.IsListType(o) {
		err = meta.EachListItem(o, unmanageOne)
	} else if _, ok := o.(object); ok {
		err = unmanageOne(o)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// decoded is what a decoder says.
type decoded struct {
	Object runtime.Object
	Kind   *schema.GroupVersionKind
	Err    string
}

func decode(d runtime.Decoder, data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (out decoded) {
	o, k, err := d.Decode(data, defaults, into)
	if err != nil {
		return decoded{Kind: k, Err: err.Error()}
	}
	return decoded{Object: o, Kind: k}
}

// same checks that both decoders say the same of the bytes, but for the managed fields.
func same(t *testing.T, data []byte, into runtime.Object) decoded {
	t.Helper()
	var intoOurs runtime.Object
	if into != nil {
		intoOurs = into.DeepCopyObject()
	}
	want, got := decode(protobuf(t, standard), data, nil, into), decode(protobuf(t, ours), data, nil, intoOurs)
	if want.Object != nil {
		unmanage(t, want.Object)
	}
	// What another type was expected for is left to the standard decoder.
	if got.Object != nil && into != nil && reflect.TypeOf(into) != reflect.TypeOf(got.Object) {
		unmanage(t, got.Object)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-standard +ours:\n%s", diff)
	}
	if intoOurs != nil && got.Object != nil && (got.Object == intoOurs) != (want.Object == into) {
		t.Error("is not what was given")
	}
	return got
}

func TestObjects(t *testing.T) {
	for _, o := range append(lists(), service(), slice(0), slice(3), &corev1.Service{}) {
		data := encode(t, o)
		same(t, data, nil)
		full := reflect.New(reflect.TypeOf(o).Elem()).Interface().(runtime.Object)
		if _, _, err := protobuf(t, standard).Decode(data, nil, full); err != nil {
			t.Fatal(err)
		}
		same(t, data, full) // what it held is gone
		same(t, data, service())
		same(t, data, &metav1.Status{})
		same(t, data, &runtime.Unknown{})
	}
}

// The decoder makes assumptions about types, which must be true for all kinds.
func TestEveryKindOfTheScheme(t *testing.T) {
	kinds := protobuf(t, ours).(objects).kinds
	for _, k := range kinds {
		o := reflect.New(k.pointer.Elem()).Interface().(runtime.Object)
		if one, ok := o.(object); ok {
			*one.GetObjectMeta().(*metav1.ObjectMeta) = metadataOf("a", "")
		} else {
			l, err := meta.ListAccessor(o)
			if err != nil {
				t.Fatal(err)
			}
			l.SetResourceVersion("7")
			all := reflect.ValueOf(o).Elem().FieldByName(itemsName)
			all.Set(reflect.MakeSlice(all.Type(), 2, 2))
			for i := range 2 {
				*all.Index(i).Addr().Interface().(object).GetObjectMeta().(*metav1.ObjectMeta) = metadataOf(fmt.Sprint("a", i), "")
			}
		}
		got := same(t, encodeAs(t, o, k.GroupVersionKind), nil)
		if got.Object == nil || reflect.TypeOf(got.Object) != k.pointer {
			t.Errorf("%v became %+v", k.GroupVersionKind, got)
		}
	}
	for _, name := range []string{"Service", "ServiceList", "Node", "NodeList"} {
		if _, ok := kinds[metav1.TypeMeta{APIVersion: "v1", Kind: name}]; !ok {
			t.Errorf("%s is not read here", name)
		}
	}
	if len(kinds) < 200 {
		t.Errorf("only %d kinds", len(kinds))
	}
}

// bytesField is a field as it is encoded.
func bytesField(n protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), content)
}

// envelope is an object as it is sent.
func envelope(apiVersion, kind string, raw []byte) []byte {
	name := slices.Concat(bytesField(1, []byte(apiVersion)), bytesField(2, []byte(kind)))
	return slices.Concat(magic, bytesField(1, name), bytesField(2, raw))
}

// odd are messages that no API server sends.
func odd(tb testing.TB) map[string][]byte {
	tb.Helper()
	var (
		name    = bytesField(1, bytesField(1, []byte("a")))
		managed = bytesField(1, bytesField(17, bytesField(1, []byte("m"))))
		varint  = protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 7)
		group   = slices.Concat(protowire.AppendTag(nil, 77, protowire.StartGroupType), varint, protowire.AppendTag(nil, 77, protowire.EndGroupType))
		unknown = bytesField(99, []byte("?"))
		typed   = bytesField(1, slices.Concat(bytesField(1, []byte("v1")), bytesField(2, []byte("Service"))))
		whole   = encode(tb, service())
	)
	return map[string][]byte{
		"nothing":                    nil,
		"only the magic":             magic,
		"a part of the magic":        magic[:2],
		"JSON":                       []byte(`{"kind":"Service","apiVersion":"v1"}`),
		"a Status":                   encode(tb, &metav1.Status{Status: metav1.StatusFailure, Code: 410, Message: "too old"}),
		"an event":                   encode(tb, &metav1.WatchEvent{Type: "ADDED"}),
		"a kind that is unknown":     envelope("v1", "Thing", name),
		"a version that is unknown":  envelope("v7", "Service", name),
		"a version that is none":     envelope("a/b/c", "Service", name),
		"no kind":                    envelope("v1", "", name),
		"no version":                 envelope("", "Service", name),
		"no content":                 slices.Concat(magic, typed),
		"empty content":              envelope("v1", "Service", nil),
		"the kind twice":             slices.Concat(magic, typed, bytesField(1, bytesField(2, []byte("Node"))), bytesField(2, name)),
		"the content twice":          slices.Concat(magic, typed, bytesField(2, name), bytesField(2, nil)),
		"an unknown field outside":   slices.Concat(magic, typed, unknown, bytesField(2, name)),
		"a number as the content":    slices.Concat(magic, typed, protowire.AppendTag(nil, 2, protowire.VarintType), []byte{1}),
		"metadata twice":             envelope("v1", "Service", slices.Concat(name, managed, bytesField(1, bytesField(3, []byte("b"))))),
		"a number as the metadata":   envelope("v1", "Service", varint),
		"a number as managed fields": envelope("v1", "Service", bytesField(1, protowire.AppendVarint(protowire.AppendTag(nil, 17, protowire.VarintType), 1))),
		"managed fields everywhere":  envelope("v1", "Service", slices.Concat(managed, bytesField(1, bytesField(1, []byte("a"))), managed, unknown, managed)),
		"unknown fields":             envelope("v1", "Service", slices.Concat(unknown, bytesField(1, slices.Concat(unknown, group)), group, name)),
		"a group without an end":     envelope("v1", "Service", protowire.AppendTag(nil, 77, protowire.StartGroupType)),
		"an end of no group":         envelope("v1", "Service", protowire.AppendTag(nil, 77, protowire.EndGroupType)),
		"field 0":                    envelope("v1", "Service", []byte{0x02, 0x00}),
		"a field of 36 bits":         envelope("v1", "Service", []byte{0x8a, 0x80, 0x80, 0x80, 0x80, 0x20, 0x02, 0x0a, 0x00}),
		"a long way to say 1":        envelope("v1", "Service", []byte{0x8a, 0x80, 0x00, 0x03, 0x0a, 0x01, 'a'}),
		"a length beyond the end":    envelope("v1", "Service", []byte{0x0a, 0x7f, 'a'}),
		"a negative length":          envelope("v1", "Service", []byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}),
		"a wrong spec":               envelope("v1", "Service", slices.Concat(name, bytesField(2, []byte{0xff}))),
		"items apart":                envelope("v1", "ServiceList", slices.Concat(bytesField(2, managed), bytesField(1, bytesField(2, []byte("7"))), bytesField(2, name))),
		"a number as an item":        envelope("v1", "ServiceList", protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), 7)),
		"a wrong item":               envelope("v1", "ServiceList", slices.Concat(bytesField(2, name), bytesField(2, []byte{0xff}))),
		"half of it":                 whole[:len(whole)/2],
	}
}

func TestOddBytes(t *testing.T) {
	for name, data := range odd(t) {
		t.Run(name, func(t *testing.T) {
			same(t, data, nil)
			same(t, data, service())
			same(t, data, &corev1.ServiceList{ListMeta: metav1.ListMeta{Continue: "old"}, Items: []corev1.Service{*service()}})
		})
	}
}

// The buffer of a watch holds the next event soon.
func TestNothingIsShared(t *testing.T) {
	for _, o := range append(lists(), service(), slice(3)) {
		data := encode(t, o)
		got := decode(protobuf(t, ours), data, nil, nil).Object
		for i := range data {
			data[i] = 0xff
		}
		unmanage(t, o)
		got.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		if diff := cmp.Diff(o, got); diff != "" {
			t.Errorf("after its bytes were written over (-want +got):\n%s", diff)
		}
	}
}

// frames is what a server sends in a watch.
func frames(tb testing.TB, events ...metav1.WatchEvent) []byte {
	tb.Helper()
	var b bytes.Buffer
	f := format(tb, standard, runtime.ContentTypeProtobuf).StreamSerializer
	to := streaming.NewEncoder(f.NewFrameWriter(&b), f.Serializer)
	for i := range events {
		if err := to.Encode(&events[i]); err != nil {
			tb.Fatal(err)
		}
	}
	return b.Bytes()
}

func event(tb testing.TB, kind watch.EventType, o runtime.Object) metav1.WatchEvent {
	tb.Helper()
	return metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: encode(tb, o)}}
}

// newWatch decodes a watch as client-go's client does.
func newWatch(tb testing.TB, by runtime.NegotiatedSerializer, from io.Reader) *restwatch.Decoder {
	tb.Helper()
	object, stream, framer, err := runtime.NewClientNegotiator(by, schema.GroupVersion{}).StreamDecoder(runtime.ContentTypeProtobuf, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return restwatch.NewDecoder(streaming.NewDecoder(framer.NewFrameReader(io.NopCloser(from)), stream), object)
}

func TestWatch(t *testing.T) {
	small := service()
	small.Name, small.Labels, small.Annotations = "a", nil, nil
	status := &metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired}
	sent := []watch.Event{
		{Type: watch.Added, Object: service()},
		{Type: watch.Modified, Object: small},
		{Type: watch.Deleted, Object: slice(100)},
		{Type: watch.Bookmark, Object: &corev1.Service{ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: "9", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		}}},
		{Type: watch.Error, Object: status},
		{Type: watch.Added, Object: slice(1)},
	}
	var events []metav1.WatchEvent
	for _, e := range sent {
		events = append(events, event(t, e.Type, e.Object))
	}
	w := newWatch(t, ours, bytes.NewReader(frames(t, events...)))
	var got []watch.Event
	for {
		kind, o, err := w.Decode()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, watch.Event{Type: kind, Object: o})
	}
	for _, e := range sent {
		unmanage(t, e.Object)
	}
	if diff := cmp.Diff(sent, got); diff != "" {
		t.Errorf("(-sent +got):\n%s", diff)
	}
}

// oddEvents are such as no API server sends, and ordinary ones.
func oddEvents(tb testing.TB) map[string][]byte {
	tb.Helper()
	var (
		kind   = bytesField(1, []byte("ADDED"))
		raw    = bytesField(2, bytesField(1, []byte("{}")))
		varint = protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), 7)
	)
	whole, err := new(event(tb, watch.Added, service())).Marshal()
	if err != nil {
		tb.Fatal(err)
	}
	return map[string][]byte{
		"as it should be":        whole,
		"nothing":                nil,
		"only a type":            kind,
		"only an object":         raw,
		"an empty object":        slices.Concat(kind, bytesField(2, nil)),
		"an object of no bytes":  slices.Concat(kind, bytesField(2, bytesField(1, nil))),
		"the type last":          slices.Concat(raw, kind),
		"the type twice":         slices.Concat(kind, raw, bytesField(1, []byte("DELETED"))),
		"the object twice":       slices.Concat(kind, raw, bytesField(2, nil)),
		"the raw object twice":   slices.Concat(kind, bytesField(2, slices.Concat(bytesField(1, []byte("a")), bytesField(1, []byte("b"))))),
		"an unknown field":       slices.Concat(kind, bytesField(3, []byte("?")), raw),
		"a number as the object": slices.Concat(kind, varint),
		"half of it":             whole[:len(whole)/2],
		"a length beyond it":     {0x0a, 0x7f, 'a'},
	}
}

// sameEvent checks that both decoders say the same of an event.
func sameEvent(t *testing.T, data []byte) {
	t.Helper()
	by := func(s runtime.NegotiatedSerializer) decoded {
		old := &metav1.WatchEvent{Type: "OLD", Object: runtime.RawExtension{Raw: []byte("old")}}
		out := decode(format(t, s, runtime.ContentTypeProtobuf).StreamSerializer.Serializer, data, nil, old)
		out.Kind = nil // of the event itself; an event does not say it
		return out
	}
	if diff := cmp.Diff(by(standard), by(ours)); diff != "" {
		t.Errorf("-standard +ours:\n%s", diff)
	}
}

func TestOddEvents(t *testing.T) {
	for name, data := range oddEvents(t) {
		t.Run(name, func(t *testing.T) { sameEvent(t, data) })
	}
}

func TestOtherFormatsAreTheStandardOnes(t *testing.T) {
	for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML} {
		for _, s := range []runtime.NegotiatedSerializer{standard, ours} {
			var b bytes.Buffer
			f := format(t, s, mediaType)
			if err := f.Serializer.Encode(service(), &b); err != nil {
				t.Fatal(err)
			}
			got, _, err := f.Serializer.Decode(b.Bytes(), new(corev1.SchemeGroupVersion.WithKind("Service")), nil)
			if err != nil {
				t.Fatal(err)
			}
			got.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
			if diff := cmp.Diff(runtime.Object(service()), got, cmp.Comparer(func(a, b metav1.Time) bool { return a.Equal(&b) })); diff != "" {
				t.Errorf("%s (-sent +got):\n%s", mediaType, diff)
			}
		}
	}
}
