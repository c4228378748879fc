package apitest

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/third_party/forked/golang/btree"
)

// Resource is the plural name of a kind in URLs.
type Resource string

// The resources of the objects that a [Server] has.
const (
	Services       Resource = "services"
	EndpointSlices Resource = "endpointslices"
	Nodes          Resource = "nodes"
	ServiceCIDRs   Resource = "servicecidrs"
	Pods           Resource = "pods"

	events Resource = "events" // which clients may write, see Server.Events
)

var kinds = map[Resource]schema.GroupVersionKind{
	Services:       corev1.SchemeGroupVersion.WithKind("Service"),
	EndpointSlices: discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"),
	Nodes:          corev1.SchemeGroupVersion.WithKind("Node"),
	ServiceCIDRs:   networkingv1.SchemeGroupVersion.WithKind("ServiceCIDR"),
	Pods:           corev1.SchemeGroupVersion.WithKind("Pod"),
	events:         eventsv1.SchemeGroupVersion.WithKind("Event"),
}

// key names an object. Those without a namespace have an empty one.
type key struct {
	resource        Resource
	namespace, name string
}

func (k key) compare(other key) int {
	return cmp.Or(cmp.Compare(k.resource, other.resource), cmp.Compare(k.namespace, other.namespace),
		cmp.Compare(k.name, other.name))
}

// object has the methods that all objects have.
type object interface {
	runtime.Object
	metav1.Object
}

// entry is one version of an object, which is never changed.
type entry struct {
	object
	key      key
	fields   fields.Set
	protobuf []byte // encoded once, as a real server does for all nodes
}

func newEntry(in runtime.Object, rv uint64) *entry {
	obj := in.DeepCopyObject().(object)
	kinds, _, err := scheme.Scheme.ObjectKinds(obj)
	must(err)
	obj.GetObjectKind().SetGroupVersionKind(kinds[0])
	obj.SetResourceVersion(formatRV(rv))
	plural, _ := meta.UnsafeGuessKindToResource(kinds[0])
	e := &entry{
		object: obj, key: key{Resource(plural.Resource), obj.GetNamespace(), obj.GetName()},
		fields:   fields.Set{"metadata.name": obj.GetName(), "metadata.namespace": obj.GetNamespace()},
		protobuf: encode(serializer(runtime.ContentTypeProtobuf), obj),
	}
	if o, ok := obj.(*corev1.Service); ok {
		e.fields["spec.clusterIP"], e.fields["spec.type"] = o.Spec.ClusterIP, string(o.Spec.Type)
	}
	return e
}

func formatRV(rv uint64) string { return strconv.FormatUint(rv, 10) }

// event is what happened at one version.
type event struct {
	old, now *entry // of one object; either may be nil
	drop     bool   // watches of before end
}

// history is how many events are kept, with their objects; older resource versions have expired.
const history = 8192

func (s *Server) append(e event) {
	if len(s.log) == history {
		s.log = slices.Clone(s.log[history/2:])
	}
	s.rv++
	s.log = append(s.log, e)
	s.wake()
}

// wake lets all look again who wait for a change.
func (s *Server) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Set creates or replaces an object. It takes pointers to the API types of the
// resources, and returns the object's new resource version.
func (s *Server) Set(obj runtime.Object) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set(obj).GetResourceVersion()
}

func (s *Server) set(obj runtime.Object) *entry {
	e := newEntry(obj, s.rv+1)
	old, _ := s.objects.ReplaceOrInsert(e)
	s.append(event{old: old, now: e})
	return e
}

// Delete deletes the object of obj's type, namespace and name, if there is one.
func (s *Server) Delete(obj runtime.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, _ := s.objects.Delete(newEntry(obj, 0))
	s.append(event{old: old})
}

// DropWatches ends all watches of now in an orderly manner, as a server does when their
// time is over or when it shuts down: each sends first what has happened until now.
func (s *Server) DropWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.append(event{drop: true})
}

// Expire makes all resource versions of now too old to watch from, as when etcd is compacted. Watches of now end with
// an error event, and those that begin later at such a version are refused with HTTP status 410.
func (s *Server) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.append(event{})
	s.log = nil
}

// Events returns the events (events.k8s.io/v1) that clients wrote, as they are now, by name.
func (s *Server) Events() (all []eventsv1.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := range of(s.objects, events) {
		all = append(all, *e.object.(*eventsv1.Event).DeepCopy())
	}
	return all
}

// at returns the objects of a version. The copy costs nothing, as in a real server's watch cache: a list of a large
// cluster begins at once.
func (s *Server) at(version uint64) *btree.BTree[*entry] {
	objects := s.objects.Clone()
	for _, e := range slices.Backward(s.log[len(s.log)-int(s.rv-version):]) { //nolint:gosec // few
		switch {
		case e.old != nil:
			objects.ReplaceOrInsert(e.old)
		case e.now != nil:
			objects.Delete(e.now)
		}
	}
	return objects
}

// of returns the objects of a resource by namespace and name.
func of(objects *btree.BTree[*entry], r Resource) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		objects.AscendGreaterOrEqual(&entry{key: key{resource: r}}, func(e *entry) bool {
			return e.key.resource == r && yield(e)
		})
	}
}

func must(err error) {
	if err != nil {
		panic(fmt.Sprintf("apitest: %v", err))
	}
}
