package simulate

import (
	"reflect"
	"testing"

	"github.com/vmapd/vmapd/model"
	"github.com/vmapd/vmapd/model/modeltest"
)

// The tests below walk all fields of the model's inputs by reflection. A field that is new must be set by
// modeltest.Random.

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
