package simulate

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
	"github.com/vmapd/vmapd/sync/kube"
)

// The tests below walk all fields of the model's inputs by reflection. A field that is new must be set by sync/kube, and by
// modeltest.Random (with values that are valid and others that are not, unless each value is valid).

// withoutValue is an annotation of earlier versions: no value is valid.
const withoutValue = "vmapd.io/outlier-detection"

// inputs are one valid object of each type. Each list has an element.
func inputs() []any {
	text := func(s string) *string { return &s }
	annotations := map[string]string{}
	for _, a := range model.Annotations {
		annotations[a.Name] = a.Examples[0]
	}
	delete(annotations, withoutValue)
	return []any{
		&model.Service{
			NamespacedName: modeltest.Name("ns1/web"), Type: "LoadBalancer", ClusterIPs: []string{"172.30.0.41"}, ExternalIPs: []string{"192.168.99.1"},
			Ingress: []model.Ingress{{IP: "192.168.98.1"}}, Ports: []model.Port{{Name: "http", Port: 80, NodePort: 30080}}, ExternalTrafficPolicy: "Local",
			SessionAffinity: "ClientIP", SourceRanges: []string{"203.0.113.0/24"}, HealthCheckNodePort: 30100, Annotations: annotations,
		},
		&model.EndpointSlice{
			NamespacedName: modeltest.Name("ns1/web-1"), Labels: map[string]string{model.LabelServiceName: "web"}, AddressType: "IPv4",
			Ports: []model.SlicePort{{Name: text("http"), Port: new(int32(8080))}}, Endpoints: []model.SliceEndpoint{{Addresses: []string{"10.0.0.2"}}},
		},
		&model.Node{Name: modeltest.NodeName, Addresses: []string{modeltest.NodeIP4}, PodCIDRs: []string{"10.0.0.0/24"}, Taints: []string{"a"}},
		&model.ServiceCIDR{Name: "kubernetes", CIDRs: []string{"172.30.0.0/16"}},
	}
}

// alwaysValid are the fields of which each value is valid.
var alwaysValid = []string{
	"Service.UID", "Service.Created", "Service.Labels", "Service.Type", "Service.Ingress.IPMode",
	"EndpointSlice.Namespace", "EndpointSlice.Name", "EndpointSlice.Ports.Name", "EndpointSlice.Endpoints.Ready", "EndpointSlice.Endpoints.Serving",
	"EndpointSlice.Endpoints.Terminating", "EndpointSlice.Endpoints.NodeName", "EndpointSlice.Endpoints.HintNodes", "EndpointSlice.Endpoints.HintZones",
	"Node.Name", "Node.UID", "Node.Zone", "Node.Deleting", "Node.Taints", "ServiceCIDR.Name",
}

// fields returns the names of all fields of a type.
func fields(t reflect.Type, name string) []string {
	switch {
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct && t.Elem().PkgPath() == reflect.TypeFor[model.Service]().PkgPath():
		return fields(t.Elem(), name)
	case t.Kind() == reflect.Struct && t.PkgPath() == reflect.TypeFor[model.Service]().PkgPath():
		var all []string
		for f := range t.Fields() {
			if f.Anonymous {
				all = append(all, fields(f.Type, name)...)
				continue
			}
			all = append(all, fields(f.Type, name+"."+f.Name)...)
		}
		return all
	case name == "Service.Annotations":
		var all []string
		for _, a := range model.Annotations {
			if a.Name != withoutValue {
				all = append(all, name+"."+a.Name)
			}
		}
		return all
	}
	return []string{name}
}

// each visits the fields of from, and those of a valid object of the same type, which must have an element in each list.
func each(from, valid reflect.Value, name string, visit func(name string, from, valid reflect.Value)) {
	switch {
	case from.Kind() == reflect.Slice && from.Type().Elem().Kind() == reflect.Struct && len(fields(from.Type(), "")) > 1:
		for i := range from.Len() {
			each(from.Index(i), valid.Index(0), name, visit)
		}
	case from.Kind() == reflect.Slice && from.Type().Elem().Kind() == reflect.String:
		for i := range from.Len() {
			visit(name, from.Slice(i, i+1), valid)
		}
		if from.Len() == 0 {
			visit(name, from, valid)
		}
	case from.Kind() == reflect.Struct && len(fields(from.Type(), "")) > 1:
		for i := range from.NumField() {
			below := name
			if f := from.Type().Field(i); !f.Anonymous {
				below += "." + f.Name
			}
			each(from.Field(i), valid.Field(i), below, visit)
		}
	case name == "Service.Annotations":
		for _, key := range from.MapKeys() {
			one := reflect.ValueOf(map[string]string{key.String(): from.MapIndex(key).String()})
			visit(name+"."+key.String(), one, valid)
		}
	default:
		visit(name, from, valid)
	}
}

// set adds the names of the fields that an object sets.
func set(names map[string]bool, object any) {
	v := reflect.Indirect(reflect.ValueOf(object))
	each(v, v, v.Type().Name(), func(name string, from, _ reflect.Value) {
		names[name] = names[name] || !from.IsZero()
	})
}

