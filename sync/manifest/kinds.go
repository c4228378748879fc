package manifest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/kube"
)

// typeMeta is the type of an object.
type typeMeta struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// object is an API object in the form that the builder takes.
type object struct {
	ref  model.ObjectRef
	file string
	line int // where its document begins
	raw  any // the API object, for LoadAll; nil otherwise

	// All are nil for kinds that only LoadAll reads.
	value  any // model.Service, model.EndpointSlice, model.Node or model.ServiceCIDR
	set    func(builder)
	delete func(builder)
}

func (o *object) place() string { return fmt.Sprintf("%s:%d", o.file, o.line) }

// kind is how objects of a kind are read.
type kind struct {
	empty func() metav1.Object
	// model makes what the model needs of an object; nil: it needs nothing, and only [LoadAll] reads the kind.
	model func(metav1.Object, *object)
}

type builder = *model.Builder

// kinds are the objects that are read.
var kinds = map[typeMeta]kind{
	{"v1", "Service"}:                        modelled(kube.Service, builder.SetService, builder.DeleteService),
	{"discovery.k8s.io/v1", "EndpointSlice"}: endpointSlice,
	{"v1", "Node"}:                           modelled(kube.Node, builder.SetNode, named(builder.DeleteNode)),

	{"networking.k8s.io/v1", "ServiceCIDR"}:      serviceCIDR,
	{"networking.k8s.io/v1beta1", "ServiceCIDR"}: serviceCIDR,

	{"v1", "Pod"}: {empty: func() metav1.Object { return new(corev1.Pod) }},
}

//nolint:gochecknoglobals // entries of kinds
var (
	endpointSlice = modelled(kube.EndpointSlice, builder.SetEndpointSlice, builder.DeleteEndpointSlice)
	serviceCIDR   = modelled(kube.ServiceCIDR, builder.SetServiceCIDR, named(builder.DeleteServiceCIDR))
)

// modelled returns the kind of the API objects T, which are M for the model.
func modelled[T, M any, P interface {
	*T
	metav1.Object
}](convert func(*T) M, set func(builder, M), remove func(builder, model.NamespacedName)) kind {
	return kind{
		empty: func() metav1.Object { return P(new(T)) },
		model: func(v metav1.Object, o *object) {
			value := convert(v.(P))
			o.value, o.set = value, func(b builder) { set(b, value) }
			o.delete = func(b builder) { remove(b, o.ref.NamespacedName) }
		},
	}
}

func named(remove func(builder, string)) func(builder, model.NamespacedName) {
	return func(b builder, n model.NamespacedName) { remove(b, n.Name) }
}

// head says what an object is.
type head struct {
	typeMeta `json:",inline"`
	Metadata struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`
}

// object reads one object, or all objects of a list. It may lack its type; the default is what.
func (p *parser) object(text []byte, what typeMeta, lists int) {
	if string(text) == "null" {
		return
	}
	h := head{typeMeta: what}
	_ = kjson.UnmarshalCaseSensitivePreserveInts(text, &h) // has what it could, also after an error
	what = h.typeMeta
	ref := model.ObjectRef{Kind: what.Kind, NamespacedName: model.NamespacedName{Name: h.Metadata.Name}}
	if what.Kind != "Node" && what.Kind != "ServiceCIDR" { // these are cluster-wide
		ref.Namespace = cmp.Or(h.Metadata.Namespace, metav1.NamespaceDefault)
	}
	if what.APIVersion == "" || what.Kind == "" {
		p.errorf(ref, "", "every object needs an apiVersion and a kind")
		return
	}
	// The items of a typed list may come without apiVersion and kind, as in an API server's answer.
	item := typeMeta{what.APIVersion, strings.TrimSuffix(what.Kind, "List")}
	k, listed := kinds[what], kinds[item]
	switch {
	case p.reads(k):
		p.read(text, ref, k)
	case what == typeMeta{"v1", "List"}:
		p.list(text, what.Kind, typeMeta{}, lists+1)
	case p.reads(listed):
		p.list(text, what.Kind, item, lists+1)
	default:
		p.file.unread[short(what.APIVersion+" "+what.Kind)] = true
	}
}

func (p *parser) reads(k kind) bool { return k.model != nil || k.empty != nil && p.all }

func (p *parser) list(text []byte, kind string, of typeMeta, lists int) {
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	errs, err := kjson.UnmarshalStrict(text, &list, kjson.DisallowDuplicateFields)
	if lists > maxLists {
		err = fmt.Errorf("lists in more than %d lists", maxLists)
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		p.invalid(model.ObjectRef{Kind: kind}, err)
		return
	}
	for _, item := range list.Items {
		p.object(item, of, lists)
	}
}

// read keeps one object.
func (p *parser) read(text []byte, ref model.ObjectRef, k kind) {
	v := k.empty()
	errs, err := kjson.UnmarshalStrict(text, v)
	if k.model == nil {
		errs = nil // pods may have fields of newer versions
	}
	if err != nil {
		errs = append(errs, err)
	}
	v.SetNamespace(ref.Namespace)
	if len(errs) == 0 && ref.Name == "" {
		errs = append(errs, errors.New("metadata.name is missing"))
	}
	for _, err := range errs {
		p.invalid(ref, err)
	}
	first, twice := p.seen[ref]
	switch {
	case len(errs) > 0:
		return
	case twice:
		p.errorf(ref, "", "is already defined at %s: this one is ignored", first.place())
		return
	}
	o := &object{ref: ref, file: p.file.name, line: p.line}
	if p.all {
		o.raw = v
	}
	if k.model != nil {
		k.model(v, o)
	}
	p.seen[ref] = o
	p.file.objects = append(p.file.objects, o)
}

// invalid reports an error of the decoder, with the path of the field if the error has it.
func (p *parser) invalid(ref model.ObjectRef, err error) {
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		as := wrong.Type.String()
		switch wrong.Type.Kind() {
		case reflect.Struct, reflect.Map:
			as = "object"
		case reflect.Slice:
			as = "array"
		default:
		}
		p.errorf(ref, wrong.Field, "cannot use %s as %s", wrong.Value, as)
		return
	}
	if field := kjson.FieldError(nil); errors.As(err, &field) {
		what, _, _ := strings.Cut(err.Error(), ` "`) // unknown field "spec.port"
		p.errorf(ref, field.FieldPath(), "%s", what)
		return
	}
	p.errorf(ref, "", "%v", err)
}
