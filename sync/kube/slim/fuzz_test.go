package slim

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
)

func FuzzProtobuf(f *testing.F) { fuzz(f, runtime.ContentTypeProtobuf) }

func FuzzJSON(f *testing.F) { fuzz(f, runtime.ContentTypeJSON) }

// fuzz reads any bytes as the standard decoder does. Where skipped fields are invalid, only that one
// refuses them. A kind that is named twice is another one to each.
func fuzz(f *testing.F, format string) {
	f.Helper()
	for _, o := range objectsToRead() {
		f.Add(encode(f, o, format))
	}
	its, own := serializer(f, standard, format), serializer(f, ours, format).(objects)
	f.Fuzz(func(t *testing.T, data []byte) {
		got, kind, ok := own.read(data)
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
