package simulate

import (
	"fmt"
	"reflect"
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

// The tests below walk all fields of the model's inputs by reflection. A field that is new must be set by sync/kube, and
// by modeltest.Random.

var inputs = []reflect.Type{
	reflect.TypeFor[model.Service](), reflect.TypeFor[model.EndpointSlice](),
	reflect.TypeFor[model.Node](), reflect.TypeFor[model.ServiceCIDR](),
}

// fields returns the names of all fields of a type.
func fields(t reflect.Type, name string) (all []string) {
	switch {
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct && t.Elem().PkgPath() == inputs[0].PkgPath():
		return fields(t.Elem(), name)
	case t.Kind() == reflect.Struct && t.PkgPath() == inputs[0].PkgPath():
		for f := range t.Fields() {
			all = append(all, fields(f.Type, below(name, f))...)
		}
		return all
	case name == "Service.Annotations":
		for _, a := range model.Annotations {
			all = append(all, name+"."+a.Name)
		}
		return all
	}
	return []string{name}
}

func below(name string, f reflect.StructField) string {
	if f.Anonymous {
		return name
	}
	return name + "." + f.Name
}

// set adds the names of the fields that a value sets.
func set(names map[string]bool, name string, v reflect.Value) {
	switch all := fields(v.Type(), name); {
	case name == "Service.Annotations":
		for _, key := range v.MapKeys() {
			names[name+"."+key.String()] = true
		}
	case all[0] == name:
		names[name] = names[name] || !v.IsZero()
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			set(names, name, v.Index(i))
		}
	default:
		for f, value := range v.Fields() {
			set(names, below(name, f), value)
		}
	}
}

// setObject adds the names of the fields that an object sets.
func setObject(names map[string]bool, object any) {
	v := reflect.Indirect(reflect.ValueOf(object))
	set(names, v.Type().Name(), v)
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
		setObject(names, converted(o))
	}
	for _, typ := range inputs {
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
	names := map[string]bool{}
	r := modeltest.NewRandom(modeltest.Seed(1))
	for range 3000 {
		switch o := r.Step().Object.(type) {
		case modeltest.Service:
			setObject(names, o.Service)
		case modeltest.Slice:
			setObject(names, o.EndpointSlice)
		case modeltest.Node:
			setObject(names, o.Node)
		case modeltest.ServiceCIDR:
			setObject(names, o.ServiceCIDR)
		}
	}
	for _, typ := range inputs {
		for _, name := range fields(typ, typ.Name()) {
			if !names[name] {
				t.Errorf("modeltest.Random never sets %s", name)
			}
		}
	}
}

func TestEachFieldOfTheConfigurationIsSet(t *testing.T) {
	names := map[string]bool{}
	for _, c := range modeltest.ModelConfigs {
		setObject(names, c)
	}
	for _, name := range fields(reflect.TypeFor[model.Config](), "Config") {
		if !names[name] {
			t.Errorf("none of modeltest.ModelConfigs sets %s", name)
		}
	}
}
