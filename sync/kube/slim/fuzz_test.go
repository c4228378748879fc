package slim

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
)

// FuzzProtobuf reads any bytes as the standard decoder does. Where skipped fields are invalid, only that one
// refuses them. A kind that is named twice is another one to each.
func FuzzProtobuf(f *testing.F) {
	for _, o := range objectsToRead() {
		f.Add(encode(f, o, runtime.ContentTypeProtobuf))
	}
	its := serializer(f, standard, runtime.ContentTypeProtobuf)
	f.Fuzz(func(t *testing.T, data []byte) {
		got, kind, ok := read(data)
		if !ok {
			return
		}
		full, itsKind, err := its.Decode(data, nil, nil)
		if err != nil || *itsKind != kind {
			return
		}
		if diff := cmp.Diff(wanted(full), got, content); diff != "" {
			t.Errorf("-standard +ours:\n%s", diff)
		}
	})
}
