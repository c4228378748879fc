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

	change reconcile.Change     // for metrics
	set    func(*model.Builder) // writes it into the state; nil: the state has it already
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

func (o *object) DeepCopyObject() runtime.Object {
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

// apiObject has the methods that all our kinds have.
type apiObject interface {
	runtime.Object
	metav1.Object
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

// sum hashes an object. Labels and annotations are hashed one by one and added, since their
// order does not matter: sorting them would take longer than all the rest.
func (s *summer) sum(o apiObject) uint64 {
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
