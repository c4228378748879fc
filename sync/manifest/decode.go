package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// decoder fills API objects from nodes. encoding/json could do it too, but its
// errors know neither lines nor the index in a list.
type decoder struct {
	fields map[reflect.Type]map[string][]int // of structs seen so far: JSON name to field index
	visits int                               // values of this document that may still be looked at

	path   []string // of the value being decoded: ".spec", ".ports", "[0]"
	report func(line int32, field, message string)
	errors int // reported for this object
}

const tooManyAliases = "aliases make the document many times larger than it is"

// errGiveUp ends the decoding of an object: enough was said about it.
var errGiveUp = errors.New("too many errors")

// object decodes n into v, a pointer to a struct. It says what is wrong to report,
// and returns whether nothing was.
func (d *decoder) object(n *node, v any, report func(line int32, field, message string)) bool {
	d.report, d.errors, d.path = report, 0, d.path[:0]
	// The error only stops the walk; all of it has been reported.
	_ = d.value(n, n.line, reflect.ValueOf(v).Elem())
	return d.errors == 0
}

func (d *decoder) errorf(line int32, format string, args ...any) error {
	d.report(line, strings.TrimPrefix(strings.Join(d.path, ""), "."), fmt.Sprintf(format, args...))
	if d.errors++; d.errors >= maxObjectErrors {
		return errGiveUp
	}
	return nil
}

var (
	unmarshalerType = reflect.TypeFor[json.Unmarshaler]()
	fieldsV1Type    = reflect.TypeFor[metav1.FieldsV1]()
)

// value decodes n into v. line is where an error is reported: that of the key, so
// that a list under its key is found by the key.
func (d *decoder) value(n *node, line int32, v reflect.Value) error {
	if d.visits--; d.visits < 0 {
		_ = d.errorf(line, "%s", tooManyAliases)
		return errGiveUp
	}
	t := v.Type()
	if n.kind == nullKind || t == fieldsV1Type {
		return nil // as in JSON, null means unset; fieldsV1 is free-form, and of no use here
	}
	if t.Kind() == reflect.Pointer {
		v.Set(reflect.New(t.Elem()))
		return d.value(n, line, v.Elem())
	}
	if v.CanAddr() && reflect.PointerTo(t).Implements(unmarshalerType) {
		return d.unmarshal(n, line, v)
	}
	switch t.Kind() {
	case reflect.Struct:
		return d.structure(n, line, v)
	case reflect.Map:
		return d.mapping(n, line, v)
	case reflect.Slice:
		if t.Elem().Kind() != reflect.Uint8 {
			return d.list(n, line, v)
		}
	}
	return d.scalar(n, line, v)
}

func (d *decoder) structure(n *node, line int32, v reflect.Value) error {
	if n.kind != mapKind {
		return d.errorf(line, "cannot use %v as an object", n.kind)
	}
	fields := d.fieldsOf(v.Type())
	for i := 0; i < len(n.kids); i += 2 {
		key := &n.kids[i]
		index, ok := fields[key.text]
		if !ok {
			continue // pruned, as an API server would
		}
		d.path = append(d.path, "."+key.text)
		if err := d.value(&n.kids[i+1], key.line, v.FieldByIndex(index)); err != nil {
			return err
		}
		d.path = d.path[:len(d.path)-1]
	}
	return nil
}

func (d *decoder) mapping(n *node, line int32, v reflect.Value) error {
	if n.kind != mapKind {
		return d.errorf(line, "cannot use %v as an object", n.kind)
	}
	t := v.Type()
	v.Set(reflect.MakeMapWithSize(t, len(n.kids)/2))
	for i := 0; i < len(n.kids); i += 2 {
		key := &n.kids[i]
		d.path = append(d.path, "["+key.text+"]")
		elem := reflect.New(t.Elem()).Elem()
		if err := d.value(&n.kids[i+1], key.line, elem); err != nil {
			return err
		}
		v.SetMapIndex(reflect.ValueOf(key.text).Convert(t.Key()), elem)
		d.path = d.path[:len(d.path)-1]
	}
	return nil
}

