package informer

import (
	"hash/maphash"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/reconcile"
)

// object is the part of an object that client-go needs: its name and its version. The
// state gets the part that the proxy needs.
type object struct {
	metav1.Object // shared and empty: for methods that client-go doesn't call

	name     model.NamespacedName
	version  string
	endsList bool   // a bookmark, after the last of the initial events
	sum      uint64 // of the content, with the version

	change  reconcile.Change     // for metrics
	set     func(*model.Builder) // writes it into the state; nil: the state has it already
	release func()               // gives its memory back; nil: there is nothing to give back
}

// done is called when nobody needs the object's content any more.
func (o *object) done() {
	o.set = nil
	if o.release != nil {
		o.release()
		o.release = nil
	}
}

// nothing is the shared rest of all objects' metadata. A [metav1.ObjectMeta] for each would
// be large, and client-go asks several times.
var nothing metav1.Object = &metav1.ObjectMeta{} //nolint:gochecknoglobals // one for all objects

func (o *object) held() held {
	version, _ := parseVersion(o.version)
	return held{sum: o.sum, version: version}
}

func (o *object) GetNamespace() string       { return o.name.Namespace }
func (o *object) GetName() string            { return o.name.Name }
func (o *object) GetResourceVersion() string { return o.version }

func (o *object) GetAnnotations() map[string]string {
	if !o.endsList {
		return nil
	}
	return map[string]string{metav1.InitialEventsAnnotationKey: "true"}
}

func (o *object) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements [runtime.Object]. Both have the same content from now on.
func (o *object) DeepCopyObject() runtime.Object {
	o.release = nil
	out := *o
	return &out
}

// objects is a list of objects.
type objects struct {
	metav1.ListMeta
	Items []*object // client-go looks for this name
}

func (l *objects) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

func (l *objects) DeepCopyObject() runtime.Object {
	out := &objects{Items: make([]*object, 0, len(l.Items))}
	l.DeepCopyInto(&out.ListMeta)
	for _, o := range l.Items {
		out.Items = append(out.Items, o.DeepCopyObject().(*object))
	}
	return out
}

// kubeObject has the methods that all our kinds have.
type kubeObject interface {
	runtime.Object
	metav1.Object
}

// apiObject has the methods of the API's own types.
type apiObject interface {
	kubeObject
	Size() int
	MarshalToSizedBuffer(to []byte) (int, error)
}

// seed is that of all summers: one kind's sums are compared by others, too.
var seed = maphash.MakeSeed() //nolint:gochecknoglobals // one for all kinds

// summer computes hashes of objects, to find those that have not changed.
type summer struct {
	seed   maphash.Seed
	buffer []byte
}

func newSummer() *summer { return &summer{seed: seed} }

// sum returns the hash of an object, of which some kinds have one already.
func (s *summer) sum(o runtime.Object) uint64 {
	switch o := o.(type) {
	case interface{ Sum() uint64 }:
		return o.Sum()
	case apiObject:
		return s.hash(o)
	}
	return 0 // not reached
}

// hash hashes an object. Labels and annotations are hashed one by one and added, since their
// order does not matter: sorting them would take longer than all the rest.
func (s *summer) hash(o apiObject) uint64 {
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	o.SetLabels(nil)
	o.SetAnnotations(nil)
	defer func() {
		o.SetLabels(labels)
		o.SetAnnotations(annotations)
	}()
	size := o.Size()
	if size > len(s.buffer) {
		s.buffer = make([]byte, size)
	}
	n, err := o.MarshalToSizedBuffer(s.buffer[:size])
	if err != nil {
		// Not reached for a decoded object. The version is nearly always enough.
		return maphash.String(s.seed, o.GetResourceVersion())
	}
	return maphash.Bytes(s.seed, s.buffer[size-n:size]) + s.pairs(labels) + 3*s.pairs(annotations)
}

func (s *summer) pairs(m map[string]string) (sum uint64) {
	var h maphash.Hash
	h.SetSeed(s.seed)
	for k, v := range m {
		h.Reset()
		h.WriteString(k)
		h.WriteByte(0) // no key contains it
		h.WriteString(v)
		sum += h.Sum64()
	}
	return sum
}
