package main

import (
	"encoding/binary"
	"fmt"
	"iter"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vmapd/vmapd/model"
)

// shape describes a cluster: the number of Services, and of endpoints of each.
type shape struct{ services, endpoints int }

// most bounds both numbers: there are no more addresses.
const most = 1_000_000

// parseShape understands 5000x50.
func parseShape(text string) (s shape, err error) {
	_, err = fmt.Sscanf(text, "%dx%d", &s.services, &s.endpoints)
	if err != nil || s.String() != text || min(s.services, s.endpoints) < 1 || max(s.services, s.endpoints) > most {
		return shape{}, fmt.Errorf("shape %q: want SERVICESxENDPOINTS, each from 1 to %d", text, most)
	}
	return s, nil
}

func (s shape) String() string { return fmt.Sprintf("%dx%d", s.services, s.endpoints) }

// The Node of the measured proxy, which has its share of the pods, and the range with the addresses of all pods alone.
const (
	nodeName, nodeAddress = "node-0", "192.168.0.2"
	podRange              = "10.128.0.0/9"
	serviceRange          = "10.96.0.0/12" // as wide as the API server allows: there are up to a million Services
)

const portName, portNumber, targetPort = "http", 80, 8080

// objects are those of a cluster that exists nowhere, as large as real ones: fields that no proxy reads are a large
// part of what is sent, decoded and discarded. All Services have a cluster IP of IPv4 and one TCP port, and all pods
// are ready. The same shape gives the same objects and the same changes.
type objects struct {
	shape
	slices [][]*discoveryv1.EndpointSlice // of each Service
	pods   int                            // made so far, also those that are gone
	turns  [2]int                         // of the Services whose changes are timed, and of the others
}

func newObjects(s shape) *objects {
	const perSlice = 100 // the EndpointSlice controller's limit
	o := &objects{shape: s, slices: make([][]*discoveryv1.EndpointSlice, s.services)}
	for i := range o.slices {
		for n := 0; n < s.endpoints; n += perSlice {
			slice := endpointSlice(i, len(o.slices[i]))
			for range min(perSlice, s.endpoints-n) {
				slice.Endpoints = append(slice.Endpoints, o.newEndpoint(i))
			}
			o.slices[i] = append(o.slices[i], slice)
		}
	}
	return o
}

// all are all that the API server has, in no useful order.
func (o *objects) all() iter.Seq[runtime.Object] {
	return func(yield func(runtime.Object) bool) {
		if !yield(node()) || !yield(serviceCIDR()) {
			return
		}
		for i, slices := range o.slices {
			if !yield(service(i)) {
				return
			}
			for _, s := range slices {
				if !yield(s) {
					return
				}
			}
		}
	}
}

// replace replaces the oldest endpoint of a slice by a new one, as a rollout does, and returns the slice and the new
// endpoint's address, which no endpoint had before. The Services take turns: those whose changes are timed are others
// than those that change meanwhile, unless there is one alone.
func (o *objects) replace(timed bool, at time.Time) (*discoveryv1.EndpointSlice, netip.Addr) {
	const mostTimed = 500
	first, of, turn := 0, min(mostTimed, max(1, o.services/10)), &o.turns[0] //nolint:mnd // one of ten
	if !timed {
		first, of, turn = min(of, o.services-1), max(1, o.services-of), &o.turns[1]
	}
	i := first + *turn%of
	slice := o.slices[i][*turn/of%len(o.slices[i])]
	*turn++
	e := o.newEndpoint(i)
	slice.Endpoints = append(slice.Endpoints[1:len(slice.Endpoints):len(slice.Endpoints)], e)
	slice.Generation++
	slice.Annotations[corev1.EndpointsLastChangeTriggerTime] = at.UTC().Format(time.RFC3339Nano)
	return slice, netip.MustParseAddr(e.Addresses[0])
}

// newEndpoint makes a pod of the i-th Service.
func (o *objects) newEndpoint(i int) discoveryv1.Endpoint {
	const perNode = 50 // is typical; the kubelet allows 110
	n, nodes := o.pods, max(3, o.services*o.endpoints/perNode)
	o.pods++
	return discoveryv1.Endpoint{
		Addresses:  []string{nth(podRange, 1+n)},
		Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
		NodeName:   new(fmt.Sprintf("node-%d", n%nodes)), Zone: new(zone(n % nodes)),
		TargetRef: &corev1.ObjectReference{
			Kind: "Pod", Namespace: namespace(i), Name: fmt.Sprintf("%s-7d4b9c6f8-%05x", name(i), n), UID: uid("b0", n),
		},
	}
}

func namespace(i int) string { return fmt.Sprintf("team-%d", i/40) }
func name(i int) string      { return fmt.Sprintf("service-%d", i) }
func zone(node int) string   { return fmt.Sprintf("eu-west-1%c", 'a'+node%3) }

