package manifest

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/sync/kube"
)

// Parse reads the manifest in data, YAML or JSON. Errors have the given name.
//
// It returns the valid objects and all errors, in the order of the file. An object without a
// namespace is in "default". Objects of kinds that the proxy doesn't read are only counted,
// in [Objects.Ignored].
func Parse(name string, data []byte) (*Objects, []Error) {
	f := parseFile(name, data, false)
	objects, _ := merge([]*file{f}) // one file has no duplicates left
	return objects, f.errs
}

// file has the contents of one file.
type file struct {
	name    string
	objects []*object
	ignored map[string]int
	errs    []Error
}

// object is an API object in the form that the builder takes.
type object struct {
	ref    model.ObjectRef
	raw    any // the API object, for LoadAll; nil otherwise
	value  any // model.Service, model.EndpointSlice, model.Node or model.ServiceCIDR; nil for kinds that only LoadAll reads
	set    func(builder)
	delete func(builder)
	file   string
	line   int
	doc    document
	path   []int // the index of the value in the document, then of the items of nested lists
}

func (o *object) place() string { return fmt.Sprintf("%s:%d", o.file, o.line) }

func parseFile(name string, data []byte, all bool) *file {
	p := parser{all: all, file: &file{name: name, ignored: make(map[string]int)}, seen: make(map[model.ObjectRef]*object)}
	if len(data) > maxFileSize {
		p.errorf(0, model.ObjectRef{}, "", "file is larger than %d MiB", maxFileSize>>20)
		return p.file
	}
	if line, message := checkText(data); message != "" {
		p.errorf(line, model.ObjectRef{}, "", "%s", message)
		return p.file
	}
	for _, doc := range split(name, data) {
		p.document(doc)
	}
	if p.unsaid > 0 {
		p.file.errs = append(p.file.errs, Error{File: name, Message: fmt.Sprintf("%d more errors", p.unsaid)})
	}
	return p.file
}

type parser struct {
	file   *file
	all    bool // see LoadAll
	seen   map[model.ObjectRef]*object
	visits int // values of the document left to visit, see maxVisits
	doc    document
	unsaid int
}

func (p *parser) errorf(line int, ref model.ObjectRef, field, format string, args ...any) {
	if len(p.file.errs) >= maxErrors {
		p.unsaid++
		return
	}
	p.file.errs = append(p.file.errs, Error{
		File: p.file.name, Line: line, Object: ref, Field: field, Message: fmt.Sprintf(format, args...),
	})
}

func (p *parser) document(doc document) {
	roots, err := doc.parse()
	p.doc, p.visits = doc, maxVisits(len(doc.text))
	for i, root := range roots {
		if root.Tag != nullTag {
			p.object(root, typeMeta{}, []int{i})
		}
	}
	if err != nil {
		p.errorf(err.line, model.ObjectRef{}, "", "%s", err.message)
	}
}

// typeMeta is the type of an object.
type typeMeta struct{ apiVersion, kind string }

// known has the types of the objects that the proxy reads.
var known = map[typeMeta]bool{
	{"v1", "Service"}: true, {"discovery.k8s.io/v1", "EndpointSlice"}: true, {"v1", "Node"}: true,
	// Both versions of a ServiceCIDR have the same fields.
	{"networking.k8s.io/v1", "ServiceCIDR"}: true, {"networking.k8s.io/v1beta1", "ServiceCIDR"}: true,
}

// workloads have the types of the objects that only [LoadAll] reads.
var workloads = map[typeMeta]bool{
	{"v1", "Pod"}: true, {"apps/v1", "Deployment"}: true, {"apps/v1", "StatefulSet"}: true,
	{"apps/v1", "DaemonSet"}: true, {"apps/v1", "ReplicaSet"}: true,
}

func (p *parser) reads(t typeMeta) bool { return known[t] || p.all && workloads[t] }

