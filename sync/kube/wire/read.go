package wire

import (
	"bytes"
	"errors"
	"reflect"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The first bytes of an object in protobuf (k8s.io/apimachinery/pkg/runtime/serializer/protobuf).
var magic = []byte("k8s\x00")

// Numbers of fields, from the generated.proto of k8s.io/api and k8s.io/apimachinery.
const (
	metadata      protowire.Number = 1  // of an object
	managedFields protowire.Number = 17 // of its metadata
	items         protowire.Number = 2  // of a list
)

const itemsName = "Items"

// errUnexpected is never returned: the standard decoder's error replaces it.
var errUnexpected = errors.New("not as expected")

// readEvent reads a [metav1.WatchEvent]. If it returns false, e has not changed.
func readEvent(data []byte, e *metav1.WatchEvent) bool {
	var is, of, raw []byte
	if len(data) == 0 || !contents(data, &is, &of) || !contents(of, &raw) {
		return false
	}
	*e = metav1.WatchEvent{Type: string(is), Object: runtime.RawExtension{Raw: raw}}
	return true
}

// read reads an object or a list, into a new one if into is nil. If it returns false, into may
// hold a part of it.
func (s objects) read(data []byte, into runtime.Object) (runtime.Object, schema.GroupVersionKind, bool) {
	k, raw, ok := s.open(data)
	if !ok || into != nil && reflect.TypeOf(into) != k.pointer {
		return nil, schema.GroupVersionKind{}, false
	}
	if into == nil {
		into = reflect.New(k.pointer.Elem()).Interface().(runtime.Object)
	}
	var err error
	switch into := into.(type) {
	case object:
		into.Reset()
		err = readObject(raw, into)
	case message:
		into.Reset()
		err = readList(raw, into)
	}
	return into, k.GroupVersionKind, err == nil
}

// open removes the envelope of an object. It returns false if the envelope is invalid or the kind
// unknown.
func (s objects) open(data []byte) (kind, []byte, bool) {
	name, raw, ok := Open(data)
	if !ok {
		return kind{}, nil, false
	}
	k, ok := s.kinds[name]
	return k, raw, ok
}

// Open removes the envelope, a [runtime.Unknown], of an object in protobuf. It returns the object's
// kind and its bytes, a part of data, or false if the envelope is invalid.
func Open(data []byte) (name metav1.TypeMeta, raw []byte, ok bool) {
	unknown, ok := bytes.CutPrefix(data, magic)
	var meta []byte
	if !ok || !contents(unknown, &meta, &raw) {
		return name, nil, false
	}
	var apiVersion, kind []byte
	if !contents(meta, &apiVersion, &kind) {
		return name, nil, false
	}
	return metav1.TypeMeta{APIVersion: string(apiVersion), Kind: string(kind)}, raw, true
}

// readObject reads an object without its managed fields. The metadata must be the first field
// of its type.
func readObject(raw []byte, into object) error {
	meta, ok := into.GetObjectMeta().(*metav1.ObjectMeta)
	if !ok {
		return errUnexpected
	}
	return split(raw, metadata, func(part []byte) error {
		return split(part, managedFields, ignore, meta.Unmarshal)
	}, into.Unmarshal)
}

// readList reads a list of objects. It makes room for all of them first: Unmarshal would copy
// them each time that the list grows.
func readList(raw []byte, into message) error {
	n := 0
	count := func([]byte) error { n++; return nil }
	if err := split(raw, items, count, into.Unmarshal); err != nil || n == 0 {
		return err
	}
	list := reflect.ValueOf(into).Elem().FieldByName(itemsName)
	list.Set(reflect.MakeSlice(list.Type(), n, n))
	n = 0
	return split(raw, items, func(part []byte) error {
		item := list.Index(n).Addr().Interface().(object)
		n++
		return readObject(part, item)
	}, ignore)
}

func ignore([]byte) error { return nil }

// split passes the content of each field with a number to one, and the bytes between them to
// others. It ends with the first error.
func split(message []byte, number protowire.Number, one, others func([]byte) error) error {
	begin, at := 0, 0 // of others
	pass := func() error {
		if begin == at {
			return nil
		}
		return others(message[begin:at])
	}
	for at < len(message) {
		n, t, size := protowire.ConsumeField(message[at:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		if n == number {
			if t != protowire.BytesType {
				return errUnexpected
			}
			if err := pass(); err != nil {
				return err
			}
			if err := one(content(message[at:])); err != nil {
				return err
			}
			begin = at + size
		}
		at += size
	}
	return pass()
}

// contents reads the first fields of a message, from number 1 on. It returns false if one of
// them is not bytes or is there twice. The message may have more fields.
func contents(message []byte, fields ...*[]byte) bool {
	for len(message) > 0 {
		n, t, size := protowire.ConsumeField(message)
		if size < 0 {
			return false
		}
		if int(n) <= len(fields) {
			field := fields[n-1]
			if t != protowire.BytesType || *field != nil {
				return false
			}
			*field = content(message)
		}
		message = message[size:]
	}
	return true
}

// content returns the content of a message's first field, which must be bytes.
func content(message []byte) []byte {
	_, _, tag := protowire.ConsumeTag(message)
	out, _ := protowire.ConsumeBytes(message[tag:])
	return out
}
