package wire

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
)

// FuzzObjects decodes any bytes as the standard decoder does, but without managed fields. Only
// these may be invalid.
func FuzzObjects(f *testing.F) {
	for _, data := range odd(f) {
		f.Add(data)
	}
	for _, o := range append(lists(), service(), slice(2)) {
		f.Add(encode(f, o))
	}
	its, own := protobuf(f, standard), protobuf(f, ours).(objects)
	f.Fuzz(func(t *testing.T, data []byte) {
		want, got := decode(its, data, nil, nil), decode(own, data, nil, nil)
		if _, _, ok := own.read(data, nil); ok {
			if want.Object == nil {
				want = decode(its, cut(t, own, data), nil, nil)
			}
			if want.Object != nil {
				unmanage(t, want.Object)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-standard +ours:\n%s", diff)
		}
	})
}

// cut returns the bytes without managed fields.
func cut(t *testing.T, s objects, data []byte) []byte {
	t.Helper()
	k, raw, _ := s.open(data)
	cutMetadata := func(b []byte) []byte { return rewrite(t, b, managedFields, nil) }
	cutObject := func(b []byte) []byte { return rewrite(t, b, metadata, cutMetadata) }
	if k.pointer.Implements(objectType) {
		raw = cutObject(raw)
	} else {
		raw = rewrite(t, raw, items, cutObject)
	}
	return envelope(k.GroupVersion().String(), k.Kind, raw)
}

// rewrite replaces the contents of all fields of a number, or removes them.
func rewrite(t *testing.T, message []byte, n protowire.Number, by func([]byte) []byte) []byte {
	t.Helper()
	var out []byte
	err := split(message, n, func(b []byte) error {
		if by != nil {
			out = append(out, bytesField(n, by(b))...)
		}
		return nil
	}, func(b []byte) error {
		out = append(out, b...)
		return nil
	})
	if err != nil {
		t.Error("a message was read that is none:", err)
	}
	return out
}

// FuzzEvents: of any bytes, both decoders say the same.
func FuzzEvents(f *testing.F) {
	for _, data := range oddEvents(f) {
		f.Add(data)
	}
	f.Fuzz(sameEvent)
}