// generated are objects that modeltest.Random makes.
func generated(visit func(object any)) {
	r := modeltest.NewRandom(modeltest.Seed(1))
	for range 3000 {
		c := r.Step()
		switch o := c.Object.(type) {
		case modeltest.Service:
			visit(&o.Service)
		case modeltest.Slice:
			visit(&o.EndpointSlice)
		case modeltest.Node:
			visit(&o.Node)
		case modeltest.ServiceCIDR:
			visit(&o.ServiceCIDR)
		}
	}
}

// converted returns what package kube makes of an object of the API.
func converted(o runtime.Object) any {
	switch o := o.(type) {
	case *corev1.Service:
		return new(kube.Service(o))
	case *discoveryv1.EndpointSlice:
		return new(kube.EndpointSlice(o))
	case *corev1.Node:
		return new(kube.Node(o))
	case *networkingv1.ServiceCIDR:
		return new(kube.ServiceCIDR(o))
	}
	panic(fmt.Sprintf("no kind for %T", o))
}

func TestEachFieldOfTheModelIsConverted(t *testing.T) {
	names := map[string]bool{}
	for _, o := range []runtime.Object{&corev1.Service{}, &discoveryv1.EndpointSlice{}, &corev1.Node{}, &networkingv1.ServiceCIDR{}} {
		fill(reflect.ValueOf(o).Elem())
		if n, ok := o.(*corev1.Node); ok {
			n.Labels[model.LabelZone], n.Status.Addresses[0].Type = "zone-a", corev1.NodeInternalIP
		}
		set(names, converted(o))
	}
	for _, o := range inputs() {
		typ := reflect.TypeOf(o).Elem()
		for _, name := range fields(typ, typ.Name()) {
			if !names[name] {
				t.Errorf("sync/kube does not set %s, though each field of the API's object is set", name)
			}
		}
	}
}

// fill sets all fields of an object of the API. Each list has one element.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		if v.Type() == reflect.TypeFor[map[string]string]() {
			all := map[string]string{"x": "x", model.LabelServiceProxyName: "x"}
			for _, a := range model.Annotations {
				all[a.Name] = "x"
			}
			v.Set(reflect.ValueOf(all))
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[metav1.Time]() {
			v.Set(reflect.ValueOf(metav1.NewTime(time.Unix(1, 0))))
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i))
			}
		}
	default:
	}
}

func TestEachFieldOfTheModelIsGenerated(t *testing.T) {
	names, valid, invalid := map[string]bool{}, map[string]bool{}, map[string]bool{}
	seen := map[string]bool{}
	good := map[reflect.Type]any{}
	for _, o := range inputs() {
		good[reflect.TypeOf(o)] = o
		if problems := problems(o); len(problems) > 0 {
			t.Fatalf("the valid %T has problems: %v", o, problems)
		}
	}
	generated(func(object any) {
		set(names, object)
		o := good[reflect.TypeOf(object)]
		from, to := reflect.ValueOf(object).Elem(), reflect.ValueOf(o).Elem()
		each(from, to, from.Type().Name(), func(name string, from, to reflect.Value) {
			key := fmt.Sprintf("%s %+v", name, reflect.Indirect(from))
			if seen[key] {
				return
			}
			seen[key] = true
			was := reflect.New(to.Type()).Elem()
			was.Set(to)
			to.Set(from)
			if len(problems(o)) > 0 {
				invalid[name] = true
			} else if !from.IsZero() {
				valid[name] = true
			}
			to.Set(was)
		})
	})
	for _, o := range inputs() {
		typ := reflect.TypeOf(o).Elem()
		for _, name := range fields(typ, typ.Name()) {
			free := slices.Contains(alwaysValid, name)
			switch {
			case !names[name]:
				t.Errorf("modeltest.Random never sets %s", name)
			case !valid[name]:
				t.Errorf("modeltest.Random never sets %s to a valid value", name)
			case !invalid[name] && !free:
				t.Errorf("modeltest.Random never sets %s to a value that is not valid", name)
			case invalid[name] && free:
				t.Errorf("%s has values that are not valid", name)
			}
		}
	}
}

// problems returns the problems of an object.
func problems(o any) []model.Problem {
	b := model.NewBuilder(modeltest.Config())
	switch o := o.(type) {
	case *model.Service:
		b.SetService(*o)
	case *model.EndpointSlice:
		b.SetEndpointSlice(*o)
	case *model.Node:
		b.SetNode(*o)
	case *model.ServiceCIDR:
		b.SetServiceCIDR(*o)
	}
	return b.Snapshot().Problems()
}

func TestEachFieldOfTheConfigurationIsSet(t *testing.T) {
	names := map[string]bool{}
	for _, c := range modeltest.ModelConfigs {
		set(names, &c)
	}
	for _, name := range fields(reflect.TypeFor[model.Config](), "Config") {
		if !names[name] {
			t.Errorf("none of modeltest.ModelConfigs sets %s", name)
		}
	}
}