func (d *decoder) list(n *node, line int32, v reflect.Value) error {
	if n.kind != listKind {
		return d.errorf(line, "cannot use %v as a list", n.kind)
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.kids), len(n.kids)))
	for i := range n.kids {
		d.path = append(d.path, "["+strconv.Itoa(i)+"]")
		if err := d.value(&n.kids[i], n.kids[i].line, v.Index(i)); err != nil {
			return err
		}
		d.path = d.path[:len(d.path)-1]
	}
	return nil
}

func (d *decoder) scalar(n *node, line int32, v reflect.Value) error {
	switch v.Kind() {
	case reflect.String:
		switch n.kind {
		case stringKind:
			v.SetString(n.text)
			return nil
		case boolKind, intKind, floatKind:
			return d.errorf(line, "cannot use %v as a string: put %s in quotes", n.kind, quote(n.text))
		default:
			return d.errorf(line, "cannot use %v as a string", n.kind)
		}
	case reflect.Bool:
		if n.kind != boolKind {
			return d.errorf(line, "cannot use %v as a boolean", n.kind)
		}
		switch n.text[0] {
		case 't', 'T', 'y', 'Y':
			v.SetBool(true)
		case 'o', 'O':
			v.SetBool(len(n.text) == len("on"))
		}
		return nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if n.kind == floatKind {
			return d.errorf(line, "%s is not a whole number", quote(n.text))
		}
		if n.kind != intKind {
			return d.errorf(line, "cannot use %v as a number", n.kind)
		}
		i, err := strconv.ParseInt(strings.ReplaceAll(n.text, "_", ""), 0, v.Type().Bits())
		if err != nil {
			return d.errorf(line, "%s does not fit into %d bits", quote(n.text), v.Type().Bits())
		}
		v.SetInt(i)
		return nil
	}
	// No other type occurs in what the proxy reads of the API; a later version of
	// the API may add one.
	return nil
}

// unmarshal fills types with a form of their own: times, quantities, int-or-string.
func (d *decoder) unmarshal(n *node, line int32, v reflect.Value) error {
	var data []byte
	switch n.kind {
	case stringKind:
		data, _ = json.Marshal(n.text) // a string can always be marshalled
	case intKind:
		i, err := strconv.ParseInt(strings.ReplaceAll(n.text, "_", ""), 0, 64)
		if err != nil {
			return d.errorf(line, "%s does not fit into 64 bits", quote(n.text))
		}
		data = strconv.AppendInt(nil, i, 10)
	case floatKind:
		f, err := strconv.ParseFloat(strings.ReplaceAll(n.text, "_", ""), 64)
		if err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
			return d.errorf(line, "%s is not a number that JSON has", quote(n.text))
		}
		data = strconv.AppendFloat(nil, f, 'g', -1, 64)
	default:
		return d.errorf(line, "cannot use %v as %s", n.kind, v.Type().Name())
	}
	if err := v.Addr().Interface().(json.Unmarshaler).UnmarshalJSON(data); err != nil {
		return d.errorf(line, "%s is not a valid %s", quote(n.text), v.Type().Name())
	}
	return nil
}

// fieldsOf returns the fields of struct t by their JSON names, with those of
// inlined structs.
func (d *decoder) fieldsOf(t reflect.Type) map[string][]int {
	if fields, ok := d.fields[t]; ok {
		return fields
	}
	if d.fields == nil {
		d.fields = make(map[reflect.Type]map[string][]int)
	}
	fields := make(map[string][]int)
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "": // inlined, like TypeMeta; not ObjectMeta
			for name, index := range d.fieldsOf(f.Type) {
				fields[name] = append([]int{i}, index...)
			}
		case f.IsExported() && name != "" && name != "-":
			fields[name] = f.Index
		}
	}
	d.fields[t] = fields
	return fields
}