// created is when the i-th Service was made.
func created(i int) metav1.Time {
	return metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(time.Duration(i-most) * time.Second))
}

// nth returns the address n after the first of a range.
func nth(addresses string, n int) string {
	b := netip.MustParsePrefix(addresses).Addr().As4()
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(b[:])+uint32(n))
	return netip.AddrFrom4(b).String()
}

// service is the i-th Service, of a Helm chart, with an annotation that is as long as that of kubectl apply.
func service(i int) *corev1.Service {
	const first = 10 // as the API server keeps the first for itself and for DNS
	vip := nth(serviceRange, first+i)
	const applied = `{"kind":"Service","metadata":{"name":%q,"namespace":%q},"spec":%s}`
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace(i), Name: name(i), UID: uid("5e", i), CreationTimestamp: created(i), Labels: labels(i),
			Annotations: map[string]string{
				"meta.helm.sh/release-name":        name(i),
				corev1.LastAppliedConfigAnnotation: fmt.Sprintf(applied, name(i), namespace(i), fieldsOf(400)),
			},
			ManagedFields: managedFields("helm", 600, created(i)),
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: vip, ClusterIPs: []string{vip},
			SessionAffinity: corev1.ServiceAffinityNone,
			Ports: []corev1.ServicePort{{
				Name: portName, Protocol: corev1.ProtocolTCP, Port: portNumber, TargetPort: intstr.FromInt32(targetPort),
			}},
			Selector:       map[string]string{"app.kubernetes.io/name": name(i), "app.kubernetes.io/instance": namespace(i)},
			IPFamilyPolicy: new(corev1.IPFamilyPolicySingleStack), IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster),
		},
	}
}

// endpointSlice is the n-th one of the i-th Service as its controller writes it, still without endpoints.
func endpointSlice(i, n int) *discoveryv1.EndpointSlice {
	o := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace(i), Name: fmt.Sprintf("%s-%05d", name(i), n), GenerateName: name(i) + "-",
			UID: uid("e5", i<<16|n), Generation: 1, CreationTimestamp: created(i), Labels: labels(i),
			Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: created(i).Format(time.RFC3339Nano)},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Service", Name: name(i), UID: uid("5e", i),
				Controller: new(true), BlockOwnerDeletion: new(true),
			}},
			ManagedFields: managedFields("kube-controller-manager", 650, created(i)),
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{
			Name: new(portName), Protocol: new(corev1.ProtocolTCP), Port: new(int32(targetPort)),
		}},
	}
	o.Labels[discoveryv1.LabelServiceName] = name(i)
	o.Labels[discoveryv1.LabelManagedBy] = "endpointslice-controller.k8s.io"
	return o
}

// node is the proxy's Node: half of a real one is the images that it has.
func node() *corev1.Node {
	o := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: nodeName, UID: uid("0d", 0), CreationTimestamp: created(most),
			Labels:        map[string]string{model.LabelZone: zone(0), corev1.LabelHostname: nodeName},
			ManagedFields: managedFields("kubelet", 300, created(most)),
		},
		Spec: corev1.NodeSpec{PodCIDR: podRange, PodCIDRs: []string{podRange}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: nodeAddress}, {Type: corev1.NodeHostName, Address: nodeName},
		}},
	}
	const images = 50
	for i := range images {
		o.Status.Images = append(o.Status.Images, corev1.ContainerImage{
			Names: []string{fmt.Sprintf("registry.example.com/team-%d/app@sha256:%064x", i, i)}, SizeBytes: int64(i+1) << 24,
		})
	}
	return o
}

func serviceCIDR() *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes", UID: uid("c1", 0)},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{serviceRange}},
	}
}

// labels are those of a Helm chart. The controller copies them to slices.
func labels(i int) map[string]string {
	return map[string]string{
		"app.kubernetes.io/name": name(i), "app.kubernetes.io/instance": namespace(i),
		"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/version": "1.17.3", "helm.sh/chart": name(i) + "-4.2.1",
	}
}

// fieldsOf is a list of fields of a length, as those of managers are.
func fieldsOf(length int) string {
	const one = `"f:app.kubernetes.io/name":{},`
	return "{" + strings.Repeat(one, length/len(one)) + `"f:ports":{}}`
}

func managedFields(manager string, length int, at metav1.Time) []metav1.ManagedFieldsEntry {
	return []metav1.ManagedFieldsEntry{{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &at,
		FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fieldsOf(length)),
	}}
}

// uid makes an identifier of the n-th object of a kind, which is two hexadecimal digits.
func uid(kind string, n int) types.UID {
	return types.UID(fmt.Sprintf("%s%06x-0000-4000-8000-%012x", kind, n&0xffffff, n))
}