// object reads one object, or all objects of a list. n may lack its type; the default is what.
func (p *parser) object(n *yaml.Node, what typeMeta, path []int) {
	if n.Kind != yaml.MappingNode {
		p.errorf(n.Line, model.ObjectRef{}, "", "cannot use %s as an API object", kindOf(n))
		return
	}
	if err := checkKeys(n); err != nil {
		p.errorf(err.line, model.ObjectRef{}, "", "%s", err.message)
		return
	}
	for _, f := range []struct {
		name string
		into *string
	}{{"apiVersion", &what.apiVersion}, {"kind", &what.kind}} {
		line, v := field(n, f.name)
		switch text, ok := str(v); {
		case text != "":
			*f.into = text
		case v != nil && v.Tag != nullTag && !ok:
			p.errorf(line, model.ObjectRef{}, f.name, "cannot use %s as a string", kindOf(v))
			return
		case *f.into == "":
			p.errorf(n.Line, model.ObjectRef{}, f.name, "missing: every object needs an apiVersion and a kind")
			return
		}
	}
	// The items of a typed list may come without apiVersion and kind, as in an API
	// server's answer.
	item := typeMeta{what.apiVersion, strings.TrimSuffix(what.kind, "List")}
	switch {
	case what == typeMeta{"v1", "List"}:
		p.list(n, what, typeMeta{}, path)
	case item != what && p.reads(item):
		p.list(n, what, item, path)
	case !p.reads(what):
		p.file.ignored[what.apiVersion+" "+what.kind]++
	case what.kind == "Service":
		read(p, n, what.kind, path, kube.Service, builder.SetService, builder.DeleteService)
	case what.kind == "EndpointSlice":
		read(p, n, what.kind, path, kube.EndpointSlice, builder.SetEndpointSlice, builder.DeleteEndpointSlice)
	case what.kind == "Node":
		read(p, n, what.kind, path, kube.Node, builder.SetNode,
			func(b builder, n model.NamespacedName) { b.DeleteNode(n.Name) })
	case what.kind == "ServiceCIDR":
		read(p, n, what.kind, path, kube.ServiceCIDR, builder.SetServiceCIDR,
			func(b builder, n model.NamespacedName) { b.DeleteServiceCIDR(n.Name) })
	case what.kind == "Pod":
		read(p, n, what.kind, path, noModel[corev1.Pod], func(builder, any) {}, func(builder, model.NamespacedName) {})
	default:
		read(p, n, what.kind, path, noModel[kube.Workload], func(builder, any) {}, func(builder, model.NamespacedName) {})
	}
}

// noModel is for objects that the model does not know.
func noModel[T any](*T) any { return nil }

func (p *parser) list(n *yaml.Node, what, of typeMeta, path []int) {
	line, items := field(n, "items")
	if items == nil || items.Tag == nullTag {
		return // an empty list
	}
	if items.Kind != yaml.SequenceNode {
		p.errorf(line, model.ObjectRef{Kind: what.kind}, "items", "cannot use %s as a list", kindOf(items))
		return
	}
	if len(path) > maxLists {
		p.errorf(line, model.ObjectRef{Kind: what.kind}, "items", "nested more than %d levels deep", maxLists)
		return
	}
	for i, item := range content(items) {
		if p.visits--; p.visits < 0 {
			p.errorf(line, model.ObjectRef{Kind: what.kind}, "items", "%v", errTooManyAliases)
			return
		}
		p.object(item, of, append(slices.Clip(path), i))
	}
}

// read decodes an object of type T and keeps what the model needs of it.
func read[T, M any, P interface {
	*T
	metav1.Object
}](p *parser, n *yaml.Node, kind string, path []int,
	convert func(*T) M, set func(builder, M), remove func(builder, model.NamespacedName),
) {
	ref := refOf(n, kind)
	var t T
	obj := P(&t)
	ok := p.decode(n, obj, func(line int, field, message string) {
		p.errorf(line, ref, field, "%s", message)
	})
	if !ok {
		return
	}
	if obj.GetName() == "" {
		p.errorf(lineOf(n, "metadata.name"), ref, "metadata.name", "missing")
		return
	}
	obj.SetNamespace(ref.Namespace)
	if first, ok := p.seen[ref]; ok {
		p.errorf(n.Line, ref, "", "is already defined at %s: this one is ignored", first.place())
		return
	}
	value := convert(&t)
	o := &object{
		ref: ref, value: value,
		set:    func(b builder) { set(b, value) },
		delete: func(b builder) { remove(b, ref.NamespacedName) },
		file:   p.file.name, line: n.Line, doc: p.doc, path: path,
	}
	if p.all {
		o.raw = obj
	}
	p.seen[ref] = o
	p.file.objects = append(p.file.objects, o)
}

// refOf returns the identity of n, as far as n has one, for errors about the object and also
// about its name.
func refOf(n *yaml.Node, kind string) model.ObjectRef {
	ref := model.ObjectRef{Kind: kind}
	_, meta := field(n, "metadata")
	_, name := field(meta, "name")
	ref.Name, _ = str(name)
	if kind == "Node" || kind == "ServiceCIDR" {
		return ref // cluster-wide
	}
	_, namespace := field(meta, "namespace")
	if ref.Namespace, _ = str(namespace); ref.Namespace == "" {
		ref.Namespace = metav1.NamespaceDefault
	}
	return ref
}
